# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control node with a ledger of its own neither drains nor releases a host that was protected under the ledger of the fleet."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator, Run
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
LEDGER_ID = "/var/lib/kvmfleet/ledger-id"


@pytest.fixture
def stranger(lab: Lab, tmp_path: pathlib.Path) -> Operator:
    """An operator on a new control node, where there is no ledger yet."""
    folder = tmp_path / "new"
    folder.mkdir()
    return Operator(lab, folder)


def is_refused(run: Run, operator: Operator) -> bool:
    return run.code != 0 and f"was protected under the ledger {operator.ledger.ledger_id}" in run.text


def knows_nothing(stranger: Operator) -> bool:
    return not stranger.path.exists() or (list(stranger.ledger.list_hosts()), stranger.records()) == ([], [])


@pytest.mark.long
def test_a_drain_with_another_ledger_is_refused_before_anything_moves(lab: Lab, operator: Operator, stranger: Operator, guest: Make) -> None:
    web = guest("web")
    operator.protect()
    run = stranger.playbook("drain", target=lab.host(1))
    assert is_refused(run, operator), run.text
    seen = stranger.playbook("status")
    assert f"{lab.host(3)}: protected under the ledger {operator.ledger.ledger_id}, and there is no ledger where this task looks" in seen.text, seen.text
    moved = stranger.move(web)
    assert (moved.code != 0, operator.ledger.ledger_id in moved.text) == (True, True), moved.text
    # An empty ledger would be in the way of the right one.
    assert not stranger.path.exists()
    assert (lab.places(web), knows_nothing(stranger), operator.entry(1)["state"]) == ({1: "running"}, True, "enabled")

    run = stranger.playbook("drain", target=lab.host(1), kvmfleet_ledger=operator.where)
    assert (run.code, 1 in lab.places(web), operator.entry(1)["state"]) == (0, False, "maintenance"), run.text


@pytest.mark.long
def test_a_release_with_another_ledger_is_refused_unless_that_of_the_fleet_is_lost(lab: Lab, operator: Operator, stranger: Operator, guest: Make) -> None:
    auto = guest("auto", "--autostart")
    operator.protect()
    operator.power_cycle(1)
    direct = stranger.task(1, "boot_guard", {"state": "released"})
    assert (direct.code != 0, operator.ledger.ledger_id in direct.text) == (True, True), direct.text
    run, own = stranger.recover(1)
    assert (run.code != 0, own["released"], own["enabled"], own["started"]) == (True, False, False, []), run.text
    assert "use the ledger with which it was drained or evacuated" in own["error"]
    # If it were a new host, it would be protected first.
    assert is_refused(stranger.playbook("protect", target="kvmfleet_hosts"), operator)
    assert (lab.places(auto), knows_nothing(stranger)) == ({1: "shut off"}, True)

    for number in (1, 2, 3):
        lab.on(number, "rm", LEDGER_ID)
    stranger.protect()
    run, own = stranger.recover(1)
    assert (run.code, own["released"], own["enabled"], lab.places(auto)) == (0, True, True, {1: "running"}), run.text
    for number in (1, 2, 3):
        assert lab.on(number, "cat", LEDGER_ID).strip() == stranger.ledger.ledger_id


@pytest.mark.long
def test_a_copy_that_an_evacuation_left_is_not_started_after_the_ledger_was_lost(lab: Lab, operator: Operator, stranger: Operator, guest: Make) -> None:
    """Its owner has switched it off on its new host, so that no host shows where it belongs except by what that host remembers."""
    web = guest("web", "--autostart", "--storage", "shared")
    operator.protect()
    lab("poweroff", lab.host(1))
    evacuated = operator.playbook("evacuate", source=lab.host(1), evacuate_host_force_down=True, evacuate_host_reason="its cords are pulled")
    assert evacuated.code == 0, evacuated.text
    (now_on,) = lab.places(web)
    lab.virsh(now_on, "destroy", web)
    lab("poweron", lab.host(1))
    for number in (1, 2, 3):
        lab.on(number, "rm", LEDGER_ID)
    stranger.protect()
    run, own = stranger.recover(1)
    assert (run.code != 0, own["released"], own["started"], lab.places(web)[1]) == (True, False, [], "shut off"), run.text
    assert f"from {lab.host(1)} to {lab.host(now_on)} under another ledger ({operator.ledger.ledger_id})" in run.text

    lab.virsh(1, "undefine", web)
    run, own = stranger.recover(1)
    assert (run.code, own["released"], lab.places(web)) == (0, True, {now_on: "shut off"}), run.text


@pytest.mark.long
def test_a_guest_moves_under_a_new_ledger_although_its_host_has_begun_later_moves(lab: Lab, operator: Operator, stranger: Operator, guest: Make) -> None:
    """The generations of the new ledger begin again. Until its next boot, a host begins no record whose generation it has had."""
    web = guest("web")
    operator.protect()
    for source, destination in ((1, 2), (2, 1), (1, 2)):
        moved = operator.task(source, "live_migrate", {"name": web, "destination": lab.host(destination)})
        assert moved.code == 0, moved.text
    for number in (1, 2, 3):
        lab.on(number, "rm", LEDGER_ID)
    stranger.protect()
    moved = stranger.task(2, "live_migrate", {"name": web, "destination": lab.host(1)})
    assert (moved.code, moved.record["generation"], lab.places(web)) == (0, 3, {1: "running"}), moved.text
