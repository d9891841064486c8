# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The prediction of a drain over a slow cable: what guests use and not their size, in the plan, in the progress lines, and beside what came in the records."""

from __future__ import annotations

import json
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document

Make = t.Callable[..., str]
SOURCE = 2
# 16 MiB/s: what the processors do beside takes little of the time.
CABLE_MBIT, CABLE_MIB = 134, 16
FULL = ("--mib", "256", "--dirty-mib", "64")
EMPTY = ("--mib", "512")
NAMES = ("full1", "full2", "empty")


@pytest.fixture
def slow_cable(lab: Lab) -> t.Iterator[None]:
    lab("slow", lab.host(SOURCE), "--mbit", str(CABLE_MBIT))
    yield
    lab("heal", lab.host(SOURCE))


def test_the_first_drain_predicts_what_comes_and_shows_when_all_will_have_ended(lab: Lab, control: Desk, guest: Make, slow_cable: None) -> None:
    guest("full1", *FULL, on=SOURCE)
    guest("full2", *FULL, on=SOURCE)
    guest("empty", *EMPTY, on=SOURCE)
    path = control.folder / "plan.json"
    code, text = control.drain(SOURCE, drain_host_plan_file=str(path), drain_host_parallel=1)
    assert code == 0, text
    plan = json.loads(path.read_text(encoding="utf-8"))
    check_document("drain-plan.json", plan)
    moves = {move["name"]: move for move in plan["moves"]}
    assert 60 <= moves["full1"]["sends_mib"] <= 80
    assert moves["empty"]["sends_mib"] <= 10
    assert moves["full1"]["predicted_seconds"] > 2 * moves["empty"]["predicted_seconds"]
    assert re.search(r"full1 .* [0-9.]+ s \([0-9.]+ to [0-9.]+\) ", text), text
    assert re.search(r"full[12]  running .* [23] moves left: eta [0-9]+ s", text), text
    records = {record["domain"]["name"]: record for record in control.records()}
    assert {*records} == {*NAMES}
    for name, record in records.items():
        check_document("record.json", record)
        move, predicted = moves[name], record["predicted"]
        assert [predicted["seconds"], predicted["low_seconds"], predicted["high_seconds"]] == [move["predicted_seconds"], *move["predicted_range"]]
        assert predicted["bytes"] == move["sends_mib"] * 1024**2
    for name in ("full1", "full2"):
        # The range has a factor of 2; a busy machine gets as much again.
        actual = records[name]["result"]["elapsed_ms"] / 1000
        assert actual > 64 / CABLE_MIB * 0.8
        assert records[name]["predicted"]["low_seconds"] / 1.4 < actual < records[name]["predicted"]["high_seconds"] * 1.4


@pytest.mark.long
def test_the_second_drain_learns_the_link_and_measures_nothing_if_that_is_switched_off(lab: Lab, control: Desk, guest: Make, slow_cable: None) -> None:
    options = {"drain_host_parallel": 1, "drain_host_dirty_rate_seconds": 0, "drain_host_probe_link": False}
    predicted = []
    for turn in range(2):
        guest(f"full{turn}", "--mib", "256", "--dirty-mib", "128", on=SOURCE)
        path = control.folder / f"plan{turn}.json"
        code, text = control.drain(SOURCE, drain_host_plan_file=str(path), **options)
        assert code == 0, text
        (move,) = json.loads(path.read_text(encoding="utf-8"))["moves"]
        assert move["predicted_downtime_ms"] is None
        predicted.append(move["predicted_seconds"])
        control.task(SOURCE, "host", {"state": "enabled"})
    # Nothing is known of the cable at first: a gigabit is assumed.
    assert predicted[0] < 4
    actual = control.records()[-1]["result"]["elapsed_ms"] / 1000
    assert actual / 1.5 < predicted[1] < actual * 1.5
