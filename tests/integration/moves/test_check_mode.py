# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check mode: the same reading and the same verdict as the move itself, and nothing changed."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab

Make = t.Callable[..., str]


def test_check_mode_shows_the_move_and_its_diff_and_changes_nothing(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("predicted")
    foreseen = control.move(name, 2, "--check", "--diff")
    assert (foreseen.code, foreseen.changed) == (0, True), foreseen.text
    assert (foreseen.record["id"], foreseen.record["status"]) == (None, "scheduled")
    assert foreseen.record["destination"]["host"] == lab.host(2)
    assert f"-{name}: {lab.host(1)}" in foreseen.text
    assert f"+{name}: {lab.host(2)}" in foreseen.text
    assert control.records() == []
    assert lab.state_file(lab.uuid(name)) is None
    assert lab.places(name) == {1: "running"}
    moved = control.move(name)
    assert moved.record["policy"] == foreseen.record["policy"]
    after = control.move(name, 2, "--check")
    assert (after.code, after.changed) == (0, False), after.text


@pytest.mark.long
def test_check_mode_refuses_a_destination_without_capacity(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("too-big")
    full = ["-e", '{"kvmfleet_scheduler": {"reserved_memory_mib": 900000000}}']
    for options in (["--check"], []):
        done = control.move(name, 2, *full, *options)
        assert done.refused() == "conflict"
        assert "MiB" in done.msg
        assert lab.host(2) in done.msg
        assert lab.places(name) == {1: "running"}
    assert done.ended() == ("conflict", None)
    assert control.only_record() == done.record


@pytest.mark.long
def test_a_host_in_maintenance_is_refused_as_destination(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("waits")
    closed = control.task(2, "host", {"state": "maintenance", "reason": "a new fan"})
    assert closed.code == 0, closed.text
    for options in (["--check"], []):
        done = control.move(name, 2, *options)
        assert done.refused() == "conflict"
        assert "maintenance" in done.msg
    chosen = control.move(name, None, "--check")
    assert chosen.record["destination"]["host"] == lab.host(3)
    assert control.task(2, "host", {"state": "enabled", "reason": "it turns"}).code == 0
    assert control.move(name, 2, "--check").code == 0
    assert lab.places(name) == {1: "running"}


def test_check_mode_refuses_what_the_move_would_refuse(lab: Lab, control: Control, guest: Make) -> None:
    off = guest("off", "--off")
    assert control.move(off, 2, "--check").refused() == "invalid_state"
    assert control.move("nobody", 2, "--check").refused() == "not_found"
    assert control.records() == []


@pytest.mark.long
def test_check_mode_does_not_affect_a_running_move(lab: Lab, control: Control, slow: str) -> None:
    running = control.begin_move(slow, **HELD)
    state = lab.under_way(lab.uuid(slow))
    seen = control.move(slow, 2, "--check")
    assert (seen.code, seen.record["id"]) == (0, state["id"]), seen.text
    assert control.move(slow, 3, "--check").refused() == "conflict"
    lab.hurry(slow)
    done = running.wait()
    assert done.ended() == ("completed", None)
    assert done.record["generation"] == state["generation"]
