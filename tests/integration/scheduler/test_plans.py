# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A drain that was planned, read and approved: it is carried out as it was saved, or nothing is moved and what has changed is named."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document

Make = t.Callable[..., str]
SMALL = ("--mib", "48", "--dirty-mib", "8", "--rate", "500", "--integrity")
NAMES = ("alpha", "beta")
# The bystander lives on the first host, so the second is the one that is drained.
SOURCE = 2


@pytest.fixture
def saved(control: Desk, guest: Make) -> pathlib.Path:
    """Two guests on the second host, and the file of a plan that was made for it."""
    for name in NAMES:
        guest(name, *SMALL, on=SOURCE)
    path = control.folder / "plan.json"
    code, text = control.drain(SOURCE, drain_host_plan_only=True, drain_host_plan_file=str(path))
    assert code == 0, text
    assert path.is_file(), text
    plan = json.loads(path.read_text(encoding="utf-8"))
    check_document("drain-plan.json", plan)
    assert plan["options"]["parallel"] == "auto"
    return path


def apply(control: Desk, path: pathlib.Path) -> tuple[int, str]:
    return control.drain(SOURCE, drain_host_plan_apply=True, drain_host_plan_file=str(path))


def states(control: Desk) -> dict[str, str]:
    """Return the states of hosts that stand in the ledger."""
    documents = control.ledger.list_hosts() if control.path.is_dir() else []
    return {one.body["name"]: one.body["state"] for one in documents}


def edited(text: str, edit: t.Callable[[dict[str, t.Any]], t.Any]) -> str:
    plan = json.loads(text)
    edit(plan)
    return json.dumps(plan)


EDITS: dict[str, tuple[t.Callable[[str], str], str]] = {
    "another destination": (lambda text: edited(text, lambda plan: plan["moves"][0].update(destination="elsewhere")), "digest"),
    "a torn file": (lambda text: text[: len(text) // 2], "JSON"),
}


@pytest.mark.long
@pytest.mark.parametrize("wrong", ["0", "many"])
def test_a_drain_with_an_invalid_number_of_moves_moves_nothing(lab: Lab, control: Desk, guest: Make, wrong: str) -> None:
    guest("alpha", *SMALL, on=SOURCE)
    code, text = control.drain(SOURCE, drain_host_parallel=wrong)
    told = " ".join(text.split())
    assert (code != 0, "parallel is" in told, "Give auto, or a whole number from 1 to 64." in told) == (True, True, True), text
    assert (lab.places("alpha"), control.records()) == ({SOURCE: "running"}, [])
    assert states(control).get(lab.host(SOURCE)) != "maintenance"


@pytest.mark.long
def test_a_saved_plan_is_applied_unless_it_was_edited_or_the_fleet_has_drifted(lab: Lab, control: Desk, saved: pathlib.Path, guest: Make) -> None:
    """It is refused when its file was edited and when the fleet has drifted; then the fleet is as it was, and the plan is carried out."""
    good = saved.read_text(encoding="utf-8")
    places = {move["name"]: move["destination"] for move in json.loads(good)["moves"]}
    assert set(places) == set(NAMES)
    for case, (edit, named) in EDITS.items():
        saved.write_text(edit(good), encoding="utf-8")
        check_not_applied(lab, control, saved, case, named)
    saved.write_text(good, encoding="utf-8")
    check_drift(lab, control, saved, int(places["alpha"][-1]), guest("newcomer", "--mib", "32", on=SOURCE))
    lab.virsh(SOURCE, "destroy", "newcomer")
    code, text = apply(control, saved)
    assert code == 0, text
    for name, host in places.items():
        assert lab.places(name) == {int(host[-1]): "running"}
        assert lab.check(name)["intact"]
    assert {record["domain"]["name"]: record["destination"]["host"] for record in control.records()} == places


def check_drift(lab: Lab, control: Desk, saved: pathlib.Path, closed: int, newcomer: str) -> None:
    control.close(closed, "maintenance", "a new fan")
    check_not_applied(lab, control, saved, "drift", "alpha", lab.host(closed), "a new fan", newcomer)
    control.close(closed, "enabled", "it turns")


def check_not_applied(lab: Lab, control: Desk, saved: pathlib.Path, case: str, *named: str) -> None:
    """It failed with these words, nothing was moved, and the source was not closed."""
    code, text = apply(control, saved)
    told = " ".join(text.split())
    assert code != 0, case
    assert [word for word in named if word not in told] == [], (case, text)
    assert "Traceback" not in text, case
    for name in NAMES:
        assert lab.places(name) == {SOURCE: "running"}
    assert control.records() == []
    assert states(control).get(lab.host(SOURCE)) != "maintenance"
