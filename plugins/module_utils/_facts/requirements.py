# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The parts of the requirements of a definition: the CPU, the placement of vCPUs and memory, host devices, and networks.

The CPU of an active guest is the one that the guest really has.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import typing as t
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from .._model.codec import ABSENT, Absent
from .._model.definition_files import is_left_out
from .._model.errors import Internal
from .._model.libvirt_formats import format_pci_address, parse_device_number, parse_ids, parse_number, parse_size, parse_vcpu_count, read_vlan, round_up_to_mib
from .._model.requests import DeviceNeed, GuestCell, GuestCpu, HugepageNeed, NetworkNeed, NumaPlacement, Pinning

# Features that QEMU adds if a processor package has several threads, and reports since 10.0 (docs/libvirt.md, "Processors").
_OF_THREADS = ("ht", "cmp_legacy")
_HOST_MODEL = "host-model"
_PARTS = ("dies", "clusters", "cores", "threads")


# A definition without a CPU means QEMU's default.
NO_CPU = GuestCpu(mode=None, model=None, features={}, xml=None, package_threads=1, shows_threads=None)


def describe_cpu(root: ElementTree.Element) -> GuestCpu:
    """Return the CPU of a definition.

    QEMU itself makes features of the threads of a processor package. They are left out: no host has to give them.
    """
    found = root.find("cpu")
    if found is None:
        return NO_CPU
    threads, shown = _count_package_threads(found), found.find("feature[@name='ht']") is not None
    cpu = _remove_thread_features(found) if threads > 1 else found
    model = (cpu.findtext("model") or "").strip() or None
    return GuestCpu(
        mode=cpu.get("mode") or ("custom" if model else None),
        model=model,
        features={feature.get("name", ""): feature.get("policy", "require") for feature in cpu.findall("feature")},
        xml=ElementTree.tostring(cpu, encoding="unicode").strip(),
        package_threads=threads,
        shows_threads=shown if cpu.get("check") == "full" else None,
    )


def describe_start_cpu(configuration: t.Optional[ElementTree.Element]) -> t.Union[GuestCpu, Absent]:
    """Return the CPU that an active domain asks for when it starts anew, if each host then gives it another one; absent if it starts with its present one."""
    cpu = NO_CPU if configuration is None else describe_cpu(configuration)
    return dataclasses.replace(cpu, xml=ABSENT) if cpu.mode == _HOST_MODEL else ABSENT


def has_loose_tsc(root: ElementTree.Element, cpu: GuestCpu) -> bool:
    """Whether the guest sees an invariant TSC whose frequency is not fixed: it would run at another speed on another host."""
    is_fixed = any(timer.get("name") == "tsc" and timer.get("frequency") for timer in root.findall("clock/timer"))
    return (cpu.features or {}).get("invtsc") in ("require", "force") and not is_fixed


def _count_package_threads(cpu: ElementTree.Element) -> int:
    topology = cpu.find("topology")
    if topology is None:
        return 1
    return math.prod(max(1, parse_vcpu_count(topology.get(part), 1)) for part in _PARTS)


def _remove_thread_features(cpu: ElementTree.Element) -> ElementTree.Element:
    cpu = copy.deepcopy(cpu)
    for feature in [feature for feature in cpu.findall("feature") if feature.get("name") in _OF_THREADS]:
        cpu.remove(feature)
    return cpu


# A guest with as many vCPUs as the largest hosts have CPUs, each pinned to all of them.
_MOST_PINS = 2**22


def read_pinning(root: Element) -> t.Optional[Pinning]:
    """Return the pinning, or null if nothing is pinned. A set for all vCPUs applies to those without one of their own, also to those plugged in later."""
    vcpu, vcpus = root.find("vcpu"), parse_vcpu_count(root.findtext("vcpu"), 1)
    common = tuple(parse_ids(vcpu.get("cpuset"))) if vcpu is not None and vcpu.get("placement") != "auto" else ()
    pins = {str(number): common for number in range(vcpus)} if common else {}
    named = len(common) * vcpus
    _check_pins(named)
    iothreads: t.Dict[str, t.Tuple[int, ...]] = {}
    for element, thread, found in (("vcpupin", "vcpu", pins), ("iothreadpin", "iothread", iothreads)):
        for pin in root.findall(f"cputune/{element}"):
            found[pin.get(thread, "")] = tuple(parse_ids(pin.get("cpuset")))
            named += len(found[pin.get(thread, "")])
            _check_pins(named)
    emulator = root.find("cputune/emulatorpin")
    emulator_ids = tuple(parse_ids(emulator.get("cpuset"))) if emulator is not None else common or None
    return Pinning(pins, emulator_ids, iothreads or ABSENT) if pins or emulator_ids or iothreads else None


def _check_pins(named: int) -> None:
    if named > _MOST_PINS:
        raise Internal(f"A definition pins vCPUs to more host CPUs, counted one by one, than are supported ({_MOST_PINS}).")


# Of libvirt, for the binding of memory.
_DEFAULT_MODE = "strict"


def read_numa(root: Element) -> t.Optional[NumaPlacement]:
    """Return how the memory is bound, and the guest's own cells, or null if the definition does not mention NUMA."""
    memory = root.find("numatune/memory")
    nodes = {node.get("cellid"): node for node in root.findall("numatune/memnode")}
    plugged = _sum_plugged_bytes(root)
    cells = tuple(_read_cell(cell, number, nodes, plugged) for number, cell in enumerate(root.findall("cpu/numa/cell")))
    if memory is None and not cells:
        return None
    mode = memory.get("mode", _DEFAULT_MODE) if memory is not None else None
    return NumaPlacement(mode, tuple(parse_ids(memory.get("nodeset"))) if memory is not None else (), cells)


# Memory devices whose memory is that of the host, and no file.
_PLUGGED = ("dimm", "virtio-mem")


def _sum_plugged_bytes(root: Element) -> t.Dict[str, int]:
    """Return how much memory devices add to each cell of the guest. One that names cells of the host itself is not bound as the cell is, and left out."""
    found: t.Dict[str, int] = {}
    for device in root.findall("devices/memory"):
        size, cell = device.find("target/size"), device.findtext("target/node")
        if device.get("model") in _PLUGGED and size is not None and cell is not None and device.find("source/nodemask") is None:
            found[cell] = found.get(cell, 0) + parse_size(size.text, size.get("unit"))
    return found


def _read_cell(cell: Element, number: int, nodes: t.Mapping[t.Optional[str], Element], plugged: t.Mapping[str, int]) -> GuestCell:
    identifier = cell.get("id", str(number))
    bound = nodes.get(identifier)
    return GuestCell(
        id=parse_number(identifier),
        memory_mib=round_up_to_mib(parse_size(cell.get("memory"), cell.get("unit")) + plugged.get(identifier, 0)),
        vcpus=tuple(parse_ids(cell.get("cpus"))),
        nodeset=tuple(parse_ids(bound.get("nodeset"))) if bound is not None else None,
        mode=bound.get("mode", _DEFAULT_MODE) if bound is not None else ABSENT,
    )


def read_hugepages(root: Element, memory_mib: int, numa: t.Optional[NumaPlacement]) -> t.List[HugepageNeed]:
    """Return the parts of the guest's memory that have to be in huge pages."""
    cells: t.Dict[t.Optional[str], int] = {str(cell.id): cell.memory_mib for cell in (numa.cells if numa else None) or ()}
    left = memory_mib
    found: t.List[HugepageNeed] = []
    for cell, mib, size in _list_plugged_pages(root):
        found.append(HugepageNeed(mib, size))
        if cell in cells:
            cells[cell] -= mib
        left -= mib
    pages = root.findall("memoryBacking/hugepages/page")
    for page in [page for page in pages if page.get("nodeset")]:
        mib = sum(cells.get(str(number), 0) for number in parse_ids(page.get("nodeset")))
        found.append(HugepageNeed(mib, _page_kib(page)))
        left -= mib
    others: t.List[t.Optional[int]] = [_page_kib(page) for page in pages if not page.get("nodeset")]
    others += [None] if root.find("memoryBacking/hugepages") is not None and not pages else []
    whole = [*(HugepageNeed(left, size) for size in others[:1] if left > 0), *found]
    return [need for need in whole if need.mib > 0 and need.size_kib != _NORMAL_KIB]


# libvirt takes pages of the normal size for none. No processor has huge pages of this size.
_NORMAL_KIB = 4


def _list_plugged_pages(root: Element) -> t.Iterator[t.Tuple[t.Optional[str], int, int]]:
    """Yield the cell of which it is a part (L(_sum_plugged_bytes)), MiB, and the size of the pages in KiB of each memory device that names one."""
    for device in root.findall("devices/memory"):
        size, page = device.find("target/size"), device.find("source/pagesize")
        if device.get("model") in _PLUGGED and size is not None and page is not None:
            cell = device.findtext("target/node") if device.find("source/nodemask") is None else None
            yield cell, round_up_to_mib(parse_size(size.text, size.get("unit"))), parse_size(page.text, page.get("unit")) // 1024


def _page_kib(page: Element) -> int:
    return parse_size(page.get("size"), page.get("unit")) // 1024


_NETWORK_SOURCES = ("network", "bridge", "dev", "path", "name", "portgroupid")


def list_host_devices(root: Element) -> t.List[DeviceNeed]:
    """Return every host device of the guest, network interfaces of that kind included."""
    hostdevs = [_describe_hostdev(device, root) for device in root.findall("devices/hostdev[@mode='subsystem']")]
    return hostdevs + [_describe_network_device(interface) for interface in root.findall("devices/interface[@type='hostdev']")]


def _describe_network_device(interface: Element) -> DeviceNeed:
    return dataclasses.replace(_describe_device("pci", _format_pci(interface)), network=_find_name(interface, "source", "network"))


def list_networks(root: Element) -> t.List[NetworkNeed]:
    """Return what every network interface is plugged into, except for those that are host devices of the guest's own."""
    found = [(interface, _describe_network(interface)) for interface in root.findall("devices/interface")]
    return [need for interface, need in found if interface.get("type") != "hostdev" or need.type == "network"]


def _describe_network(interface: Element) -> NetworkNeed:
    return NetworkNeed(
        type=_network_type(interface),
        source=_network_source(interface),
        portgroup=_find_name(interface, "source", "portgroup"),
        virtualport=_find_name(interface, "virtualport", "type"),
        network_filter=_find_name(interface, "filterref", "filter"),
        vlan=read_vlan(interface) or ABSENT,
    )


def _network_type(interface: Element) -> str:
    # If a guest runs on a network with a bridge of its host, libvirt shows the bridge; the destination must have the network.
    source = interface.find("source")
    return "network" if source is not None and source.get("network") else interface.get("type", "")


def _network_source(interface: Element) -> str:
    source = interface.find("source")
    attributes = source.attrib if source is not None else {}
    return next((attributes[key] for key in _NETWORK_SOURCES if key in attributes), "")


def _find_name(interface: Element, tag: str, attribute: str) -> t.Union[str, Absent]:
    found = interface.find(tag)
    return (found.get(attribute) if found is not None else None) or ABSENT


def list_secrets(root: Element) -> t.List[str]:
    """Return the names of the libvirt secrets that the definition refers to: the UUID, or the kind and the usage, as it names each."""
    named = {_secret_name(secret) for part in (*root.findall("os"), *root.findall("devices")) for secret in part.iter("secret")}
    named |= {encryption.get("secret", "").lower() for encryption in root.findall("devices/tpm/backend/encryption")}
    return sorted(named - {""})


def _secret_name(secret: Element) -> str:
    usage, kind = secret.get("usage", ""), secret.get("type", "")
    return secret.get("uuid", "").lower() or (f"{_SECRETS_OF_IMAGES.get(kind, kind)} {usage}" if usage else "")


# What a definition calls a secret of the kind C(volume).
_SECRETS_OF_IMAGES = {"passphrase": "volume"}


def _describe_hostdev(device: Element, root: Element) -> DeviceNeed:
    kind = device.get("type", "")
    need = _describe_device(kind, _ADDRESSES.get(kind, _format_other)(device), device)
    return dataclasses.replace(need, optional=True) if is_left_out(device, root) else need


def _describe_device(kind: str, address: str, device: t.Optional[Element] = None) -> DeviceNeed:
    vendor = device.find("source/vendor") if device is not None else None
    product = device.find("source/product") if device is not None else None
    return DeviceNeed(kind, address, vendor.get("id") if vendor is not None else None, product.get("id") if product is not None else None)


def _format_pci(device: Element) -> str:
    return format_pci_address(device.find("source/address"))


def _format_usb(device: Element) -> str:
    address = device.find("source/address")
    return f"{parse_device_number(address.get('bus'))}:{parse_device_number(address.get('device'))}" if address is not None else ""


def _format_mdev(device: Element) -> str:
    address = device.find("source/address")
    return address.get("uuid", "").lower() if address is not None else ""


def _format_scsi(device: Element) -> str:
    adapter, address = device.find("source/adapter"), device.find("source/address")
    if adapter is None or address is None:
        return _format_other(device)
    host = adapter.get("name", "").replace("scsi_host", "")
    return f"{host}:{address.get('bus', '0')}:{address.get('target', '0')}:{address.get('unit', '0')}"


def _format_other(device: Element) -> str:
    source = device.find("source")
    attributes = source.attrib if source is not None else {}
    return next((attributes[key] for key in ("wwpn", "name") if key in attributes), "")


_ADDRESSES: t.Dict[str, t.Callable[[Element], str]] = {"pci": _format_pci, "usb": _format_usb, "mdev": _format_mdev, "scsi": _format_scsi}
