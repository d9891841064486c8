# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reads a libvirt host and its domains: identity, versions, memory, states, jobs, figures, and definitions."""

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid as uuid_module
from xml.etree import ElementTree

from .._host_identity import HOST_ID_FILE
from .._model import domain_states
from .._model.definition_files import source_of
from .._model.errors import InvalidState, KvmfleetError, NotFound, NotSupported
from .._model.libvirt_formats import parse_libvirt_xml, parse_size, parse_vcpu_count
from .._model.policy_documents import read_policy_element
from .connection import Opened, libvirt_binding, libvirt_errors, translate_error
from .folders import open_folder
from .values import Definition, DomainState

if t.TYPE_CHECKING:
    import libvirt

# virDomainState; in any other state, the collection does not act.
_STATES = {1: domain_states.RUNNING, 2: domain_states.RUNNING, 3: domain_states.PAUSED, 5: domain_states.SHUTOFF, 6: domain_states.CRASHED}

# What virsh calls the other states, as the reason: a message with "other" alone helps nobody.
_OTHER_STATES = {4: "in shutdown", 7: "pmsuspended"}

# virDomain{Running,Paused,Shutoff,Crashed}Reason, in virsh's words.
_REASONS: t.Dict[int, t.Dict[int, str]] = {
    1: {1: "booted", 2: "migrated", 3: "restored", 4: "from snapshot", 5: "unpaused", 6: "migration canceled", 7: "save canceled", 8: "event wakeup",
        9: "crashed", 10: domain_states.POST_COPY, 11: domain_states.POST_COPY_FAILED},
    3: {1: "user", 2: domain_states.MIGRATION, 3: "saving", 4: "dumping", 5: "I/O error", 6: "watchdog", 7: "from snapshot", 8: "shutting down",
        9: "creating snapshot", 10: "crashed", 11: domain_states.STARTING_UP, 12: domain_states.POST_COPY, 13: domain_states.POST_COPY_FAILED, 14: "API error"},
    5: {1: "shutdown", 2: "destroyed", 3: "crashed", 4: "migrated", 5: "saved", 6: "failed", 7: "from snapshot", 8: "daemon"},
    6: {1: "panicked"},
}  # fmt: skip

_JOB_OPERATIONS = {4: domain_states.JOB_INCOMING, 5: domain_states.JOB_OUTGOING}
_JOB_UNDER_WAY = (1, 2)


class DefinedDomain(t.TypedDict):
    """The fields of L(DomainInfo) that a definition contains."""

    memory_bytes: int
    vcpus: int
    disks: t.Tuple[domain_states.Disk, ...]
    has_nvram: bool
    has_tpm: bool
    policy_xml: str


def state_words(state: int, reason: int) -> t.Tuple[str, str]:
    """Return libvirt's state and reason numbers as words."""
    return _STATES.get(state, domain_states.OTHER_STATE), _OTHER_STATES.get(state, _REASONS.get(state, {}).get(reason, ""))


def job_words(stats: t.Mapping[str, int]) -> str:
    """Return the kind of job in libvirt's statistics."""
    if stats.get("type") not in _JOB_UNDER_WAY:
        return domain_states.JOB_NONE
    return _JOB_OPERATIONS.get(stats.get("operation", 0), domain_states.JOB_OTHER)


def job_stats(stats: t.Mapping[str, int]) -> domain_states.JobStats:
    """Return libvirt's job statistics in our names and units (bytes, bytes a second, milliseconds)."""
    page = stats.get("memory_page_size", 4096)
    return domain_states.JobStats(
        elapsed_ms=stats.get("time_elapsed", 0),
        downtime_ms=stats.get("downtime"),
        setup_ms=stats.get("setup_time"),
        data_processed_bytes=stats.get("data_processed", 0),
        memory_total_bytes=stats.get("memory_total", 0),
        memory_processed_bytes=stats.get("memory_processed", 0),
        memory_remaining_bytes=stats.get("memory_remaining", 0),
        disk_total_bytes=stats.get("disk_total", 0),
        disk_processed_bytes=stats.get("disk_processed", 0),
        disk_remaining_bytes=stats.get("disk_remaining", 0),
        bandwidth_bytes=stats.get("memory_bps", 0),
        dirty_rate_bytes=stats.get("memory_dirty_rate", 0) * page,
        iteration=stats.get("memory_iteration", 0),
        throttle_percent=stats.get("auto_converge_throttle", 0),
    )


def parse_definition(xml: str) -> DefinedDomain:
    """Return the keys of L(DomainInfo) that the XML of a domain contains. The XML is libvirt's own, never a user's file."""
    return read_domain_info(parse_domain_xml(xml))


def read_domain_info(root: ElementTree.Element) -> DefinedDomain:
    """Return the keys of L(DomainInfo) that the definition of a domain contains."""
    memory, vcpu = root.find("memory"), root.find("vcpu")
    return {
        "memory_bytes": parse_size(memory.text, memory.get("unit")) if memory is not None else 0,
        # Further ones may be plugged in later; until then, they take no time of the host.
        "vcpus": parse_vcpu_count(vcpu.get("current") or vcpu.text if vcpu is not None else None, 1),
        "disks": tuple(_read_disk(element) for element in root.findall("devices/disk")),
        "has_nvram": root.find("os/nvram") is not None,
        "has_tpm": root.find("devices/tpm/backend[@type='emulator']") is not None,
        "policy_xml": read_policy_element(root),
    }


def replace_definition(info: domain_states.DomainInfo, root: ElementTree.Element) -> Definition:
    """Return a domain, in its present state, with that definition in place of the one that it was read with."""
    replaced = domain_states.DomainInfo(uuid=info.uuid, name=info.name, view=info.view, autostart=info.autostart, **read_domain_info(root))
    return Definition(replaced, root)


def parse_domain_xml(xml: str) -> ElementTree.Element:
    """Return the parsed XML of a domain."""
    return parse_libvirt_xml(xml, "a domain definition")


def _read_disk(element: ElementTree.Element) -> domain_states.Disk:
    target = element.find("target")
    source = element.find("source")
    attributes = source.attrib if source is not None else {}
    where = next((attributes[key] for key in ("file", "dev", "name", "volume", "dir") if key in attributes), "") or source_of(source)
    return domain_states.Disk(
        target=target.get("dev", "") if target is not None else "",
        kind=element.get("type", ""),
        source=where,
        # A CD-ROM is read-only without the element; a floppy is not.
        readonly=element.find("readonly") is not None or element.get("device") == "cdrom",
        shareable=element.find("shareable") is not None,
    )


# virConnectListAllDomainsFlags, virDomainStatsTypes, virConnectGetAllDomainStatsFlags.
_AUTOSTART = 1024
_STATE_STATS, _NO_WAIT = 1, 1 << 29


class LibvirtReader:
    """The calls of L(Host) that read, over one connection."""

    def __init__(self, uri: str, opened: Opened) -> None:
        self.uri = uri
        self.is_read_only = opened.is_read_only
        self._host_capabilities: t.Optional[ElementTree.Element] = None
        self._connection = opened.connection

    def is_connected(self) -> bool:
        with libvirt_errors(f"ask for the connection to {self.uri}"):
            return bool(self._connection.isAlive())

    def host_uuid(self) -> str:
        return self._read_capabilities().findtext("host/uuid") or ""

    def host_id(self) -> t.Optional[str]:
        """Return the ID of the host from its file; null if the file does not exist or libvirt cannot read it."""
        folder, name = os.path.split(HOST_ID_FILE)
        try:
            with open_folder(self._connection, folder, self.uri) as opened:
                return str(uuid_module.UUID(opened.read_piece(name).decode("ascii").strip()))
        except (KvmfleetError, ValueError):
            return None

    def emulator_uid(self) -> t.Optional[int]:
        """Return the user ID that QEMU runs as, null if libvirt does not report it."""
        for model in self._read_capabilities().findall("host/secmodel"):
            label = model.findtext("baselabel[@type='kvm']") or model.findtext("baselabel") or ""
            uid = label.partition(":")[0].lstrip("+")
            if model.findtext("model") == "dac" and uid.isdecimal():
                return int(uid)
        return None

    def read_hostname(self) -> str:
        with libvirt_errors(f"read the host name of {self.uri}"):
            return str(self._connection.getHostname())

    def read_versions(self) -> t.Dict[str, int]:
        with libvirt_errors(f"read the versions of {self.uri}"):
            return {"libvirt": self._connection.getLibVersion(), "hypervisor": self._connection.getVersion()}

    def find_domain(self, name: t.Optional[str] = None, uuid: t.Optional[str] = None) -> domain_states.DomainInfo:
        wanted = uuid or name
        with libvirt_errors(f"look up domain {wanted!r} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid) if uuid else self._connection.lookupByName(name)
            return self._read_info(domain)

    def list_domains(self) -> t.List[domain_states.DomainInfo]:
        """Return every domain of the host, defined or active. A domain that disappears in the meantime is omitted."""
        infos = []
        for domain in self._all_domains():
            with contextlib.suppress(NotFound), libvirt_errors(f"read a domain of {self.uri}"):
                infos.append(self._read_info(domain))
        return infos

    def list_presence(self) -> t.Dict[str, bool]:
        return {domain.UUIDString(): domain.ID() >= 0 for domain in self._all_domains()}

    def list_states(self) -> t.List[DomainState]:
        with libvirt_errors(f"list the domains of {self.uri}"):
            states = self._connection.getAllDomainStats(_STATE_STATS, _NO_WAIT)
            autostart = {domain.UUIDString() for domain in self._connection.listAllDomains(_AUTOSTART)}
        return [self._describe_state(domain, stats, autostart) for domain, stats in states]

    def read_memory(self) -> t.Dict[str, int]:
        """Return C(total_bytes) and C(free_bytes) of the host (free: what the kernel could give at once, caches not counted)."""
        with libvirt_errors(f"read the memory of {self.uri}"):
            total = self._connection.getInfo()[1] * 1024**2
            stats = self._connection.getMemoryStats(-1)
        return {"total_bytes": stats.get("total", total // 1024) * 1024, "free_bytes": stats.get("free", 0) * 1024}

    def count_cpus(self) -> int:
        """Return the number of the host's active CPUs."""
        with libvirt_errors(f"read the CPUs of {self.uri}"):
            return int(self._connection.getInfo()[2])

    def view_domain(self, uuid: str) -> domain_states.DomainView:
        try:
            with libvirt_errors(f"ask {self.uri} for domain {uuid}"):
                return self._read_view(self._connection.lookupByUUIDString(uuid))
        except NotFound:
            return domain_states.NOT_THERE

    def read_state(self, uuid: str) -> t.Tuple[str, str]:
        try:
            with libvirt_errors(f"ask {self.uri} for the state of domain {uuid}"):
                return state_words(*self._connection.lookupByUUIDString(uuid).state()[:2])
        except NotFound:
            return domain_states.SHUTOFF, ""

    def close(self) -> None:
        with contextlib.suppress(libvirt_binding().libvirtError):
            self._connection.close()

    def _describe_state(self, domain: libvirt.virDomain, stats: t.Mapping[str, int], autostart: t.Set[str]) -> DomainState:
        uuid = domain.UUIDString()
        state, reason = state_words(stats.get("state.state", -1), stats.get("state.reason", -1))
        return {"uuid": uuid, "name": domain.name(), "active": domain.ID() >= 0, "state": state, "reason": reason, "autostart": uuid in autostart}

    def _all_domains(self) -> t.List[libvirt.virDomain]:
        with libvirt_errors(f"list the domains of {self.uri}"):
            return self._connection.listAllDomains()

    def _read_capabilities(self) -> ElementTree.Element:
        if self._host_capabilities is None:
            with libvirt_errors(f"read the capabilities of {self.uri}"):
                self._host_capabilities = parse_libvirt_xml(self._connection.getCapabilities(), "capabilities")
        return self._host_capabilities

    def _look_up_domain(self, uuid: str, attempt: str) -> libvirt.virDomain:
        with libvirt_errors(f"{attempt}: find domain {uuid} on {self.uri}"):
            return self._connection.lookupByUUIDString(uuid)

    def _read_info(self, domain: libvirt.virDomain) -> domain_states.DomainInfo:
        persistent = bool(domain.isPersistent())
        return domain_states.DomainInfo(
            uuid=domain.UUIDString(),
            name=domain.name(),
            view=self._read_view(domain),
            autostart=persistent and bool(domain.autostart()),
            **parse_definition(domain.XMLDesc(0)),
        )

    def _read_view(self, domain: libvirt.virDomain) -> domain_states.DomainView:
        state, reason = state_words(*domain.state()[:2])
        active = bool(domain.isActive())
        return domain_states.DomainView(
            present=True,
            active=active,
            persistent=bool(domain.isPersistent()),
            state=state,
            reason=reason,
            job=self._job_of(domain) if active else domain_states.JOB_NONE,
        )

    def _job_of(self, domain: libvirt.virDomain) -> str:
        try:
            return job_words(domain.jobStats())
        except libvirt_binding().libvirtError as error:
            # The destination refuses statistics of what it is receiving; that refusal is the answer.
            if isinstance(translate_error(error, ""), NotSupported):
                return domain_states.JOB_INCOMING
            if isinstance(translate_error(error, ""), (InvalidState, NotFound)):
                return domain_states.JOB_NONE
            raise
