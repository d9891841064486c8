# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reports a libvirt host in one pass with as few calls as possible, because a host may have hundreds of domains; and the images of its domains."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing as t
from xml.etree import ElementTree

from .._model import domain_states
from .._model.errors import KvmfleetError, NotFound, Unreachable
from .._model.facts import GuestPlatform, HardwareFacts, Surroundings
from .._model.fleet_cpus import CpuFeatures
from .._model.libvirt_formats import parse_libvirt_xml
from .._model.watched_moves import CpuVerdict
from .connection import Opened, libvirt_errors
from .folders import LibvirtFolder, open_folder
from .hardware import compare_cpu, find_baseline_cpu, read_hardware, read_surroundings
from .host_paths import HostPaths
from .image_users import find_image_users
from .reading import LibvirtReader, parse_domain_xml, read_domain_info, state_words
from .values import Definition, DefinitionList, DomainUse, Image

if t.TYPE_CHECKING:
    import libvirt

# virConnectListAllDomainsFlags, virDomainStatsTypes, virConnectGetAllDomainStatsFlags.
_PERSISTENT, _WITH_SAVED_MEMORY, _AUTOSTART, _WITH_SNAPSHOT = 4, 256, 1024, 4096
_STATE, _CPU, _BALLOON, _INTERFACES, _BLOCK, _DIRTY_RATE = 1, 2, 4, 16, 32, 512
_NO_WAIT = 1 << 29
_ACTIVE = 1
_INACTIVE = 2
# virDomainDirtyRateStatus: measured.
_MEASURED = 2
_MIB = 1024**2
_PADDED_CPU = "<cpu><arch>x86_64</arch><model>qemu64</model>{}</cpu>"


class LibvirtReporter(LibvirtReader):
    """The calls of L(Host) that describe the whole host."""

    def __init__(self, uri: str, opened: Opened) -> None:
        super().__init__(uri, opened)
        self._hardware: t.Optional[HardwareFacts] = None
        self._paths = HostPaths(self._connection, uri)
        # The domains whose dirty rate is being measured, or was, by UUID.
        self._measured: t.Dict[str, libvirt.virDomain] = {}

    def read_hardware(self) -> HardwareFacts:
        if self._hardware is None:
            self._hardware = read_hardware(self._connection, self.uri, self._read_capabilities())
        return self._hardware

    def read_surroundings(self) -> Surroundings:
        return read_surroundings(self._connection, self.uri)

    def has_path(self, path: str) -> t.Optional[bool]:
        """Return whether the host has that file, folder or device; null if libvirt cannot determine it."""
        return self._paths.has_path(path)

    def compare_cpu(self, platform: GuestPlatform, cpu_xml: str) -> CpuVerdict:
        """Return whether the host can run a guest with that CPU; see L(hardware.compare_cpu)."""
        kinds = [kind for kind in self.read_hardware().platforms if (kind.arch, kind.virt_type) == (platform.arch, platform.virt_type)]
        able = next((kind.cpu.features or () for kind in kinds if kind.cpu), ())
        return compare_cpu(self._connection, self.uri, platform, cpu_xml, able)

    def baseline_cpu(self, platform: GuestPlatform, cpus: t.Sequence[str]) -> CpuFeatures:
        """Return the CPU that all of these have in common; see L(hardware.find_baseline_cpu)."""
        return find_baseline_cpu(self._connection, self.uri, platform, cpus)

    def list_definitions(self) -> DefinitionList:
        with libvirt_errors(f"list the domains of {self.uri}"):
            states = self._connection.getAllDomainStats(_STATE, _NO_WAIT)
            persistent, with_memory, autostart, with_snapshot = (
                {domain.UUIDString() for domain in self._connection.listAllDomains(flag)}
                for flag in (_PERSISTENT, _WITH_SAVED_MEMORY, _AUTOSTART, _WITH_SNAPSHOT)
            )
        roll = DefinitionList([])
        for domain, stats in states:
            uuid = domain.UUIDString()
            try:
                view = self._view_from_stats(domain, stats, uuid in persistent)
                read = self._read_definition(domain, view, uuid in autostart)
                roll.definitions.append(dataclasses.replace(read, has_snapshots=uuid in with_snapshot, has_saved_memory=uuid in with_memory))
            except NotFound:
                roll.vanished.append(domain.name())
        return roll

    def carry_padding(self, length: int) -> None:
        try:
            with libvirt_errors(f"send a query of {length} bytes to {self.uri}"):
                self._connection.compareCPU(_PADDED_CPU.format(" " * length), 0)
        except Unreachable:
            raise
        except KvmfleetError:
            # The answer does not matter: a host whose architecture has no such comparison has received the query, too.
            return

    def list_use(self) -> t.List[DomainUse]:
        with libvirt_errors(f"read what the domains of {self.uri} have used"):
            stats = self._connection.getAllDomainStats(_CPU | _BALLOON | _INTERFACES | _BLOCK, _NO_WAIT | _ACTIVE)
            return [describe_use(domain.UUIDString(), domain.name(), domain.ID(), found) for domain, found in stats]

    def start_dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.List[str]:
        for uuid in uuids:
            # An older measurement is not the one that was requested now.
            self._measured.pop(uuid, None)
            with contextlib.suppress(KvmfleetError), libvirt_errors(f"measure the dirty rate of domain {uuid} on {self.uri}"):
                domain = self._connection.lookupByUUIDString(uuid)
                # The call would wait 30 s for a domain with a job (docs/libvirt.md, "A domain with a job"). Bindings before 7.2 do not have it.
                if hasattr(domain, "startDirtyRateCalc") and self._job_of(domain) == domain_states.JOB_NONE:
                    domain.startDirtyRateCalc(seconds, 0)
                    self._measured[uuid] = domain
        return [uuid for uuid in uuids if uuid in self._measured]

    def read_dirty_rates(self, uuids: t.Sequence[str]) -> t.Dict[str, int]:
        return self._read_dirty_rates([self._measured[uuid] for uuid in uuids if uuid in self._measured], 0)

    def recent_dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.Dict[str, int]:
        domains = []
        for uuid in uuids:
            with contextlib.suppress(KvmfleetError), libvirt_errors(f"find domain {uuid} on {self.uri}"):
                domains.append(self._connection.lookupByUUIDString(uuid))
        # QEMU counts these seconds from the start of the host, as this clock does.
        return self._read_dirty_rates(domains, time.monotonic() - seconds)

    def _read_dirty_rates(self, domains: t.Sequence[libvirt.virDomain], since: float) -> t.Dict[str, int]:
        if not domains:
            return {}
        try:
            with libvirt_errors(f"read the dirty rates of {self.uri}"):
                stats = self._connection.domainListGetStats(domains, _DIRTY_RATE, _NO_WAIT)
        except NotFound:
            # One of them has stopped, or has left.
            return {}
        stats = [(domain, found) for domain, found in stats if found.get("dirtyrate.calc_start_time", 0) >= since]
        return {domain.UUIDString(): int(found["dirtyrate.megabytes_per_second"]) * _MIB for domain, found in stats if _is_measured(found)}

    def _view_from_stats(self, domain: libvirt.virDomain, stats: t.Mapping[str, int], persistent: bool) -> domain_states.DomainView:
        active = domain.ID() >= 0
        state, reason = state_words(stats.get("state.state", -1), stats.get("state.reason", -1))
        with libvirt_errors(f"read the job of domain {domain.name()} on {self.uri}"):
            job = self._job_of(domain) if active else domain_states.JOB_NONE
        return domain_states.DomainView(present=True, active=active, persistent=persistent, state=state, reason=reason, job=job)

    def _read_definition(self, domain: libvirt.virDomain, view: domain_states.DomainView, autostart: bool) -> Definition:
        known = domain_states.DomainInfo(domain.UUIDString(), domain.name(), view, view.persistent and autostart)
        try:
            # Of an active domain the plain definition is the live one, with the CPU that the guest really sees: a destination must provide this CPU.
            # The migratable one names the requested CPU, which may have more features than even its own host provided.
            with libvirt_errors(f"read the definition of domain {domain.name()} on {self.uri}"):
                root = parse_domain_xml(domain.XMLDesc(0))
                configuration = parse_domain_xml(domain.XMLDesc(_INACTIVE)) if hides_configuration(root) else None
            if configuration is not None:
                add_networks_of_devices(root, configuration)
            return Definition(dataclasses.replace(known, **read_domain_info(root)), root, configuration=configuration)
        except NotFound:
            raise
        except KvmfleetError as error:
            problem = f"Its definition could not be read: {error}"
        with libvirt_errors(f"read domain {domain.name()} of {self.uri}"):
            _state, memory_kib, _used, vcpus, _time = domain.info()
        return Definition(dataclasses.replace(known, memory_bytes=memory_kib * 1024, vcpus=vcpus), problem=problem)

    def list_images(self, uuid: str) -> t.List[Image]:
        with libvirt_errors(f"read the disks of domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            return [_describe_image(disk, domain) for disk in _list_disks(domain.XMLDesc()) if _is_written(disk)]

    def users_of(self, path: str) -> t.List[str]:
        return find_image_users(self._connection, path, self.uri, self.open_folder)

    def open_folder(self, path: str) -> t.ContextManager[LibvirtFolder]:
        return open_folder(self._connection, path, self.uri)


# Of the CPU that a running guest was given for host-model: the second one on s390x.
_CHECKS_OF_HOST_MODEL = ("full", "partial")


def hides_configuration(root: ElementTree.Element) -> bool:
    """Whether a live definition may name what the host has given the guest in place of what it asks for: a device of a network, or a CPU for host-model."""
    is_compared = any(cpu.get("check") in _CHECKS_OF_HOST_MODEL for cpu in root.findall("cpu[@mode='custom']"))
    is_given = is_compared or root.find("devices/interface[@type='hostdev']") is not None
    return is_given and bool(root.get("id"))


def add_networks_of_devices(root: ElementTree.Element, configuration: ElementTree.Element) -> None:
    """Name the libvirt network in each interface that is a device which the network has given the guest: a live definition has only the device."""
    sources = {_read_mac(interface): interface.find("source") for interface in configuration.findall("devices/interface[@type='network']")}
    for interface in root.findall("devices/interface[@type='hostdev']"):
        device, network = interface.find("source"), sources.get(_read_mac(interface))
        if device is not None and network is not None:
            device.attrib.update({key: value for key, value in network.attrib.items() if key in ("network", "portgroup")})


def _read_mac(interface: ElementTree.Element) -> str:
    mac = interface.find("mac")
    return mac.get("address", "").lower() if mac is not None else ""


def describe_use(uuid: str, name: str, number: int, stats: t.Mapping[str, t.Union[int, str]]) -> DomainUse:
    """Return what a domain has used, from libvirt's statistics of it. Figures that they lack are null.

    :arg number: libvirt's number of this start of the domain.
    """
    # What the guest could use without swapping; an older driver reports only what is unused.
    available = _read_figure(stats, "balloon.usable")
    available = _read_figure(stats, "balloon.unused") if available is None else available
    resident = _read_figure(stats, "balloon.rss")
    return DomainUse(
        uuid=uuid,
        name=name,
        id=number,
        cpu_ns=_read_figure(stats, "cpu.time"),
        network_bytes=_sum_figures(stats, "net", ("rx.bytes", "tx.bytes")),
        disk_bytes=_sum_figures(stats, "block", ("rd.bytes", "wr.bytes")),
        resident_mib=None if resident is None else resident // 1024,
        available_in_guest_mib=None if available is None else available // 1024,
        reported_at=_read_figure(stats, "balloon.last-update") or None,
    )


def _read_figure(stats: t.Mapping[str, t.Union[int, str]], key: str) -> t.Optional[int]:
    value = stats.get(key)
    return value if isinstance(value, int) and value >= 0 else None


def _sum_figures(stats: t.Mapping[str, t.Union[int, str]], kind: str, names: t.Sequence[str]) -> t.Optional[int]:
    """Return the sum over all devices of a kind; null if libvirt reported none of their figures although there are devices."""
    count = _read_figure(stats, f"{kind}.count")
    keys = [key for key in stats if key.startswith(f"{kind}.") and key.partition(".")[2].partition(".")[2] in names]
    return None if count is None or (count and not keys) else sum(_read_figure(stats, key) or 0 for key in keys)


def _is_measured(stats: t.Mapping[str, int]) -> bool:
    return stats.get("dirtyrate.calc_status") == _MEASURED and "dirtyrate.megabytes_per_second" in stats


def _list_disks(xml: str) -> t.List[ElementTree.Element]:
    return parse_libvirt_xml(xml, "a domain definition").findall("devices/disk")


def _is_written(disk: ElementTree.Element) -> bool:
    return disk.get("device", "disk") in ("disk", "lun") and disk.find("readonly") is None and disk.find("source") is not None


def _describe_image(disk: ElementTree.Element, domain: libvirt.virDomain) -> Image:
    source, driver, target = disk.find("source"), disk.find("driver"), disk.find("target")
    kind, name = disk.get("type", ""), target.get("dev", "") if target is not None else ""
    attributes = source.attrib if source is not None else {}
    # A block or network disk is never copied: its size does not matter.
    capacity, allocation = domain.blockInfo(name)[:2] if kind == "file" else (0, 0)
    return Image(
        target=name,
        kind=kind,
        path=next((attributes[key] for key in ("file", "dev", "dir", "volume", "name") if key in attributes), ""),
        format=driver.get("type", "raw") if driver is not None else "raw",
        capacity_bytes=capacity,
        allocation_bytes=allocation,
        shareable=disk.find("shareable") is not None,
        has_backing=disk.find("backingStore/source") is not None,
        backing=tuple(_list_backing_files(disk)),
        encrypted=disk.find("encryption") is not None or disk.find("source/encryption") is not None,
    )


def _list_backing_files(disk: ElementTree.Element) -> t.Iterator[str]:
    """Yield the paths of the files that libvirt has open below the image; empty for what is not a file."""
    below = disk.find("backingStore")
    while below is not None and below.find("source") is not None:
        yield below.find("source").get("file", "")  # type: ignore[union-attr]
        below = below.find("backingStore")
