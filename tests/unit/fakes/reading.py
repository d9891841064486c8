# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reading half of the fake twin of C(LibvirtHost): what a fake machine tells."""

from __future__ import annotations

import contextlib
import typing as t
from xml.etree import ElementTree

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.interface import Folder
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Definition, DefinitionList, DomainState, DomainUse, Image
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import KEEPS_TPM_SINCE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, NotFound, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import GuestPlatform, HardwareFacts, Surroundings
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.fleet_cpus import CpuFeatures
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Checkpoint
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict

from .machine import FakeMachine
from .migration import FakeMigration
from .saved import read_image

if t.TYPE_CHECKING:
    from .fleet import FakeFleet


class FakeReader:
    """The calls of C(Host) that read. A connection that was lost stays lost, as libvirt's do."""

    def __init__(self, fleet: FakeFleet, machine: FakeMachine, uri: str) -> None:
        self.uri = uri
        self.is_closed = False
        self._fleet = fleet
        self._machine = machine
        self._outages = machine.outages
        self._told: t.Dict[str, domain_states.JobStats] = {}
        self._measured: t.Set[str] = set()

    @property
    def is_read_only(self) -> bool:
        return self._machine.is_read_only

    def is_connected(self) -> bool:
        return not self.is_closed and self._machine.answers and self._outages == self._machine.outages

    def host_id(self) -> t.Optional[str]:
        machine = self._there("host_id")
        return None if machine.is_read_only else machine.host_id

    def host_uuid(self) -> str:
        return self._there("host_uuid").host_uuid

    def read_hostname(self) -> str:
        return self._there("hostname").name

    def read_versions(self) -> t.Dict[str, int]:
        return dict(self._there("versions").versions)

    def read_memory(self) -> t.Dict[str, int]:
        machine = self._there("memory")
        used = sum(domain.memory_bytes for domain in machine.domains.values() if domain.active)
        return {"total_bytes": machine.total_bytes, "free_bytes": machine.total_bytes - used}

    def count_cpus(self) -> int:
        return self._there("cpus").cpus

    def emulator_uid(self) -> t.Optional[int]:
        self._there("emulator_uid")
        return 0

    def read_hardware(self) -> HardwareFacts:
        machine = self._there("hardware")
        return HardwareFacts("x86_64", tuple(range(machine.cpus)), (), (), None)

    def read_surroundings(self) -> Surroundings:
        self._there("surroundings")
        return Surroundings((), (), (), (), (), ())

    def list_definitions(self) -> DefinitionList:
        domains = self._there("roll").domains.values()
        return DefinitionList([Definition(domain.info(), ElementTree.fromstring(domain.live_definition or domain.xml())) for domain in domains])

    def list_states(self) -> t.List[DomainState]:
        return [
            {"uuid": one.uuid, "name": one.name, "active": one.active, "state": one.state, "reason": one.reason, "autostart": one.autostart}
            for one in self._there("census").domains.values()
        ]

    def list_use(self) -> t.List[DomainUse]:
        return [domain.use or DomainUse(domain.uuid, domain.name, 1) for domain in self._there("list_use").domains.values() if domain.active]

    def carry_padding(self, length: int) -> None:
        self._there("carry_padding").carried.append(length)

    def start_dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.List[str]:
        machine = self._there("start_dirty_rates")
        able = [uuid for uuid, domain in machine.domains.items() if domain.active and domain.view().job == domain_states.JOB_NONE]
        ready = [] if machine.is_read_only else [uuid for uuid in uuids if uuid in able]
        self._measured = (self._measured - {*uuids}) | {*ready}
        return ready

    def recent_dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.Dict[str, int]:
        return self.read_dirty_rates(uuids)

    def read_dirty_rates(self, uuids: t.Sequence[str]) -> t.Dict[str, int]:
        domains = self._there("read_dirty_rates").domains
        return {uuid: domains[uuid].dirty_rate_bytes for uuid in uuids if uuid in self._measured and uuid in domains and domains[uuid].active}

    def has_path(self, path: str) -> t.Optional[bool]:
        machine = self._there("has_path")
        return None if machine.is_read_only else machine.paths.get(path)

    def baseline_cpu(self, platform: GuestPlatform, cpus: t.Sequence[str]) -> CpuFeatures:
        """The features that all of the CPUs name; without one, they have nothing in common."""
        self._refuse_if_read_only("baseline_cpu")
        self._there("baseline_cpu")
        sets = [{feature.get("name", "") for feature in ElementTree.fromstring(cpu).findall("feature")} for cpu in cpus]
        common = set.intersection(*sets)
        if not common:
            raise Conflict("the CPUs are incompatible")
        return CpuFeatures("common", f"<cpu>{len(common)}</cpu>", tuple(sorted(common)), ())

    def compare_cpu(self, platform: GuestPlatform, cpu_xml: str) -> CpuVerdict:
        self._refuse_if_read_only("compare_cpu")
        missing = sorted(feature for feature in self._there("compare_cpu").lacking if feature in cpu_xml)
        return CpuVerdict(not missing, f"its CPU lacks {', '.join(missing)}" if missing else None)

    def list_presence(self) -> t.Dict[str, bool]:
        return {domain.uuid: domain.active for domain in self._there("roster").domains.values()}

    def list_domains(self) -> t.List[domain_states.DomainInfo]:
        return [domain.info() for domain in self._there("domains").domains.values()]

    def find_domain(self, name: t.Optional[str] = None, uuid: t.Optional[str] = None) -> domain_states.DomainInfo:
        for domain in self._there("find").domains.values():
            if (domain.uuid == uuid) if uuid else (domain.name == name):
                return domain.info()
        raise NotFound(f"Failed to look up domain {uuid or name!r} on {self.uri}.")

    def view_domain(self, uuid: str) -> domain_states.DomainView:
        domain = self._there("view").domains.get(uuid)
        return domain.view() if domain else domain_states.NOT_THERE

    def read_state(self, uuid: str) -> t.Tuple[str, str]:
        domain = self._there("state").domains.get(uuid)
        return (domain.state, domain.reason) if domain else (domain_states.SHUTOFF, "")

    def read_job(self, uuid: str) -> t.Optional[domain_states.JobStats]:
        migration = self._migration("job", uuid)
        return migration.stats() if migration else None

    def completed_job(self, uuid: str) -> t.Optional[domain_states.JobStats]:
        domain = self._there("completed_job").domains.get(uuid)
        if uuid in self._told:
            return self._told[uuid]
        return domain.completed if domain else None

    def is_incoming(self, uuid: str) -> bool:
        return self.view_domain(uuid).job == domain_states.JOB_INCOMING

    def bandwidth_mib(self, uuid: str) -> int:
        return self._there("bandwidth_mib").domain(uuid).bandwidth_mib

    def max_downtime_ms(self, uuid: str) -> int:
        return self._there("max_downtime_ms").domain(uuid).max_downtime_ms

    def read_definition(self, uuid: str) -> str:
        return self._there("read_definition").domain(uuid).xml()

    def read_whole_definition(self, uuid: str, persistent: bool) -> str:
        self._refuse_if_read_only("read_whole_definition")
        return self._there("read_whole_definition").domain(uuid).xml()

    def read_movable_definition(self, uuid: str, persistent: bool) -> str:
        self._refuse_if_read_only("read_movable_definition")
        domain = self._there("read_movable_definition").domain(uuid)
        if persistent and not domain.persistent:
            raise NotFound(f"Domain {uuid} is transient.")
        return domain.xml() if persistent else domain.live_definition or domain.xml()

    def iterate_definitions(self) -> t.Iterator[t.Tuple[str, str, str]]:
        for domain in self._there("iterate_definitions").domains.values():
            yield domain.uuid, domain.name, domain.xml()

    def find_uuid(self, name: str) -> t.Optional[str]:
        return next((domain.uuid for domain in self._there("find_uuid").domains.values() if domain.name == name), None)

    def list_emulators(self) -> t.List[str]:
        self._there("list_emulators")
        return ["/usr/bin/qemu-system-x86_64"]

    def list_images(self, uuid: str) -> t.List[Image]:
        disks = self._there("list_images").domain(uuid).disks
        return [Image(disk.target, disk.kind, disk.source, "raw", 0, 0, disk.shareable) for disk in disks if not disk.readonly]

    def users_of(self, path: str) -> t.List[str]:
        return [domain.name for domain in self._there("users_of").domains.values() if any(disk.source == path for disk in domain.disks)]

    @contextlib.contextmanager
    def open_folder(self, path: str) -> t.Iterator[Folder]:
        folders = self._there("open_folder").folders
        if path not in folders:
            raise NotFound(f"Failed to open the folder {path} on {self.uri}: the fake host does not have it.")
        folders[path].refresh_listing()
        yield folders[path]

    def read_saved_uuid(self, path: str) -> t.Optional[str]:
        self._there("read_saved_uuid")
        try:
            return read_image(path)["uuid"]
        except (OSError, ValueError, KeyError):
            return None

    def read_saved_definition(self, path: str) -> str:
        self._there("read_saved_definition")
        return read_image(path)["definition"]

    def saved_memory(self, name: str) -> t.Optional[str]:
        return self._there("saved_memory").saved_memory.get(name)

    def has_managed_save(self, uuid: str) -> bool:
        machine = self._there("has_managed_save")
        return machine.domain(uuid).name in machine.saved_memory

    def count_snapshots(self, uuid: str) -> t.Tuple[int, int]:
        self._there("count_snapshots").domain(uuid)
        return 0, 0

    def find_other_job(self, uuid: str) -> str:
        domain = self._there("find_other_job").domains.get(uuid)
        return domain.other_job if domain and domain.active else ""

    def list_checkpoints(self, uuid: str) -> t.Tuple[Checkpoint, ...]:
        return self._there("list_checkpoints").domain(uuid).checkpoints

    def keeps_tpm(self) -> bool:
        return self._there("keeps_tpm").versions["libvirt"] >= KEEPS_TPM_SINCE

    def on_poweroff(self, uuid: str) -> str:
        self._there("on_poweroff").domain(uuid)
        return "destroy"

    def _there(self, call: str) -> FakeMachine:
        """Return the machine if this connection still carries the call, and nothing planned against it."""
        self._fleet.before_call(self._machine, call)
        if self.is_closed or not self._machine.answers or self._outages != self._machine.outages:
            raise Unreachable(f"Failed to {call}: client socket is closed ({self.uri}).")
        if call in self._machine.refuse:
            raise self._machine.refuse[call]
        return self._machine

    def _refuse_if_read_only(self, call: str) -> None:
        if self._machine.is_read_only:
            raise Forbidden(f"Failed to {call}: operation forbidden: read only access prevents it (libvirt error 29).")

    def _migration(self, call: str, uuid: str) -> t.Optional[FakeMigration]:
        return self._fleet.migration_from(self._there(call), uuid)
