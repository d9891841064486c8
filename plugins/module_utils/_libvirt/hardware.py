# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The hardware of a host as libvirt describes it, and the resources that domains use: CPUs, NUMA cells, guest platforms, pools, networks, and devices."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import typing as t
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from .._model.codec import ABSENT
from .._model.definition_files import POOLS_OF_UNITS
from .._model.errors import Conflict, KvmfleetError
from .._model.facts import CpuFacts, GuestPlatform, HardwareFacts, HostDevice, HugepagePool, LibvirtNetwork, NumaCell, Platform, StoragePool, Surroundings
from .._model.fleet_cpus import CpuFeatures
from .._model.libvirt_formats import format_pci_address, parse_libvirt_xml, parse_number, read_vlan
from .._model.watched_moves import CpuVerdict
from .connection import libvirt_binding, libvirt_errors
from .firmware import read_firmware

if t.TYPE_CHECKING:
    import libvirt

_REQUIRED = ("require", "force")
_ABSENT = ("disable", "forbid")
_EXPAND_FEATURES = 1
_FAIL_INCOMPATIBLE = 1

# Emulator, architecture, machine type and kind of a guest, as libvirt's calls about CPUs begin.
_GuestKind = t.Tuple[None, str, t.Optional[str], str]


def read_guest_cpu(connection: libvirt.virConnect, uri: str, platform: Platform) -> t.Optional[CpuFacts]:
    """Return the maximum CPU that the host can give a guest of that platform; null if libvirt does not know."""
    try:
        with libvirt_errors(f"read the domain capabilities of {uri}"):
            xml = connection.getDomainCapabilities(platform.emulator or None, platform.arch, None, platform.virt_type, 0)
        capabilities = parse_libvirt_xml(xml, "domain capabilities")
        model = _find_host_model(capabilities)
        return None if model is None else _expand_model(connection, uri, platform, model, _list_usable_models(capabilities))
    except KvmfleetError:
        if not connection.isAlive():
            raise
        return None


def read_host_cpu(connection: libvirt.virConnect, uri: str, capabilities: ElementTree.Element) -> t.Optional[CpuFacts]:
    """Return the host's own CPU."""
    cpu = capabilities.find("host/cpu")
    if cpu is None:
        return None
    listed = {feature.get("name", "") for feature in cpu.findall("feature")}
    try:
        with libvirt_errors(f"read the CPU of {uri}"):
            expanded = connection.baselineCPU([ElementTree.tostring(cpu, encoding="unicode")], _EXPAND_FEATURES)
        listed |= _list_features(parse_libvirt_xml(expanded, "a CPU"), _REQUIRED)
    except KvmfleetError:
        if not connection.isAlive():
            raise
    microcode = cpu.find("microcode")
    version = microcode.get("version", "") if microcode is not None else ""
    return CpuFacts(
        model=cpu.findtext("model"),
        vendor=cpu.findtext("vendor"),
        features=tuple(sorted(listed)),
        microcode=parse_number(version) if version.isdecimal() else None,
    )


def compare_cpu(connection: libvirt.virConnect, uri: str, platform: GuestPlatform, cpu_xml: str, able: t.Sequence[str]) -> CpuVerdict:
    """Return whether the host can run a guest with that CPU, by libvirt's own comparison, the missing features named.

    :arg able: every feature that the host can give such a guest, empty if that is not known.
    Raises L(KvmfleetError) if libvirt cannot compare, e.g. because it does not know the machine type.
    """
    arguments: _GuestKind = (None, platform.arch, platform.machine, platform.virt_type)
    try:
        with libvirt_errors(f"compare the CPU with that of {uri}"):
            result = connection.compareHypervisorCPU(*arguments, cpu_xml, _FAIL_INCOMPATIBLE)
    except Conflict as error:
        return CpuVerdict(False, _explain_refusal(connection, arguments, cpu_xml, able, error.message))
    if result <= 0:
        return CpuVerdict(False, _explain_refusal(connection, arguments, cpu_xml, able, "libvirt calls the CPU of the host incompatible."))
    return CpuVerdict(True, None)


def find_baseline_cpu(connection: libvirt.virConnect, uri: str, platform: GuestPlatform, cpus: t.Sequence[str]) -> CpuFeatures:
    """Return the best CPU that all of these have in common, limited to what this host knows. Raises L(KvmfleetError) if libvirt finds none."""
    arguments: _GuestKind = (None, platform.arch, platform.machine, platform.virt_type)
    with libvirt_errors(f"compute a common CPU on {uri}"):
        plain = connection.baselineHypervisorCPU(*arguments, list(cpus), 0)
        expanded = parse_libvirt_xml(connection.baselineHypervisorCPU(*arguments, list(cpus), _EXPAND_FEATURES), "a CPU")
    features, disabled = _list_features(expanded, _REQUIRED), _list_features(expanded, _ABSENT)
    given = set().union(*(_list_features(parse_libvirt_xml(cpu, "a CPU"), _ABSENT) for cpu in cpus))
    return CpuFeatures(expanded.findtext("model"), plain.strip(), tuple(sorted(features)), tuple(sorted(disabled - given)))


def _explain_refusal(connection: libvirt.virConnect, arguments: _GuestKind, cpu_xml: str, able: t.Sequence[str], otherwise: str) -> str:
    missing = _find_missing_features(connection, arguments, cpu_xml, able)
    return f"its CPU lacks {', '.join(missing)}" if missing else otherwise


def _find_missing_features(connection: libvirt.virConnect, arguments: _GuestKind, cpu_xml: str, able: t.Sequence[str]) -> t.List[str]:
    """When expanded on the host, a model has the features disabled that the host lacks; features required beyond the model stay required."""
    own = parse_libvirt_xml(cpu_xml, "a CPU")
    beyond = _list_features(own, _REQUIRED) - {*able} if able else set()
    try:
        expanded = parse_libvirt_xml(connection.baselineHypervisorCPU(*arguments, [cpu_xml], _EXPAND_FEATURES), "a CPU")
    except libvirt_binding().libvirtError:
        return sorted(beyond)
    return sorted(beyond | (_list_features(expanded, _ABSENT) - _list_features(own, _ABSENT)))


def _find_host_model(capabilities: ElementTree.Element) -> t.Optional[ElementTree.Element]:
    mode = capabilities.find("cpu/mode[@name='host-model']")
    if mode is None or mode.get("supported") != "yes" or mode.find("model") is None:
        return None
    cpu = ElementTree.Element("cpu")
    cpu.extend(list(mode))
    return cpu


def _expand_model(connection: libvirt.virConnect, uri: str, platform: Platform, cpu: ElementTree.Element, usable: t.Sequence[str]) -> CpuFacts:
    xml = ElementTree.tostring(cpu, encoding="unicode")
    with libvirt_errors(f"expand the CPU of {uri}"):
        expanded = connection.baselineHypervisorCPU(platform.emulator or None, platform.arch, None, platform.virt_type, [xml], _EXPAND_FEATURES)
    features = _list_features(parse_libvirt_xml(expanded, "a CPU"), _REQUIRED)
    return CpuFacts(cpu.findtext("model"), cpu.findtext("vendor"), tuple(sorted(features)), tuple(usable), description=xml)


def _list_usable_models(capabilities: ElementTree.Element) -> t.List[str]:
    models = capabilities.findall("cpu/mode[@name='custom']/model[@usable='yes']")
    return sorted({(model.text or "").strip() for model in models})


def _list_features(cpu: ElementTree.Element, policies: t.Sequence[str]) -> t.Set[str]:
    return {feature.get("name", "") for feature in cpu.findall("feature") if feature.get("policy", "require") in policies}


_VIRT_TYPES = ("kvm", "qemu")


def read_hardware(connection: libvirt.virConnect, uri: str, capabilities: Element) -> HardwareFacts:
    """Return the hardware that libvirt reports."""
    arch = capabilities.findtext("host/cpu/arch") or ""
    with libvirt_errors(f"read the CPUs of {uri}"):
        online = [number for number, is_online in enumerate(connection.getCPUMap()[1]) if is_online]
        cells = [_read_cell(connection, cell, set(online)) for cell in capabilities.findall("host/topology/cells/cell")]
    return HardwareFacts(
        arch=arch,
        cpu_ids=tuple(online),
        numa_cells=tuple(cells),
        platforms=tuple(_complete_platform(connection, uri, platform, arch) for platform in _list_platforms(capabilities)),
        host_cpu=read_host_cpu(connection, uri, capabilities),
    )


def _read_cell(connection: libvirt.virConnect, cell: Element, online: t.Set[int]) -> NumaCell:
    number = parse_number(cell.get("id"))
    pages = {parse_number(entry.get("size")): parse_number(entry.text) for entry in cell.findall("pages")}
    # The smallest pages are the normal ones, which make up the cell's memory.
    huge = sorted(pages)[1:]
    free_kib, free = _read_free_memory(connection, number, huge)
    cpus = {parse_number(cpu.get("id"), -1) for cpu in cell.findall("cpus/cpu")}
    return NumaCell(
        id=number,
        total_mib=parse_number(cell.findtext("memory")) // 1024,
        free_mib=free_kib // 1024,
        cpus=tuple(sorted(cpus & online)),
        pages=tuple(HugepagePool(size, pages[size], free.get(size, 0)) for size in huge),
    )


def _read_free_memory(connection: libvirt.virConnect, number: int, huge: t.List[int]) -> t.Tuple[int, t.Mapping[int, int]]:
    """Return what is free in a cell, in KiB and in huge pages; nothing if the kernel does not report it."""
    try:
        stats = connection.getMemoryStats(number)
        return stats.get("free", 0), connection.getFreePages(huge, number, 1).get(number, {}) if huge else {}
    except libvirt_binding().libvirtError:
        return 0, {}


def _list_platforms(capabilities: Element) -> t.Iterator[Platform]:
    for arch in capabilities.findall("guest[os_type='hvm']/arch"):
        for domain in arch.findall("domain"):
            if domain.get("type") in _VIRT_TYPES:
                machines = domain.findall("machine") or arch.findall("machine")
                yield Platform(
                    arch=arch.get("name", ""),
                    virt_type=domain.get("type", ""),
                    emulator=domain.findtext("emulator") or arch.findtext("emulator"),
                    machines=tuple(sorted({name for machine in machines for name in (machine.text, machine.get("canonical")) if name})),
                    max_vcpus=max((parse_number(machine.get("maxCpus")) for machine in machines), default=0) or None,
                )


def _complete_platform(connection: libvirt.virConnect, uri: str, platform: Platform, own_arch: str) -> Platform:
    """Return the platform with its CPU and its firmware, which are null for other architectures than that of the host."""
    if platform.arch != own_arch:
        return dataclasses.replace(platform, cpu=None, firmware=None)
    return dataclasses.replace(platform, cpu=read_guest_cpu(connection, uri, platform), firmware=read_firmware(connection, uri, platform))


S = t.TypeVar("S")
T = t.TypeVar("T")


_POOL_RUNNING = (2, 3)
_ACTIVE_NETWORKS = 2
# Kinds of node devices that a definition can hand to a guest, by libvirt's names of the flags that list them.
_DEVICE_FLAGS = {"pci": "PCI_DEV", "usb": "USB_DEV", "scsi": "SCSI", "mdev": "MDEV"}
# Node devices are named after interface and address, with an underscore for every other sign.
_NET_DEVICE = re.compile(r"net_(.+)(?:_[0-9a-f]{2}){6}")
# Bridges between buses are not usable devices.
_PCI_BRIDGE_CLASS = "0x06"


def read_surroundings(connection: libvirt.virConnect, uri: str) -> Surroundings:
    """Return the pools, networks, devices, network filters and secrets of a host; null if this libvirt has no driver for them."""
    return Surroundings(
        pools=_read_or_null(connection, f"read the pools of {uri}", list_pools),
        networks=_read_or_null(connection, f"read the networks of {uri}", _list_networks),
        devices=_read_or_null(connection, f"read the devices of {uri}", _list_devices),
        net_devices=_read_or_null(connection, f"read the net_devices of {uri}", _list_net_devices),
        network_filters=_read_or_null(connection, f"read the network filters of {uri}", _list_network_filters),
        secrets=_read_or_null(connection, f"list the secrets of {uri}", _list_secrets),
    )


def _read_or_null(connection: libvirt.virConnect, attempt: str, read: t.Callable[[libvirt.virConnect], t.List[T]]) -> t.Optional[t.Tuple[T, ...]]:
    try:
        with libvirt_errors(attempt):
            return tuple(read(connection))
    except KvmfleetError:
        with libvirt_errors(attempt):
            if not connection.isAlive():
                raise
        return None


def list_pools(connection: libvirt.virConnect) -> t.List[StoragePool]:
    """Return the storage pools of a host, active or not."""
    return sorted(_read_each(connection.listAllStoragePools(0), _describe_pool), key=lambda pool: pool.name)


def _describe_pool(pool: libvirt.virStoragePool) -> StoragePool:
    state, capacity, _allocation, available = pool.info()
    root = parse_libvirt_xml(pool.XMLDesc(0), "a storage pool")
    kind, is_active = root.get("type", ""), state in _POOL_RUNNING
    volumes = pool.listAllVolumes(0) if is_active and kind in POOLS_OF_UNITS else None
    return StoragePool(
        name=pool.name(),
        type=kind,
        active=is_active,
        path=root.findtext("target/path"),
        capacity_bytes=capacity,
        available_bytes=available,
        volumes=ABSENT if volumes is None else dict(_read_each(volumes, lambda volume: (volume.name(), volume.path()))),
    )


def _list_networks(connection: libvirt.virConnect) -> t.List[LibvirtNetwork]:
    active = {network.name() for network in connection.listAllNetworks(_ACTIVE_NETWORKS)}
    return sorted(_read_each(connection.listAllNetworks(0), lambda network: _describe_network(network, active)), key=lambda network: network.name)


def _describe_network(network: libvirt.virNetwork, active: t.Set[str]) -> LibvirtNetwork:
    root = parse_libvirt_xml(network.XMLDesc(0), "a network")
    bridge, forward, default = root.find("bridge"), root.find("forward"), root.find("portgroup[@default='yes']")
    vlans = {group.get("name", ""): read_vlan(group) for group in root.findall("portgroup")}
    return LibvirtNetwork(
        name=network.name(),
        active=network.name() in active,
        bridge=bridge.get("name") if bridge is not None else None,
        portgroups=tuple(sorted(group.get("name", "") for group in root.findall("portgroup"))),
        forward=forward.get("mode", "nat") if forward is not None else None,
        default_portgroup=default.get("name", "") if default is not None else None,
        vlan=read_vlan(root),
        portgroup_vlans={name: vlan for name, vlan in sorted(vlans.items()) if vlan},
    )


def _list_devices(connection: libvirt.virConnect) -> t.List[HostDevice]:
    flags = (getattr(libvirt_binding(), f"VIR_CONNECT_LIST_NODE_DEVICES_CAP_{name}", 0) for name in _DEVICE_FLAGS.values())
    found = _read_each(connection.listAllDevices(sum(flags)), lambda device: _describe_device(parse_libvirt_xml(device.XMLDesc(0), "a node device")))
    return sorted((device for device in found if device), key=lambda device: (device.kind, device.address or ""))


def _list_net_devices(connection: libvirt.virConnect) -> t.List[str]:
    """Return the network interfaces by the names of their node devices, in one call: a host has an interface for each guest."""
    devices = connection.listAllDevices(libvirt_binding().VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET)
    return sorted({match[1] for match in map(_NET_DEVICE.fullmatch, (device.name() for device in devices)) if match})


def _list_network_filters(connection: libvirt.virConnect) -> t.List[str]:
    return sorted(found.name() for found in connection.listAllNWFilters(0))


# By libvirt's numbers.
_SECRET_USAGES = {1: "volume", 2: "ceph", 3: "iscsi", 4: "tls", 5: "vtpm"}


def _list_secrets(connection: libvirt.virConnect) -> t.List[str]:
    """Return the names of secrets as definitions use them, see L(list_secrets): of each one its UUID and its usage."""
    named = _read_each(connection.listAllSecrets(0), lambda secret: (secret.UUIDString(), f"{_SECRET_USAGES.get(secret.usageType(), '')} {secret.usageID()}"))
    return sorted({name.strip() for names in named for name in names if name.strip()})


def _describe_device(root: ElementTree.Element) -> t.Optional[HostDevice]:
    for kind in _DEVICE_FLAGS:
        found = root.find(f"capability[@type='{'usb_device' if kind == 'usb' else kind}']")
        if found is not None:
            return None if kind == "pci" and (found.findtext("class") or "").startswith(_PCI_BRIDGE_CLASS) else _describe_capability(kind, found)
    return None


def _describe_capability(kind: str, found: ElementTree.Element) -> HostDevice:
    vendor, product, mdev = found.find("vendor"), found.find("product"), found.find("type")
    return HostDevice(
        kind=kind,
        address=_format_address(kind, found),
        vendor=vendor.get("id") if vendor is not None else None,
        product=(product.get("id") if product is not None else None) or (mdev.get("id") if mdev is not None else None),
    )


def _format_address(kind: str, found: ElementTree.Element) -> str:
    if kind == "mdev":
        return (found.findtext("uuid") or "").lower()
    if kind == "pci":
        return format_pci_address(ElementTree.Element("address", {part: found.findtext(part) or "0" for part in ("domain", "bus", "slot", "function")}))
    parts = ("bus", "device") if kind == "usb" else ("host", "bus", "target", "lun")
    return ":".join(found.findtext(part) or "0" for part in parts)


def _read_each(objects: t.Iterable[S], read: t.Callable[[S], T]) -> t.List[T]:
    """Read them one by one. One that disappears in the meantime is omitted."""
    found = []
    for one in objects:
        with contextlib.suppress(libvirt_binding().libvirtError):
            found.append(read(one))
    return found
