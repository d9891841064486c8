# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fake twin of C(LibvirtHost): one connection to a fake machine, with libvirt's answers and refusals."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, InvalidState, NotFound, NotSupported, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.ports import Definition, Roll
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h

from .domain import MIB
from .machine import FakeMachine
from .migration import FakeMigration

if t.TYPE_CHECKING:
    from .fleet import FakeFleet

MAX_DOWNTIME_MS = 2_000_000


class FakeHost:
    """Implements C(GatheredHost) and C(SurveyedHost). A connection that was lost stays lost, as libvirt's do."""

    def __init__(self, fleet: FakeFleet, machine: FakeMachine, uri: str) -> None:
        self.uri = uri
        self.is_closed = False
        self._fleet = fleet
        self._machine = machine
        self._outages = machine.outages
        self._told: t.Dict[str, h.JobStats] = {}

    # -- reading -------------------------------------------------------------------------------------------------

    def answers(self) -> bool:
        return not self.is_closed and self._machine.answers and self._outages == self._machine.outages

    def host_id(self) -> t.Optional[str]:
        return self._there("host_id").host_id

    def host_uuid(self) -> str:
        return self._there("host_uuid").host_uuid

    def hostname(self) -> str:
        return self._there("hostname").name

    def versions(self) -> t.Dict[str, int]:
        return dict(self._there("versions").versions)

    def memory(self) -> t.Dict[str, int]:
        machine = self._there("memory")
        used = sum(domain.memory_bytes for domain in machine.domains.values() if domain.active)
        return {"total_bytes": machine.total_bytes, "free_bytes": machine.total_bytes - used}

    def cpus(self) -> int:
        return self._there("cpus").cpus

    def emulator_uid(self) -> t.Optional[int]:
        self._there("emulator_uid")
        return 0

    def hardware(self) -> t.Dict[str, t.Any]:
        machine = self._there("hardware")
        return {"arch": "x86_64", "cpu_ids": list(range(machine.cpus)), "numa_cells": [], "platforms": [], "host_cpu": None}

    def surroundings(self) -> t.Dict[str, t.Any]:
        self._there("surroundings")
        return {"pools": [], "networks": [], "devices": [], "net_devices": []}

    def roll(self) -> Roll:
        domains = self._there("roll").domains.values()
        return Roll([Definition(domain.info(), ElementTree.fromstring(domain.xml())) for domain in domains])

    def census(self) -> t.List[t.Dict[str, t.Any]]:
        domains = self._there("census").domains.values()
        keys = ("uuid", "name", "active", "state", "reason", "autostart")
        return [{key: getattr(domain, key) for key in keys} for domain in domains]

    def dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.Dict[str, int]:
        machine = self._there("dirty_rates")
        return {uuid: machine.domain(uuid).dirty_rate_bytes // MIB for uuid in uuids}

    def has_path(self, path: str) -> t.Optional[bool]:
        return self._there("has_path").paths.get(path)

    def compare_cpu(self, platform: t.Mapping[str, t.Any], cpu_xml: str) -> t.Dict[str, t.Any]:
        missing = sorted(feature for feature in self._there("compare_cpu").lacking if feature in cpu_xml)
        return {"passed": not missing, "reason": f"its CPU lacks {', '.join(missing)}" if missing else None}

    def roster(self) -> t.List[t.Dict[str, t.Any]]:
        return [
            {"uuid": domain.uuid, "name": domain.name, "active": domain.active, "memory_bytes": domain.memory_bytes, "vcpus": domain.vcpus}
            for domain in self._there("roster").domains.values()
        ]

    def domains(self) -> t.List[h.DomainInfo]:
        return [domain.info() for domain in self._there("domains").domains.values()]

    def find(self, name: t.Optional[str] = None, uuid: t.Optional[str] = None) -> h.DomainInfo:
        for domain in self._there("find").domains.values():
            if (domain.uuid == uuid) if uuid else (domain.name == name):
                return domain.info()
        raise NotFound(f"Failed to look up domain {uuid or name!r} on {self.uri}.")

    def view(self, uuid: str) -> h.GuestView:
        domain = self._there("view").domains.get(uuid)
        return domain.view() if domain else h.NOT_THERE

    def state(self, uuid: str) -> t.Tuple[str, str]:
        domain = self._there("state").domains.get(uuid)
        return (domain.state, domain.reason) if domain else (h.SHUTOFF, "")

    def job(self, uuid: str) -> t.Optional[h.JobStats]:
        migration = self._migration("job", uuid)
        return migration.stats() if migration else None

    def completed_job(self, uuid: str) -> t.Optional[h.JobStats]:
        domain = self._there("completed_job").domains.get(uuid)
        if uuid in self._told:
            return self._told[uuid]
        return domain.completed if domain else None

    def incoming_from(self, uuid: str) -> bool:
        return self.view(uuid).job == h.JOB_INCOMING

    def max_downtime_ms(self, uuid: str) -> int:
        return self._there("max_downtime_ms").domain(uuid).max_downtime_ms

    # -- acting --------------------------------------------------------------------------------------------------

    def migrate(self, uuid: str, destination_uri: str, flags: t.Sequence[str], parameters: t.Mapping[str, t.Any]) -> None:
        machine = self._there("migrate")
        machine.calls.append(f"migrate {uuid}")
        migration = self._fleet.begin(machine, uuid, destination_uri, flags, parameters)
        self._fleet.wait(migration)
        if migration.error is not None:
            raise migration.error

    def abort(self, uuid: str) -> None:
        machine = self._act("abort", uuid)
        machine.domain(uuid)
        migration = self._fleet.migration_from(machine, uuid)
        if migration is None:
            raise InvalidState(f"Failed to abort the migration of domain {uuid}: no job is active.")
        if migration.is_post_copy:
            raise NotSupported(f"Failed to abort the migration of domain {uuid}: it is in post-copy.")
        migration.cancel()

    def set_max_downtime_ms(self, uuid: str, milliseconds: int) -> None:
        domain = self._act("set_max_downtime_ms", uuid, milliseconds).domain(uuid)
        if not domain.active:
            raise InvalidState(f"Failed to set the downtime of domain {uuid}: it is not running.")
        if not 0 <= milliseconds <= MAX_DOWNTIME_MS:
            raise Internal(f"Failed to set the downtime of domain {uuid} to {milliseconds}.")
        domain.max_downtime_ms = milliseconds

    def set_bandwidth_mib(self, uuid: str, mib: int) -> None:
        machine = self._act("set_bandwidth_mib", uuid, mib)
        if not machine.domain(uuid).active:
            raise InvalidState(f"Failed to set the bandwidth of domain {uuid}: it is not running.")
        migration = self._fleet.migration_from(machine, uuid)
        if migration is not None:
            migration.cap_bytes = mib * MIB

    def start_post_copy(self, uuid: str) -> None:
        self._outgoing("start_post_copy", uuid).switch()

    def pause_post_copy(self, uuid: str) -> None:
        migration = self._outgoing("pause_post_copy", uuid)
        if not migration.is_post_copy:
            raise InvalidState(f"Failed to pause the post-copy migration of domain {uuid}: its job is not in post-copy.")
        migration.break_post_copy()

    def suspend(self, uuid: str) -> None:
        machine = self._act("suspend", uuid)
        domain = machine.domain(uuid)
        if domain.job == h.JOB_INCOMING:
            raise AssertionError(f"suspend of domain {uuid}, which is being received: libvirt would block, and do it later")
        if not domain.active:
            raise InvalidState(f"Failed to suspend domain {uuid}: it is not running.")
        migration = self._fleet.migration_from(machine, uuid)
        if domain.state == h.RUNNING:
            domain.enter(h.PAUSED, "user") if migration is None else migration.suspend()

    def listen(self, uuid: str) -> None:
        self._there("listen").listeners.append(self._hear)

    def listen_for_arrivals(self, arrived: t.Callable[[str], None]) -> None:
        def hear(uuid: str) -> None:
            if self.answers():
                arrived(uuid)

        self._there("listen_for_arrivals").arrival_listeners.append(hear)

    def resume(self, uuid: str) -> None:
        domain = self._act("resume", uuid).domain(uuid)
        if domain.job != h.JOB_NONE:
            raise AssertionError(f"resume of domain {uuid}, which has a job: libvirt would block, and do it later")
        if not domain.active:
            raise InvalidState(f"Failed to resume domain {uuid}: it is not running.")
        domain.enter(h.RUNNING, "unpaused")

    def destroy(self, uuid: str) -> None:
        machine = self._act("destroy", uuid)
        domain = machine.domain(uuid)
        if not domain.active:
            raise InvalidState(f"Failed to destroy domain {uuid}: it is not running.")
        domain.enter(h.SHUTOFF, "destroyed")
        if not domain.persistent:
            machine.remove(uuid)

    def undefine(self, uuid: str) -> None:
        machine = self._act("undefine", uuid)
        domain = machine.domains.get(uuid)
        if domain is not None and not domain.active:
            machine.remove(uuid)

    def set_autostart(self, uuid: str, autostart: bool) -> None:
        domain = self._act("set_autostart", uuid, autostart).domain(uuid)
        if not domain.persistent:
            raise InvalidState(f"Failed to set autostart of domain {uuid}: it is transient.")
        domain.autostart = autostart

    def close(self) -> None:
        self.is_closed = True

    # -- inside --------------------------------------------------------------------------------------------------

    def _there(self, call: str) -> FakeMachine:
        """Return the machine if this connection still carries the call, and nothing planned against it."""
        self._fleet.before_call(self._machine, call)
        if self.is_closed or not self._machine.answers or self._outages != self._machine.outages:
            raise Unreachable(f"Failed to {call}: client socket is closed ({self.uri}).")
        if call in self._machine.refuse:
            raise self._machine.refuse[call]
        return self._machine

    def _act(self, call: str, *arguments: object) -> FakeMachine:
        machine = self._there(call)
        machine.calls.append(" ".join([call, *map(str, arguments)]))
        return machine

    def _hear(self, uuid: str, stats: h.JobStats) -> None:
        if not self.is_closed and self._outages == self._machine.outages:
            self._told[uuid] = stats

    def _outgoing(self, call: str, uuid: str) -> FakeMigration:
        machine = self._act(call, uuid)
        machine.domain(uuid)
        migration = self._fleet.migration_from(machine, uuid)
        if migration is None:
            raise InvalidState(f"Failed to {call} domain {uuid}: it is not being migrated.")
        return migration

    def _migration(self, call: str, uuid: str) -> t.Optional[FakeMigration]:
        return self._fleet.migration_from(self._there(call), uuid)
