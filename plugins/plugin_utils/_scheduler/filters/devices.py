# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a host has the networks, bridges, interfaces and network filters of the guest, and the host devices that it uses."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostDevice, LibvirtNetwork
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DeviceNeed, NetworkNeed

from ..fleet import Fleet, HostState
from ..guests import device_key
from ..request import Request
from .base import PASS, Finding, Rule


class NamedResources(Rule):
    """The host has a name for each bridge, folder or device of the guest for which the host that it leaves has one in a map, and no other use for it."""

    name = "resource_maps"
    overridable = False

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name what has no name there."""
        return Finding(" ".join(request.unnamed)) if request.unnamed else PASS


class Networks(Rule):
    """Each must exist under the same name, and so must the network filter. A libvirt network must also be active, of the same kind and with the same VLANs as
    on the source, and have the port group of the interface.
    """

    name = "networks"

    def applies_to(self, request: Request) -> bool:
        """Return whether the domain has any interface."""
        return bool(request.networks)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name what is missing. Unknown networks are a warning."""
        judged = [judge(network, host) for network in request.networks for judge in (_JUDGES.get(network.type, _pass_any), _judge_filter)]
        findings = [finding for finding in (*judged, *_compare_with_source(request, host, fleet)) if finding is not PASS]
        if not findings:
            return PASS
        reasons = dict.fromkeys(finding.reason for finding in findings if finding.reason)
        return Finding(" ".join(reasons) or None, tuple(dict.fromkeys(warning for finding in findings for warning in finding.warnings)))


def _compare_with_source(request: Request, host: HostState, fleet: Fleet) -> t.Iterator[Finding]:
    """Compare the kind of each libvirt network, its VLANs, and whether it has a default port group, with the host that the guest leaves. The kind and the
    VLAN of an interface may have been saved.

    libvirt compares none of them: the guest would lose its connections, or be in another VLAN.
    """
    source = fleet.source_of(request)
    before, after = (source.hardware.networks if source else None) or {}, host.hardware.networks or {}
    for own, need in zip((request.at_source or request).networks, request.networks, strict=True):
        old, new = before.get(own.source or ""), after.get(need.source or "")
        if need.type != _NETWORK or new is None:
            continue
        if old and old.default_portgroup and new.default_portgroup is None and not need.portgroup:
            yield Finding(f"Its network {new.name} has no default port group, and {request.name} is in that of its network ({old.default_portgroup}).")
        forward = (old or own).forward
        kinds = _kind_of(forward), _kind_of(new.forward)
        if ABSENT not in (forward, new.forward) and kinds[0] != kinds[1]:
            yield Finding(f"Its network {new.name} is {kinds[1]}, and {request.name} is on one that is {kinds[0]}.")
        vlans = (old.find_vlan(own.portgroup) if old else own.network_vlan), new.find_vlan(need.portgroup)
        # Other tags than those of the network are the interface's own, which it has on every host.
        if ABSENT not in vlans and vlans[0] != vlans[1] and own.vlan in (ABSENT, vlans[0]):
            yield Finding(f"Its network {new.name} would connect {request.name} with {_vlan_text(vlans[1])} and not with {_vlan_text(vlans[0])}.")


def _vlan_text(vlan: Maybe[str]) -> str:
    return f"the VLAN {vlan}" if vlan else "no VLAN"


def _kind_of(forward: Maybe[str]) -> str:
    """Return the kind of a network, as an adjective. The others connect guests to a network of the host."""
    return _KINDS.get(forward, "bridged") if forward else "isolated"


_KINDS = {"nat": "translated (NAT)", "route": "routed", "open": "routed"}
_NETWORK = "network"


def _judge_network(need: NetworkNeed, host: HostState) -> Finding:
    networks, name = host.hardware.networks, need.source or ""
    if networks is None:
        return _warn_unknown_network("network", name, host)
    found = networks.get(name)
    if found is None:
        return Finding(f"It has no network {name}.")
    return _judge_portgroup(need.portgroup or "", found, host) if found.active else Finding(f"Its network {name} is not active.")


def _judge_portgroup(group: str, network: LibvirtNetwork, host: HostState) -> Finding:
    """Judge the port group of an interface. libvirt does without one that is missing: the guest would lose its VLAN, among others."""
    if not group or group in (network.portgroups or ()):
        return PASS
    if not isinstance(network.portgroups, tuple):
        return _warn_unknown_network("port group", f"{group} of the network {network.name}", host)
    return Finding(f"Its network {network.name} has no port group {group}.")


_OPEN_VSWITCH = "openvswitch"


def _judge_bridge(need: NetworkNeed, host: HostState) -> Finding:
    name = need.source or ""
    if need.virtualport == _OPEN_VSWITCH and name in host.hardware.linux_bridges:
        return Finding(f"Its bridge {name} is not one of Open vSwitch.")
    if has_bridge(need, host):
        return PASS
    return _pass_if_seen("bridge", name, host) if host.hardware.bridges is None else Finding(f"It has no bridge {name}.")


def has_bridge(need: NetworkNeed, host: HostState) -> bool:
    """Whether the host is known to have the bridge of an interface. One of Open vSwitch with a data path of its own is an interface of another kind."""
    name, hardware = need.source, host.hardware
    is_switch = need.virtualport == _OPEN_VSWITCH and name in (hardware.interfaces or ())
    return is_switch or name in hardware.network_bridges or name in (hardware.bridges or ())


def _judge_interface(need: NetworkNeed, host: HostState) -> Finding:
    interfaces, name = host.hardware.interfaces, need.source or ""
    if interfaces is None:
        return _pass_if_seen("interface", name, host)
    return PASS if name in interfaces else Finding(f"It has no network interface {name}.")


def _judge_filter(need: NetworkNeed, host: HostState) -> Finding:
    name, filters = need.network_filter, host.hardware.network_filters
    if not name or (filters is not None and name in filters):
        return PASS
    return _warn_unknown_network("network filter", name, host) if filters is None else Finding(f"It has no network filter {name}.")


def _pass_any(_need: NetworkNeed, _host: HostState) -> Finding:
    return PASS


def _pass_if_seen(kind: str, name: str, host: HostState) -> Finding:
    """Accept a name that libvirt has reported if the host itself was not queried; a missing name proves nothing."""
    return PASS if re.sub("[^A-Za-z0-9]", "_", name) in host.hardware.net_devices else _warn_unknown_network(kind, name, host)


def _warn_unknown_network(kind: str, name: str, host: HostState) -> Finding:
    return Finding(warnings=(f"Whether {host.name} has the {kind} {name} is not known.",))


_JUDGES = {_NETWORK: _judge_network, "bridge": _judge_bridge, "direct": _judge_interface}

Product = tuple[t.Optional[str], t.Optional[str]]
Device = t.Union[DeviceNeed, HostDevice]


class HostDevices(Rule):
    """Each must exist at the same address, be the same product, and not be in use. Only QEMU knows whether it can be moved.

    An optional one that is missing is a warning.
    """

    name = "host_devices"

    def applies_to(self, request: Request) -> bool:
        """Return whether the domain uses any host device."""
        return bool(request.devices)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the devices that are missing, different or in use, and those that the guest would be without."""
        if host.hardware.devices is None:
            return Finding(warnings=(f"Whether {host.name} has the devices that {request.name} holds is not known.",))
        # A device at another address has to be the same product as the one at the address on the source.
        pairs = zip(request.devices, (request.at_source or request).devices, strict=True)
        # The network of a device has to be there, and gives the guest whichever of its devices is free.
        findings = [_judge_device(device, own, request, host, fleet) for device, own in pairs if not device.network]
        problems = [finding.reason for finding in findings if finding.reason]
        if problems:
            return Finding(" ".join(problems))
        state = f"{request.name} holds {_devices_text(request)}: only QEMU can say whether the state of such a device moves to {host.name}."
        return Finding(warnings=(*(warning for finding in findings for warning in finding.warnings), state))


def _judge_device(device: DeviceNeed, own: DeviceNeed, request: Request, host: HostState, fleet: Fleet) -> Finding:
    """:arg own: the device on the source."""
    devices = host.hardware.devices or {}
    key, wanted = device_key(device), _wanted_product(own, request, fleet)
    if not key[1]:
        found = any(kind == key[0] and _product_of(there) == wanted for (kind, _address), there in devices.items())
        return PASS if found else _judge_missing(device, f"It has no {_text_of(device, wanted)}.", request)
    there = devices.get(key)
    if there is None:
        return _judge_missing(device, f"It has no {_text_of(device, wanted)} at the address {key[1]}.", request)
    if any(wanted) and any(_product_of(there)) and _product_of(there) != wanted:
        found_text = f"{_text_of(there, _product_of(there))}, and {request.name} holds {_text_of(device, wanted)}."
        other = f"It has another device at the address {key[1]}: {found_text}"
        # libvirt compares the product only if the definition names it.
        return _judge_missing(device, other, request) if device.vendor else Finding(other)
    owner = next((guest.name for guest in host.guests.values() if guest.uuid != request.uuid and key in guest.devices), None)
    return Finding(f"Its {_text_of(device, wanted)} at the address {key[1]} is held by {owner}.") if owner else PASS


def _judge_missing(device: DeviceNeed, problem: str, request: Request) -> Finding:
    """Judge a device that libvirt does not find."""
    return Finding(warnings=(f"{problem} {request.name} would be without it there: its startupPolicy allows that.",)) if device.optional else Finding(problem)


def _wanted_product(device: DeviceNeed, request: Request, fleet: Fleet) -> Product:
    """Return vendor and product; a definition without them means the device at that address of its host."""
    if device.vendor or device.product:
        return _product_of(device)
    source = fleet.source_of(request)
    there = ((source.hardware.devices if source else None) or {}).get(device_key(device))
    return _product_of(there) if there else (None, None)


def _product_of(device: Device) -> Product:
    return device.vendor or None, device.product or None


def _text_of(device: Device, names: Product) -> str:
    label = ":".join(name for name in names if name)
    return f"{device.kind} device {label}" if label else f"{device.kind} device"


def _devices_text(request: Request) -> str:
    return ", ".join(" ".join(part for part in (_text_of(device, _product_of(device)), device.address) if part) for device in request.devices)
