# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starting a domain on a fake host."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _module, _start
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, Internal, InvalidArgument, InvalidState, KvmfleetError, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._start import Start, start_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._start_notes import DRAIN, is_noted, note
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.ownership import Ownership
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.process import identity
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost


class StartingHost(FakeHost):
    """A fake host on which a start does what the test says."""

    def __init__(self, fleet: FakeFleet, begin: t.Callable[[], object]) -> None:
        super().__init__(fleet, fleet.source, LOCAL_URI)
        self.begin = begin

    def start(self, uuid: str) -> None:
        self._act("start", uuid)
        self.begin()


class World:
    """A domain that is off, noted to be started again."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.fleet = FakeFleet()
        self.domain = self.fleet.guest(state=h.SHUTOFF, reason="shutdown")
        self.folder = folder
        note(UUID, "web1", [DRAIN], str(folder / "notes"))

    def start(self, begin: t.Callable[[], object] | None = None) -> Start:
        host = StartingHost(self.fleet, begin or (lambda: self.domain.enter(h.RUNNING, "booted")))
        return Start(host, host.find(uuid=UUID), str(self.folder), str(self.folder / "notes"))

    def is_noted(self) -> bool:
        return is_noted(UUID, str(self.folder / "notes"))


@pytest.fixture
def world(tmp_path: pathlib.Path) -> World:
    return World(tmp_path)


def fails() -> None:
    raise Internal("Failed to start domain: the image is locked.")


def test_it_is_started_and_its_note_is_gone(world: World) -> None:
    assert world.start().carry_out() == {"state": h.RUNNING, "reason": "booted"}
    assert not world.is_noted()


def test_one_that_cannot_start_keeps_its_note_and_says_that_it_is_off(world: World) -> None:
    with pytest.raises(Internal, match=r"image is locked.*It is off"):
        world.start(fails).carry_out()
    assert world.is_noted()


def test_one_that_ends_at_once_is_no_success(world: World) -> None:
    with pytest.raises(InvalidState, match="shut off"):
        world.start(lambda: None).carry_out()
    assert world.is_noted()


def test_one_that_another_has_started_at_that_moment_is_fine(world: World) -> None:
    def late() -> None:
        world.domain.enter(h.RUNNING, "booted")
        fails()

    assert world.start(late).carry_out()["state"] == h.RUNNING
    assert not world.is_noted()


def test_one_that_is_being_moved_is_not_started(world: World) -> None:
    watcher = Ownership(UUID, str(world.folder))
    with pytest.raises(InvalidState, match="being moved"):
        world.start().carry_out()
    watcher.release()
    (world.folder / f"{UUID}.json").write_text(json.dumps({"status": "queued", "watcher": identity("run")}))
    with pytest.raises(InvalidState, match="being moved"):
        world.start().check()
    assert world.fleet.source.calls == []


@pytest.mark.parametrize(
    ("params", "error"), [({"name": ""}, InvalidArgument), ({"name": None, "uuid": "x"}, InvalidArgument), ({"uri": "qemu+tcp://kvm9/system"}, NotSupported)]
)
def test_bad_input(monkeypatch: pytest.MonkeyPatch, params: dict[str, t.Any], error: type[KvmfleetError]) -> None:
    monkeypatch.setattr(_module.os, "geteuid", lambda: 0)
    monkeypatch.setattr(_start, "run_folder", lambda: None)
    with pytest.raises(error):
        start_of({"uri": LOCAL_URI, "name": "web1", "uuid": None, **params})


def test_root_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_module.os, "geteuid", lambda: 1000)
    with pytest.raises(Forbidden):
        start_of({"uri": LOCAL_URI, "name": "web1", "uuid": None})
