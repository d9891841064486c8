# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What is around a host's domains: pools, networks, and devices that could be handed to a guest."""

from __future__ import annotations

import contextlib
import re
import typing as t
from xml.etree import ElementTree

from .._errors import KvmfleetError
from .._facts.devices import pci_address
from .._xml import parse_libvirts
from .errors import libvirt_errors
from .library import libvirt

Json = t.Dict[str, t.Any]
Read = t.Callable[[t.Any], t.List[t.Any]]

_POOL_RUNNING = (2, 3)
_ACTIVE_NETWORKS = 2
# Kinds of node devices that a definition can hand to a guest, by libvirt's names of the flags that list them.
_DEVICE_FLAGS = {"pci": "PCI_DEV", "usb": "USB_DEV", "scsi": "SCSI", "mdev": "MDEV"}
# Node devices are named after interface and address, with an underscore for every other sign.
_NET_DEVICE = re.compile(r"net_(.+)(?:_[0-9a-f]{2}){6}")
# Bridges between buses are no device that anybody could use.
_PCI_BRIDGE_CLASS = "0x06"


def surroundings(connection: t.Any, uri: str) -> Json:
    """Return C(pools), C(networks), C(devices) and C(net_devices) of C(kvmfleet_host); null is what this libvirt has no driver for."""
    readers: t.Dict[str, Read] = {"pools": _pools, "networks": _networks, "devices": _devices, "net_devices": _net_devices}
    return {what: _told(connection, f"read the {what} of {uri}", read) for what, read in readers.items()}


def _told(connection: t.Any, attempt: str, read: Read) -> t.Optional[t.List[t.Any]]:
    try:
        with libvirt_errors(attempt):
            return read(connection)
    except KvmfleetError:
        with libvirt_errors(attempt):
            if not connection.isAlive():
                raise
        return None


def _pools(connection: t.Any) -> t.List[Json]:
    return _each(connection.listAllStoragePools(0), _pool)


def _pool(pool: t.Any) -> Json:
    state, capacity, _allocation, available = pool.info()
    root = parse_libvirts(pool.XMLDesc(0), "a storage pool")
    return {
        "name": pool.name(),
        "type": root.get("type", ""),
        "active": state in _POOL_RUNNING,
        "path": root.findtext("target/path"),
        "capacity_bytes": capacity,
        "available_bytes": available,
    }


def _networks(connection: t.Any) -> t.List[Json]:
    active = {network.name() for network in connection.listAllNetworks(_ACTIVE_NETWORKS)}
    return _each(connection.listAllNetworks(0), lambda network: _network(network, active))


def _network(network: t.Any, active: t.Set[str]) -> Json:
    bridge = parse_libvirts(network.XMLDesc(0), "a network").find("bridge")
    return {"name": network.name(), "active": network.name() in active, "bridge": bridge.get("name") if bridge is not None else None}


def _devices(connection: t.Any) -> t.List[Json]:
    flags = (getattr(libvirt(), f"VIR_CONNECT_LIST_NODE_DEVICES_CAP_{name}", 0) for name in _DEVICE_FLAGS.values())
    found = _each(connection.listAllDevices(sum(flags)), lambda device: _device(parse_libvirts(device.XMLDesc(0), "a node device")))
    return sorted((device for device in found if device), key=lambda device: (device["kind"], device["address"]))


def _net_devices(connection: t.Any) -> t.List[str]:
    """Return the network interfaces by the names of their node devices, for one call must do: a host has one for each guest."""
    devices = connection.listAllDevices(libvirt().VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET)
    return sorted({match[1] for match in map(_NET_DEVICE.fullmatch, (device.name() for device in devices)) if match})


def _device(root: ElementTree.Element) -> Json:
    for kind in _DEVICE_FLAGS:
        found = root.find(f"capability[@type='{'usb_device' if kind == 'usb' else kind}']")
        if found is not None:
            return {} if kind == "pci" and (found.findtext("class") or "").startswith(_PCI_BRIDGE_CLASS) else _described(kind, found)
    return {}


def _described(kind: str, found: ElementTree.Element) -> Json:
    vendor, product, mdev = found.find("vendor"), found.find("product"), found.find("type")
    return {
        "kind": kind,
        "address": _address(kind, found),
        "vendor": vendor.get("id") if vendor is not None else None,
        "product": (product.get("id") if product is not None else None) or (mdev.get("id") if mdev is not None else None),
    }


def _address(kind: str, found: ElementTree.Element) -> str:
    if kind == "mdev":
        return (found.findtext("uuid") or "").lower()
    if kind == "pci":
        return pci_address(ElementTree.Element("address", {part: found.findtext(part) or "0" for part in ("domain", "bus", "slot", "function")}))
    parts = ("bus", "device") if kind == "usb" else ("host", "bus", "target", "lun")
    return ":".join(found.findtext(part) or "0" for part in parts)


def _each(objects: t.Iterable[t.Any], read: t.Callable[[t.Any], Json]) -> t.List[Json]:
    """Read them one by one; one that goes away meanwhile is left out."""
    found = []
    for one in objects:
        with contextlib.suppress(libvirt().libvirtError):
            found.append(read(one))
    return sorted(found, key=lambda entry: str(entry.get("name", "")))
