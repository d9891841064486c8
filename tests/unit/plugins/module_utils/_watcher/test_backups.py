# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move that waits for another job of its domain, and checkpoints that are defined at the destination, between fake hosts."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Checkpoint
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.backups import redefine_checkpoints
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import Mover
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import mover_of, order_of, record_of, state_in

PATIENT = 60


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def busy_mover(fleet: FakeFleet, folder: pathlib.Path, seconds: int = PATIENT) -> Mover:
    fleet.guest(other_job="a backup")
    return mover_of(fleet, dataclasses.replace(order_of(record_of()), busy_wait_seconds=seconds), folder)


def test_a_move_waits_until_the_other_job_has_ended(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    mover = busy_mover(fleet, tmp_path)
    assert (mover.attend_while_waiting(), mover.is_held_up) == (False, True)
    assert state_in(tmp_path)["waits_for"] == "waits for a backup, for up to 60 s"
    fleet.source.domain(UUID).other_job = ""
    fleet.clock.sleep(3)
    assert (mover.attend_while_waiting(), mover.is_held_up) == (False, False)
    assert "waits_for" not in state_in(tmp_path)
    assert state_in(tmp_path)["status"] == s.QUEUED


def test_a_move_that_has_waited_too_long_names_the_job(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    mover = busy_mover(fleet, tmp_path)
    assert mover.attend_while_waiting() is False
    fleet.clock.sleep(PATIENT - 1)
    assert mover.attend_while_waiting() is False
    fleet.clock.sleep(3)
    assert mover.attend_while_waiting() is True
    state = state_in(tmp_path)
    assert (state["status"], state["reason"]) == (s.CANCELLED, "busy")
    assert state["history"][-1]["detail"] == "Domain web1 still has a backup after 62 s. Nothing was started."


def test_another_job_that_begins_later_has_the_whole_time(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    mover = busy_mover(fleet, tmp_path)
    mover.attend_while_waiting()
    for job in ("", "a copy of disk vda"):
        fleet.clock.sleep(PATIENT / 2)
        fleet.source.domain(UUID).other_job = job
        assert mover.attend_while_waiting() is False
    fleet.clock.sleep(PATIENT - 5)
    assert (mover.attend_while_waiting(), mover.is_held_up) == (False, True)


def test_the_source_is_not_asked_at_every_turn(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    mover = busy_mover(fleet, tmp_path)
    for _turn in range(10):
        mover.attend_while_waiting()
        fleet.clock.sleep(0.1)
    assert len(fleet.connections) == 1
    assert all(host.is_closed for host in fleet.connections)


@pytest.mark.parametrize("seconds", [0, PATIENT])
def test_a_move_is_not_held_up_without_a_wait_or_by_a_silent_source(fleet: FakeFleet, tmp_path: pathlib.Path, seconds: int) -> None:
    mover = busy_mover(fleet, tmp_path, seconds)
    if seconds:
        fleet.source.go_dark()
    assert (mover.attend_while_waiting(), mover.is_held_up) == (False, False)


def test_a_move_without_its_turn_does_not_look_for_jobs(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    mover = busy_mover(fleet, tmp_path)
    mover.waits = True
    assert (mover.attend_while_waiting(), fleet.connections) == (False, [])


def test_checkpoints_that_cannot_be_used_are_named_after_all_others_were_defined(fleet: FakeFleet) -> None:
    chain = tuple(Checkpoint(name, "<domaincheckpoint/>") for name in ("monday", "tuesday", "wednesday"))
    fleet.guest()
    fleet.source.broken_bitmaps.update(("monday", "wednesday"))
    with pytest.raises(Conflict, match="monday, wednesday cannot be used at the destination: checkpoint inconsistent"):
        redefine_checkpoints(fleet.open(LOCAL_URI), UUID, chain)
    assert fleet.source.domain(UUID).checkpoints == chain[1:2]
