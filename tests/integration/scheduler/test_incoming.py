# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host is drained while a guest is still moving to it: the move is waited for and the guest moved on, or the move is aborted."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually

Make = t.Callable[..., str]
DRAINED = 2


def begin(lab: Lab, control: Desk, name: str, **arguments: t.Any) -> Running:
    """Begin to move a guest to the host that is drained next, and return once its memory is on the way."""
    moving = control.begin_move(name, DRAINED, **arguments)
    eventually(lambda: (lab.state_file(lab.uuid(name)) or {}).get("status") == "running", "the guest is moving")
    return moving


@pytest.mark.long
def test_a_drain_aborts_an_incoming_move(lab: Lab, control: Desk, guest: Make) -> None:
    name = guest("late", "--mib", "192", "--dirty-mib", "96", "--integrity")
    moving = begin(lab, control, name, timeout_seconds=0, **HELD)
    code, text = control.drain(DRAINED, drain_host_incoming="abort", drain_host_incoming_timeout_seconds=60)
    assert code == 0, text
    assert moving.wait().ended() == ("cancelled", "operator")
    assert lab.places(name) == {1: "running"}
    assert lab.check(name)["intact"]


@pytest.mark.long
def test_a_drain_waits_for_an_incoming_move_and_moves_the_guest_on(lab: Lab, control: Desk, guest: Make) -> None:
    name = guest("late", "--mib", "128", "--dirty-mib", "48", "--rate", "4", "--integrity")
    moving = begin(lab, control, name, bandwidth_mib=3)
    code, text = control.drain(DRAINED, drain_host_incoming_timeout_seconds=120)
    assert code == 0, text
    assert moving.wait().ended() == ("completed", None)
    assert DRAINED not in lab.places(name)
    assert lab.check(name)["intact"]
    assert [record["source"]["host"] for record in control.records()] == [lab.host(1), lab.host(DRAINED)]
