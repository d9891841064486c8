# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The share of each host of a plan."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.shares import build_shares, list_moves, list_unfinished_moves
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import record, sealed_plan, uuid_of

Body = dict[str, t.Any]


def entry(name: str, source: str, **more: t.Any) -> Body:
    return {"uuid": uuid_of(name), "name": name, "source": source, **more}


PLAN = sealed_plan(
    sources=("kvm1", "kvm3"),
    options={"moves": {"timeout_seconds": 9}},
    moves=[entry("a", "kvm1", destination="kvm2"), entry("b", "kvm3", destination="kvm4")],
    shutdowns=[entry("s", "kvm1"), entry("t", "kvm3")],
    unplaced=[entry("u", "kvm3")],
    skipped=[entry("d", "kvm1", drain="leave"), entry("e", "kvm1", drain="")],
)


def begun_move(name: str, source: str = "kvm1", destination: str = "kvm2") -> MoveRecord:
    return record(name, source, destination)


def shares(*records: MoveRecord, check_mode: bool = False) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", build_shares(PLAN, records, lambda host: host != "kvm9", check_mode))


def test_the_moves_of_a_share_have_the_options_of_the_plan() -> None:
    assert shares()["kvm1"].moves == ({"uuid": uuid_of("a"), "destination": "kvm2", "timeout_seconds": 9},)
    assert list_moves(PLAN, "kvm2") == []


def test_unsettled_moves_of_an_earlier_run_are_in_the_share() -> None:
    records = [begun_move("a"), begun_move("c"), begun_move("d"), begun_move("e"), begun_move("f", source="kvm2"), begun_move("g", destination="kvm9")]
    assert [move["uuid"] for move in shares(*records)["kvm1"].moves] == [uuid_of(name) for name in ("a", "c", "e")]
    assert shares(*records)["kvm1"].moves[1] == {"uuid": uuid_of("c"), "destination": "kvm2"}
    assert list_unfinished_moves(PLAN, "kvm1", []) == []


def test_a_host_with_an_unplaced_domain_shuts_down_none() -> None:
    assert shares()["kvm1"].shutdowns == (uuid_of("s"),)
    assert shares()["kvm3"].shutdowns == ()


def test_only_the_first_host_asks_the_destinations_and_not_in_check_mode() -> None:
    assert {host: share.ends for host, share in shares().items()} == {"kvm1": ("kvm1", "kvm2", "kvm4"), "kvm3": ("kvm3",)}
    assert {host: share.ends for host, share in shares(check_mode=True).items()} == {"kvm1": ("kvm1",), "kvm3": ("kvm3",)}


@pytest.mark.parametrize("option", ["name", "uuid", "destination", "moves", "parallel"])
def test_options_that_the_plan_decides_are_refused(option: str) -> None:
    with pytest.raises(InvalidArgument, match=option):
        list_moves(PLAN, "kvm1", {option: "x"})
