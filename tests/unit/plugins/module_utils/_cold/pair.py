# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two fake hosts and a domain that moves cold between them. Its process can be killed before any call to a host and at each side of any step."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import mover as mover_module
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.hosts import MoveHosts
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.journal import ColdJournal
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.mover import ColdMover
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.quarantine import Quarantine
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import Mount
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states as ds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cold_moves import ColdAnswer, ColdOrder
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import SAVE, Before, ColdMove
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import Renaming, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Watcher
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import FakeDomain
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost
from ansible_collections.kvmfleet.migration.tests.unit.fakes.machine import FakeMachine
from ansible_collections.kvmfleet.migration.tests.unit.fakes.saved import read_image

# What the control node orders for a paused guest.
FLAGS = ("LIVE", "PEER2PEER", "ABORT_ON_ERROR", "PAUSED")
THERE = "qemu+tcp://kvm2/system"
VARIABLES = b"boot entries of web1"
INTERFACE = "<devices><interface type='bridge'><source bridge='br0'/></interface></devices>"


class Killed(BaseException):
    """The process of a move was killed."""


class Pair:
    """C(kvm1) with the domain, and C(kvm2). C(die_at) is the moment at which the process of the next move is killed; moments are counted in C(moment)."""

    def __init__(
        self,
        folder: pathlib.Path,
        monkeypatch: pytest.MonkeyPatch,
        method: str,
        state: str = ds.RUNNING,
        autostart: bool = True,
        start: bool = False,
        saved: str | None = None,
        renamed: bool = False,
    ) -> None:
        self.fleet = FakeFleet("kvm1", "kvm2")
        self.folder = folder
        self.shared = folder / "shared"
        self.moment = 0
        self.die_at: int | None = None
        self.on_moment: t.Callable[[int], None] = lambda moment: None
        self.executed: list[str] = []
        for name in ("shared", "run", "kvm1", "kvm2", "kvm1/save", "kvm2/save"):
            (folder / name).mkdir()
        for machine in self.fleet.machines.values():
            machine.save_folder = str(folder / machine.name / "save")
        self.variables = folder / "kvm1/web1_VARS.fd"
        self.variables.write_bytes(VARIABLES)
        self.renaming = self._make_renaming() if renamed else ABSENT
        # The folder that the destination calls by another name is its own too.
        self.fleet.destination.folders[str(folder / ("kvm2" if renamed else "kvm1"))] = DirectoryFolder(folder / "kvm2")
        self.fleet.destination.folders[str(self.shared)] = DirectoryFolder(self.shared)
        self.guest = self.fleet.guest(state=state, autostart=autostart, definition=self._definition())
        self.guest.reason = "booted" if self.guest.active else "shutdown"
        self.fleet.before_call = lambda machine, call: self._pass_moment()
        self.fleet.on_begin = lambda migration: migration.complete()
        self.memory = self._save_guest(saved) if saved else None
        self.record = self._make_record(method, start, saved)
        self.answers: list[ColdAnswer] = []
        monkeypatch.setattr(mover_module, "read_mounts", lambda: [Mount(str(folder), "ext4", "/dev/vda")])
        monkeypatch.setattr(mover_module, "read_host_id", lambda: None)

    @property
    def source(self) -> FakeMachine:
        return self.fleet.source

    @property
    def destination(self) -> FakeMachine:
        return self.fleet.destination

    def run(self, die_at: int | None = None) -> ColdAnswer | None:
        """Let a process carry the move out, or settle it if there was one before; None if it was killed."""
        adopt = self.moment > 0
        self.moment, self.die_at = 0, die_at
        journal = ColdJournal(self.record, Watcher(4711, 1, self.record.record_id), adopt, str(self.folder / "run"))
        order = ColdOrder(self.record, THERE, adopt, FLAGS if self.memory else ABSENT)
        quarantine = Quarantine(self.record.record_id, str(self.folder / "quarantine"))
        clock = self.fleet.clock
        hosts = MoveHosts(self.record, LOCAL_URI, THERE, self.fleet.open, clock, clock.sleep)
        mover = ColdMover(order, journal, hosts, str(self.folder / "run"), quarantine, clock, clock.sleep, lambda name: self._pass_moment())
        try:
            answer = mover.carry_out()
        except Killed:
            return None
        finally:
            self.moment = max(1, self.moment)
        self.answers.append(answer)
        if answer.record is not None and answer.record.status != s.ERROR:
            self.record = answer.record
        return answer

    def forget_state(self) -> None:
        """Lose the state file, as when the source boots."""
        for path in (self.folder / "run").glob("*.json"):
            path.unlink()

    def cut_power(self) -> None:
        """Let the source lose its power and boot again: its guests have ended, libvirt does not know why they are off, and starts those with autostart."""
        self.forget_state()
        for domain in self.source.domains.values():
            domain.enter(ds.SHUTOFF, "")
            if domain.autostart:
                self._quietly(lambda host, uuid=domain.uuid: host.start_domain(uuid))

    def at(self, machine: FakeMachine) -> FakeDomain | None:
        return machine.domains.get(UUID)

    def images(self) -> list[str]:
        return sorted(path.name.partition(".save")[2] for path in self.shared.iterdir())

    def saved(self) -> dict[str, list[str]]:
        """Return the files next to the managed-save images of each host."""
        return {name: sorted(path.name for path in (self.folder / name / "save").iterdir()) for name in self.fleet.machines}

    def places(self) -> dict[str, str]:
        """Return the hosts that have a definition, with the state of the domain there."""
        found = {machine.name: self.at(machine) for machine in self.fleet.machines.values()}
        return {name: domain.state for name, domain in found.items() if domain is not None}

    def check(self) -> None:
        """Check what holds at every moment: one running guest at most, from memory that never ran before, a definition, and one autostart at most."""
        domains = [domain for domain in map(self.at, self.fleet.machines.values()) if domain is not None]
        assert domains, "the definition is lost"
        assert sum(domain.state == ds.RUNNING for domain in domains) <= 1, "two guests run"
        assert sum(domain.autostart for domain in domains) <= 1, "two hosts start the domain"
        if self.memory:
            assert self.memory in {*self._list_saved(), *(domain.restored_from for domain in domains if domain.active)}, "the memory is lost"
        for domain in domains:
            if domain.state == ds.RUNNING and domain.restored_from and domain.restored_from not in self.executed[-1:]:
                assert domain.restored_from not in self.executed, "memory ran twice"
                self.executed.append(domain.restored_from)

    def _list_saved(self) -> list[str]:
        return [read_image(str(path))["image"] for name in self.fleet.machines for path in (self.folder / name / "save").iterdir()]

    def _save_guest(self, resumes_as: str) -> str:
        """Give the domain a managed-save image, and return what tells its memory from others."""
        self.guest.enter(ds.RUNNING, "booted")
        self._quietly(lambda host: host.save_managed(UUID, resumes_as))
        return read_image(self.source.saved_memory["web1"])["image"]

    def _quietly(self, act: t.Callable[[FakeHost], None]) -> None:
        """Let something happen on the source at which no process is killed."""
        self.fleet.before_call, before = (lambda machine, call: None), self.fleet.before_call
        act(self.fleet.open(LOCAL_URI))
        self.fleet.before_call = before

    def _pass_moment(self) -> None:
        self.check()
        self.moment += 1
        self.on_moment(self.moment)
        if self.moment == self.die_at:
            raise Killed

    def _definition(self) -> str:
        system = f"<os><type>hvm</type><nvram>{self.variables}</nvram></os>"
        return f"<domain type='kvm'><name>web1</name><uuid>{UUID}</uuid>{system}<metadata><a>b</a></metadata>{INTERFACE}</domain>"

    def _make_renaming(self) -> Renaming:
        here, there = ({"state": str(self.folder / name)} for name in ("kvm1", "kvm2"))
        return Renaming("kvm1", "kvm2", ResourceMaps(bridges={"prod": "br0"}, images=here), ResourceMaps(bridges={"prod": "br7"}, images=there))

    def _make_record(self, method: str, start: bool, saved: str | None) -> MoveRecord:
        hosts = [HostRef(machine.name, None, machine.host_uuid) for machine in (self.source, self.destination)]
        record = new_record(s.COLD_MIGRATION, DomainRef(UUID, "web1"), hosts[0], hosts[1], {}, "root@control pid 1")
        image = {"image": str(self.shared / f"kvmfleet-{record.id}.save")} if method == SAVE else {}
        if saved:
            image = {"image": str(self.folder / f"kvm1/save/kvmfleet-{record.id}.memory"), "resumes_as": saved}
        before = Before(state=self.guest.state, persistent=True, autostart=self.guest.autostart, at_destination=False)
        record = dataclasses.replace(
            record, method=method, cold=ColdMove(start, shutdown_wait_seconds=30, renaming=self.renaming, **image), before=before, generation=1
        )
        for status in (s.SCHEDULED, s.QUEUED, s.RUNNING):
            record = record.advance(status, "root@control pid 1")
        return record
