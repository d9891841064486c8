# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A balance of real hosts: it is planned, approved and carried out, and a second one moves nothing.

All hosts of the lab have the pressure and the CPU time of the one machine below them. These files are hidden here, so that the CPU time of the guests decides.
"""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.runs import list_runs
from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator, Run
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document

Make = t.Callable[..., str]
HOSTS = (1, 2, 3)
READINGS = "/run/kvmfleet/load"
# The mean of the CPU time needs a reading that is five seconds old.
PAUSE_SECONDS = 6
# These keep a processor busy, and write so little memory that their moves end.
BUSY = ("--mib", "64", "--dirty-mib", "4", "--rate", "8000000", "--integrity")
IDLE = ("--mib", "32")
# Only the CPU time counts. How much of it the guests get depends on the machine, and by how much they differ does not.
EVEN: dict[str, t.Any] = {"balance_goal": "even", "balance_weights": {"cpu": 1, "memory": 0, "io": 0, "vcpus": 0}, "balance_min_gain": 0.03}


@pytest.fixture
def control_type() -> type[Control]:
    return Operator


@pytest.fixture
def operator(control: Control) -> Operator:
    assert isinstance(control, Operator)
    return control


@pytest.fixture
def hidden(lab: Lab) -> t.Iterator[None]:
    """Hide from each host what is that of the whole machine."""
    for number in HOSTS:
        lab.on(number, "mount", "-t", "tmpfs", "none", "/proc/pressure")
        lab.on(number, "mount", "--bind", "/dev/null", "/proc/stat")
    yield
    for number in HOSTS:
        lab.on(number, "umount", "/proc/pressure", "/proc/stat")
        lab.on(number, "rm", "-rf", READINGS)


@pytest.fixture
def fleet(guest: Make, hidden: None) -> tuple[str, str]:
    """Two busy guests on the first host; the others have one idle guest each."""
    for number in (2, 3):
        guest(f"idle{number}", *IDLE, on=number)
    return guest("busy1", *BUSY), guest("busy2", *BUSY)


def balance(operator: Operator, *options: str, **variables: t.Any) -> Run:
    return operator.playbook("balance", *options, **{**EVEN, **variables})


def take_readings(lab: Lab, operator: Operator) -> None:
    """Forget all readings, take new ones, and wait until they can be compared with."""
    for number in HOSTS:
        lab.on(number, "rm", "-rf", READINGS)
        operator.facts(number, load_seconds=60)
    time.sleep(PAUSE_SECONDS)


def check_unmoved(lab: Lab, operator: Operator, run: Run, fleet: t.Sequence[str]) -> None:
    assert "changed=0" in run.text, run.text
    assert run.changed == 0, run.text
    assert {name: lab.places(name) for name in fleet} == {name: {1: "running"} for name in fleet}
    assert operator.records() == []


def test_a_busy_guest_moves_by_an_approved_plan_and_a_second_balance_moves_nothing(
    lab: Lab, operator: Operator, fleet: tuple[str, str], tmp_path: pathlib.Path
) -> None:
    first = balance(operator)
    assert (first.code != 0, "do not say how busy the host is" in first.text, "Nothing was planned." in first.text) == (True, True, True), first.text
    check_unmoved(lab, operator, first, fleet)

    time.sleep(PAUSE_SECONDS)
    checked = balance(operator, "--check", balance_mode="apply")
    assert (checked.code, "CPU time" in checked.text, "and would be" in checked.text) == (0, True, True), checked.text
    check_unmoved(lab, operator, checked, fleet)

    path = tmp_path / "balance.json"
    planned = balance(operator, balance_plan_file=str(path))
    assert planned.code == 0, planned.text
    plan = json.loads(path.read_text(encoding="utf-8"))
    check_document("drain-plan.json", plan)
    (move,) = plan["moves"]
    assert (move["name"] in fleet, move["source"], move["gain"] >= 0.03) == (True, lab.host(1), True)
    assert plan["balance"]["score_after"] < plan["balance"]["score_before"]
    assert {name: lab.places(name) for name in fleet} == {name: {1: "running"} for name in fleet}

    applied = operator.playbook("balance", balance_mode="apply", balance_plan_file=str(path))
    assert applied.code == 0, applied.text
    result = applied.stats["balance_result"]
    check_document("balance-result.json", result)
    assert [entry["name"] for entry in result["moved"][lab.host(1)]] == [move["name"]]
    assert {name: list(lab.places(name).values()) for name in fleet} == {name: ["running"] for name in fleet}
    assert lab.places(move["name"]) == {int(move["destination"][-1]): "running"}
    assert lab.check(move["name"])["intact"]
    assert [(record["status"], record["predicted"]["seconds"]) for record in operator.records()] == [("completed", move["predicted_seconds"])]

    (run,) = list_runs(operator.ledger)
    assert [(one.domain.name, one.status) for one in run.moves] == [(move["name"], "completed")]
    assert (run.is_open, run.hosts) == (False, tuple(lab.host(number) for number in HOSTS))

    take_readings(lab, operator)
    again = balance(operator, balance_mode="apply")
    assert (again.code, "Nothing to move." in again.text, again.changed) == (0, True, 0), again.text
    assert len(operator.records()) == 1


@pytest.mark.long
def test_a_guest_that_has_just_moved_stays_whatever_it_would_bring(lab: Lab, operator: Operator, fleet: tuple[str, str]) -> None:
    for name in fleet:
        moved = operator.task(1, "live_migrate", {"name": name, "destination": lab.host(2)})
        assert moved.code == 0, moved.text
    take_readings(lab, operator)
    cold = balance(operator, balance_mode="apply")
    assert (cold.code, cold.changed, "It has moved within the last 24 h" in cold.text) == (0, 0, True), cold.text
    warm = balance(operator, balance_mode="apply", balance_cooldown_seconds=0)
    assert (warm.code, len(operator.records())) == (0, 3), warm.text


def kill_balance(lab: Lab, operator: Operator, path: pathlib.Path, with_workers: bool) -> dict[str, t.Any]:
    """Plan a balance in this file, carry it out, kill it as soon as its move has begun, and wait until that has ended. Return the move."""
    take_readings(lab, operator)
    planned = balance(operator, balance_plan_file=str(path))
    assert planned.code == 0, planned.text
    move: dict[str, t.Any]
    (move,) = json.loads(path.read_text(encoding="utf-8"))["moves"]
    begun = operator.begin_playbook("balance", balance_mode="apply", balance_plan_file=str(path))
    eventually(lambda: lab.state_file(move["uuid"]), "the watcher has begun the move", 120)
    if with_workers:
        begun.kill_with_workers()
    else:
        begun.kill()
    # A watcher finishes what it has begun. A guest that has arrived needs a reading there: the hosts are judged by the CPU time of their guests alone.
    eventually(lambda: lab.places(move["name"]) == {int(move["destination"][-1]): "running"}, "the move has ended")
    take_readings(lab, operator)
    return move


@pytest.mark.long
@pytest.mark.parametrize("with_workers", [True, False], ids=["node-lost", "process-killed"])
def test_a_balance_whose_control_node_dies_is_continued_by_the_same_plan(
    lab: Lab, operator: Operator, fleet: tuple[str, str], tmp_path: pathlib.Path, with_workers: bool
) -> None:
    path = tmp_path / "balance.json"
    move = kill_balance(lab, operator, path, with_workers)
    again = operator.playbook("balance", balance_mode="apply", balance_plan_file=str(path))
    assert again.code == 0, again.text
    assert [record["status"] for record in operator.records()] == ["completed"]
    assert lab.places(move["name"]) == {int(move["destination"][-1]): "running"}
    assert lab.check(move["name"])["intact"]
    first, second = list_runs(operator.ledger)
    assert (first.is_open, first.is_interrupted, second.is_open, second.is_interrupted) == (False, True, False, ABSENT)
    assert [one.record for one in first.moves] == [record["id"] for record in operator.records()]


@pytest.mark.long
def test_a_new_balance_settles_what_has_arrived_after_its_control_node_died(
    lab: Lab, operator: Operator, fleet: tuple[str, str], tmp_path: pathlib.Path
) -> None:
    move = kill_balance(lab, operator, tmp_path / "balance.json", with_workers=True)
    assert [record["status"] for record in operator.records()] != ["completed"]
    again = balance(operator, balance_mode="apply")
    assert (again.code, "Nothing to move." in again.text) == (0, True), again.text
    assert [(record["status"], record["domain"]["name"]) for record in operator.records()] == [("completed", move["name"])]
    assert lab.places(move["name"]) == {int(move["destination"][-1]): "running"}
    (run,) = list_runs(operator.ledger)
    assert (run.is_open, run.is_interrupted, [one.status for one in run.moves]) == (False, True, ["completed"])


@pytest.mark.long
def test_bad_input_is_refused_with_a_sentence_and_nothing_moves(lab: Lab, operator: Operator, fleet: tuple[str, str], tmp_path: pathlib.Path) -> None:
    take_readings(lab, operator)
    path = tmp_path / "balance.json"
    planned = balance(operator, balance_plan_file=str(path))
    assert planned.code == 0, planned.text
    good = path.read_text(encoding="utf-8")
    for case, options, variables, words in (
        ("a weight", (), {"balance_weights": {"cpu": 11}}, "The weight of cpu is 11. Give a number from 0 to 10."),
        ("a goal", (), {"balance_goal": "fair"}, "balance_goal must be one of: pressure, even"),
        ("a mode", (), {"balance_mode": "move"}, "balance_mode must be one of: plan, apply"),
        ("hosts to empty", (), {"balance_empty": 3}, "balance_empty is 3. Give a whole number from 0 to 2."),
        ("one host", ("--limit", lab.host(1)), {}, "a balance needs two hosts at least"),
        ("old facts", (), {"balance_max_age_seconds": 0}, "max_age_seconds is 0"),
        ("a missing plan", (), {"balance_plan_file": str(tmp_path / "missing.json")}, "There is no plan in"),
    ):
        run = balance(operator, *options, **{"balance_mode": "apply", **variables})
        assert (case, run.code != 0, words in run.text) == (case, True, True), run.text
        check_unmoved(lab, operator, run, fleet)
    path.write_text(good.replace(lab.host(3), lab.host(2)), encoding="utf-8")
    edited = operator.playbook("balance", balance_mode="apply", balance_plan_file=str(path))
    assert (edited.code != 0, "its digest does not match" in edited.text) == (True, True), edited.text
    path.write_text(good, encoding="utf-8")
    assert operator.task(3, "host", {"state": "maintenance"}).code == 0
    for variables in ({}, {"balance_plan_file": str(path)}):
        run = balance(operator, balance_mode="apply", **variables)
        assert (run.code != 0, f"{lab.host(3)} is not in service (maintenance)." in run.text) == (True, True), run.text
        check_unmoved(lab, operator, run, fleet)
    allowed = balance(operator, balance_maintenance_allowed=True, balance_empty=1)
    assert allowed.code == 0, allowed.text
    assert f"to {lab.host(3)}" not in allowed.text


@pytest.mark.long
def test_a_host_that_is_off_takes_no_part_and_a_plan_that_needs_it_is_refused(
    lab: Lab, operator: Operator, fleet: tuple[str, str], tmp_path: pathlib.Path
) -> None:
    take_readings(lab, operator)
    path = tmp_path / "balance.json"
    planned = balance(operator, balance_plan_file=str(path))
    assert planned.code == 0, planned.text
    (move,) = json.loads(path.read_text(encoding="utf-8"))["moves"]
    gone = int(move["destination"][-1])
    lab("poweroff", lab.host(gone))
    try:
        run = operator.playbook("balance", balance_mode="apply", balance_plan_file=str(path))
        assert (run.code != 0, f"{lab.host(gone)} does not take part now" in run.text) == (True, True), run.text
        assert operator.records() == []
        other = balance(operator)
        assert f"SILENT {lab.host(gone)}" in other.text, other.text
        assert {name: lab.places(name) for name in fleet} == {name: {1: "running"} for name in fleet}
    finally:
        lab("poweron", lab.host(gone))
        lab.on(gone, "mount", "-t", "tmpfs", "none", "/proc/pressure")
        lab.on(gone, "mount", "--bind", "/dev/null", "/proc/stat")
