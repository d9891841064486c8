# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Devices of the host that the guest holds."""

from __future__ import annotations

import typing as t

from ..fleet import Fleet
from ..guest import device_key
from ..hardware import Body
from ..host_state import HostState
from ..request import Request
from .base import Finding, Rule

Names = tuple[t.Optional[str], t.Optional[str]]


class HostDevices(Rule):
    """Each must be there at the same address, be the same product, and be nobody else's. Whether it can be moved is for QEMU to say."""

    name = "host_devices"

    def concerns(self, request: Request) -> bool:
        """Return whether it holds any device."""
        return bool(request.devices)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the devices that are missing, others or taken."""
        if host.hardware.devices is None:
            return Finding(warnings=(f"Whether {host.name} has the devices that {request.name} holds is not known.",))
        problems = [problem for problem in (_problem(device, request, host, fleet) for device in request.devices) if problem]
        if problems:
            return Finding(" ".join(problems))
        return Finding(warnings=(f"{request.name} holds {_listed(request)}: only QEMU can say whether the state of such a device moves to {host.name}.",))


def _problem(device: Body, request: Request, host: HostState, fleet: Fleet) -> str:
    devices = host.hardware.devices or {}
    key, wanted = device_key(device), _wanted(device, request, fleet)
    if not key[1]:
        found = any(kind == key[0] and _names(there) == wanted for (kind, _address), there in devices.items())
        return "" if found else f"It has no {_text(device, wanted)}."
    there = devices.get(key)
    if there is None:
        return f"It has no {_text(device, wanted)} at the address {key[1]}."
    if any(wanted) and any(_names(there)) and _names(there) != wanted:
        return f"It has another device at the address {key[1]}: {_text(there, _names(there))}, and {request.name} holds {_text(device, wanted)}."
    owner = next((guest.name for guest in host.guests.values() if guest.uuid != request.uuid and key in guest.devices), None)
    return f"Its {_text(device, wanted)} at the address {key[1]} is held by {owner}." if owner else ""


def _wanted(device: Body, request: Request, fleet: Fleet) -> Names:
    """Return vendor and product; a definition that does not say them means what its host has at that address."""
    if device.get("vendor") or device.get("product"):
        return _names(device)
    source = fleet.source_of(request)
    return _names(((source.hardware.devices if source else None) or {}).get(device_key(device), {}))


def _names(device: Body) -> Names:
    return device.get("vendor"), device.get("product")


def _text(device: Body, names: Names) -> str:
    told = ":".join(name for name in names if name)
    return f"{device['kind']} device {told}" if told else f"{device['kind']} device"


def _listed(request: Request) -> str:
    return ", ".join(" ".join(part for part in (_text(device, _names(device)), device.get("address")) if part) for device in request.devices)
