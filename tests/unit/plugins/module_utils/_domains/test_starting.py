# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starting a domain on a fake host."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _module
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains import starting
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains.starting import Decision, DomainStart, is_noted, note_start, start_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import identify_watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import NOTED_BY_DRAIN, StartNote
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Forbidden,
    Internal,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotSupported,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership, read_own_act
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost

DRAINED = StartNote(UUID, "web1", (NOTED_BY_DRAIN,), "2026-01-02T03:04:05Z")
HELD = dataclasses.replace(DRAINED, why=("autostart",))


class StartingHost(FakeHost):
    """A fake host on which a start does what the test says."""

    def __init__(self, fleet: FakeFleet, begin: t.Callable[[], object]) -> None:
        super().__init__(fleet, fleet.source, LOCAL_URI)
        self.begin = begin

    def start_domain(self, uuid: str, paused: bool = False) -> None:
        self._act("start paused" if paused else "start", uuid)
        self.begin()


class World:
    """A domain that is off, noted to be started again."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.fleet = FakeFleet()
        self.domain = self.fleet.guest(state=domain_states.SHUTOFF, reason="shutdown")
        self.folder = folder
        self.write_note(DRAINED)

    def write_note(self, note: StartNote | None) -> None:
        shutil.rmtree(self.folder / "notes", ignore_errors=True)
        if note:
            (self.folder / "notes").mkdir()
            (self.folder / "notes" / f"{UUID}.json").write_text(json.dumps(encode(note)))

    def start(self, begin: t.Callable[[], object] | None = None, paused: bool = False) -> DomainStart:
        host = StartingHost(self.fleet, begin or (lambda: self.domain.enter(domain_states.RUNNING, "booted")))
        return DomainStart(host, host.find_domain(uuid=UUID), str(self.folder), str(self.folder / "notes"), paused)

    def is_noted(self) -> bool:
        return is_noted(UUID, str(self.folder / "notes"))


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)


def raise_locked_image() -> None:
    raise Internal("Failed to start domain: the image is locked.")


def test_a_started_domain_loses_its_note(world: World) -> None:
    assert world.start().carry_out() == {"state": domain_states.RUNNING, "reason": "booted"}
    assert not world.is_noted()


def test_a_domain_is_started_paused_if_that_was_requested(world: World) -> None:
    done = world.start(lambda: world.domain.enter(domain_states.PAUSED, "starting up"), paused=True).carry_out()
    assert done == {"state": domain_states.PAUSED, "reason": "starting up"}
    assert [call for call in world.fleet.source.calls if call.startswith("start")] == [f"start paused {UUID}"]


def test_a_domain_that_cannot_start_keeps_its_note(world: World) -> None:
    with pytest.raises(Internal, match=r"image is locked.*It is off"):
        world.start(raise_locked_image).carry_out()
    assert world.is_noted()


def test_a_domain_that_stops_at_once_is_an_error(world: World) -> None:
    with pytest.raises(InvalidState, match="shut off"):
        world.start(lambda: None).carry_out()
    assert world.is_noted()


def test_a_domain_that_was_started_meanwhile_is_a_success(world: World) -> None:
    def late() -> None:
        world.domain.enter(domain_states.RUNNING, "booted")
        raise_locked_image()

    assert world.start(late).carry_out()["state"] == domain_states.RUNNING
    assert not world.is_noted()


def test_a_domain_that_another_recovery_has_started_and_its_owner_stopped_is_not_started(world: World) -> None:
    """This recovery was suspended after its decision. The note of a domain is removed when it is started."""
    world.start().carry_out()
    world.domain.enter(domain_states.SHUTOFF, "shutdown")
    with pytest.raises(InvalidState, match=r"web1 on .* was not started: since that was decided, somebody has started it, .*If it is to run, start it"):
        world.start().carry_out(Decision(DRAINED))


@pytest.mark.parametrize("reason", ["unknown", "shutdown"])
def test_a_domain_that_was_noted_again_is_not_started_by_an_earlier_decision(world: World, reason: str) -> None:
    """It was started by hand, and the host is being drained again."""
    world.domain.enter(domain_states.SHUTOFF, reason)
    note_start(UUID, "web1", [NOTED_BY_DRAIN], str(world.folder / "notes"), boot_id=UUID)
    with pytest.raises(InvalidState, match="since that was decided"):
        world.start().carry_out(Decision(DRAINED))
    assert world.start().carry_out(Decision(dataclasses.replace(DRAINED, boot_id=UUID), UUID))["state"] == domain_states.RUNNING


@pytest.mark.parametrize("note", [None, HELD])
def test_a_domain_that_was_stopped_since_the_decision_is_not_started(world: World, note: StartNote | None) -> None:
    """Somebody may have started it with virsh, which leaves the note."""
    world.write_note(note)
    with pytest.raises(InvalidState, match=r"web1 on .* was not started: since that was decided, it was stopped \(shutdown\). If it is to run, start it"):
        world.start().carry_out(Decision(note))
    assert world.is_noted() is bool(note)
    world.domain.enter(domain_states.SHUTOFF, "unknown")
    assert world.start().carry_out(Decision(note))["state"] == domain_states.RUNNING


def test_a_domain_that_a_drain_has_shut_down_in_this_boot_is_started(world: World) -> None:
    assert world.start().carry_out(Decision(DRAINED, UUID))["state"] == domain_states.RUNNING


def test_a_domain_that_is_being_moved_is_not_started(world: World) -> None:
    watcher = Ownership(UUID, str(world.folder))
    with pytest.raises(InvalidState, match="being moved"):
        world.start().carry_out()
    watcher.release_lock()
    (world.folder / f"{UUID}.json").write_text(json.dumps({"status": "queued", "watcher": encode(identify_watcher("run"))}))
    with pytest.raises(InvalidState, match="being moved"):
        world.start().check_startable()
    assert world.fleet.source.calls == []


def test_an_active_domain_that_a_drain_is_shutting_down_keeps_its_note(world: World) -> None:
    """The drain has noted it before it asked it to shut down, and counts on the recovery to start it."""
    world.domain.enter(domain_states.RUNNING, "booted")
    drain = Ownership(UUID, str(world.folder))
    world.start().forget_start()
    assert world.is_noted()
    drain.release_lock()
    late = world.start()
    world.domain.enter(domain_states.SHUTOFF, "shutdown")
    late.forget_start()
    assert world.is_noted()
    world.domain.enter(domain_states.RUNNING, "booted")
    world.start().forget_start()
    assert not world.is_noted()


@pytest.mark.parametrize(
    ("params", "error"), [({"name": ""}, InvalidArgument), ({"name": None, "uuid": "x"}, InvalidArgument), ({"uri": "qemu+tcp://kvm9/system"}, NotSupported)]
)
def test_bad_input_of_a_start_is_refused(monkeypatch: pytest.MonkeyPatch, params: dict[str, t.Any], error: type[KvmfleetError]) -> None:
    monkeypatch.setattr(_module.os, "geteuid", lambda: 0)
    monkeypatch.setattr(starting, "prepare_run_folder", lambda: None)
    with pytest.raises(error):
        start_of({"uri": LOCAL_URI, "name": "web1", "uuid": None, "paused": False, **params})


def test_a_start_without_root_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_module.os, "geteuid", lambda: 1000)
    with pytest.raises(Forbidden):
        start_of({"uri": LOCAL_URI, "name": "web1", "uuid": None, "paused": False})


def test_a_start_is_noted_before_it_begins_so_that_it_is_not_taken_for_an_act_of_others(world: World) -> None:
    noted = []

    def begin() -> None:
        noted.append(read_own_act(UUID, str(world.folder)))
        world.domain.enter(domain_states.RUNNING, "booted")

    world.start(begin).carry_out()
    assert noted[0]
    assert read_own_act(UUID, str(world.folder)) == noted[0]
