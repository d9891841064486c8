# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host's own devices that a definition hands to its guest, and the networks that it is on."""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

Json = t.Dict[str, t.Any]

_NUMBER_CHARACTERS = 18
_NETWORK_SOURCES = ("network", "bridge", "dev", "path", "name", "portgroupid")


def devices_of(root: Element) -> t.List[Json]:
    """Return C(kind), C(address), C(vendor) and C(product) of every host device of the guest, network interfaces of that kind included."""
    hostdevs = [_hostdev(device) for device in root.findall("devices/hostdev[@mode='subsystem']")]
    return hostdevs + [_device("pci", _pci(interface)) for interface in root.findall("devices/interface[@type='hostdev']")]


def networks_of(root: Element) -> t.List[Json]:
    """Return C(type) and C(source) of every network interface that is not a host device."""
    interfaces = [interface for interface in root.findall("devices/interface") if interface.get("type") != "hostdev"]
    return [{"type": _network_type(interface), "source": _network_source(interface)} for interface in interfaces]


def pci_address(element: t.Optional[Element]) -> str:
    """Return an address element as C(0000:06:12.0)."""
    if element is None:
        return ""
    domain, bus, slot, function = (_number(element.get(part)) for part in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _network_type(interface: Element) -> str:
    # Of a guest that runs on a network with a bridge of its host, libvirt shows the bridge; where it goes there must be the network.
    source = interface.find("source")
    return "network" if source is not None and source.get("network") else interface.get("type", "")


def _network_source(interface: Element) -> str:
    source = interface.find("source")
    attributes = source.attrib if source is not None else {}
    return next((attributes[key] for key in _NETWORK_SOURCES if key in attributes), "")


def _hostdev(device: Element) -> Json:
    kind = device.get("type", "")
    return _device(kind, _ADDRESSES.get(kind, _plain)(device), device)


def _device(kind: str, address: str, device: t.Optional[Element] = None) -> Json:
    vendor = device.find("source/vendor") if device is not None else None
    product = device.find("source/product") if device is not None else None
    return {
        "kind": kind,
        "address": address,
        "vendor": vendor.get("id") if vendor is not None else None,
        "product": product.get("id") if product is not None else None,
    }


def _pci(device: Element) -> str:
    return pci_address(device.find("source/address"))


def _usb(device: Element) -> str:
    address = device.find("source/address")
    return f"{_number(address.get('bus'))}:{_number(address.get('device'))}" if address is not None else ""


def _mdev(device: Element) -> str:
    address = device.find("source/address")
    return address.get("uuid", "").lower() if address is not None else ""


def _scsi(device: Element) -> str:
    adapter, address = device.find("source/adapter"), device.find("source/address")
    if adapter is None or address is None:
        return _plain(device)
    host = adapter.get("name", "").replace("scsi_host", "")
    return f"{host}:{address.get('bus', '0')}:{address.get('target', '0')}:{address.get('unit', '0')}"


def _plain(device: Element) -> str:
    source = device.find("source")
    attributes = source.attrib if source is not None else {}
    return next((attributes[key] for key in ("wwpn", "name") if key in attributes), "")


_ADDRESSES: t.Dict[str, t.Callable[[Element], str]] = {"pci": _pci, "usb": _usb, "mdev": _mdev, "scsi": _scsi}


def _number(text: t.Optional[str]) -> int:
    """Return a number as libvirt writes them, decimal or with C(0x); what is none counts as 0."""
    given = (text or "0")[:_NUMBER_CHARACTERS]
    try:
        return int(given, 0)
    except ValueError:
        return int(given) if given.isdecimal() else 0
