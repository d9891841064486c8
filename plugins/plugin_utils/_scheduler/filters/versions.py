# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the host's QEMU can go on with what the guest began on another: machine type and version."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from ..words import version_text
from .base import PASS, Finding, Rule

_VERSIONED = re.compile(r"(.*?)-?(\d+(?:\.\d+)+)(.*)")


class MachineType(Rule):
    """The platform must be there, and have the machine type that the guest was started with."""

    name = "machine_type"
    overridable = False

    def concerns(self, request: Request) -> bool:
        """Return whether the guest's platform is known."""
        return bool(request.arch and request.virt_type)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the newest machine type of the same family that the host has."""
        machines = host.hardware.machines.get((request.arch or "", request.virt_type or ""))
        if machines is None:
            return _no_platform(request, host)
        if request.machine is None or request.machine in machines:
            return PASS
        newest = newest_of_family(request.machine, machines)
        has = f"the newest of that family is {newest}" if newest else "it has none of that family"
        return Finding(f"It does not have the machine type {request.machine}: {has}.")


class Hypervisor(Rule):
    """QEMU moves guests to its own version or a newer one; to an older one it is not made for it."""

    name = "hypervisor"

    def concerns(self, request: Request) -> bool:
        """Return whether the version that it runs on is known."""
        return bool(request.hypervisor)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Compare major and minor version; an older micro version is a warning only."""
        ours, theirs = request.hypervisor or 0, host.hardware.hypervisor
        if theirs and theirs >= ours:
            return PASS
        if not theirs:
            return Finding(warnings=(f"The QEMU version of {host.name} is not known.",))
        versions = f"{version_text(theirs)}, and {request.name} runs on {version_text(ours)}"
        if theirs // 1000 == ours // 1000:
            return Finding(warnings=(f"The QEMU of {host.name} is a little older: {versions}.",))
        return Finding(f"Its QEMU is older: {versions}.")


def newest_of_family(machine: str, machines: Iterable[str]) -> str:
    """Return the machine type with the highest version that is called alike but for its version; empty where there is none."""
    wanted = _split(machine)
    family = [(version, name) for name in machines for prefix, version, suffix in [_split(name)] if version and (prefix, suffix) == (wanted[0], wanted[2])]
    return max(family, default=((), ""))[1]


def _split(machine: str) -> tuple[str, tuple[int, ...], str]:
    match = _VERSIONED.fullmatch(machine)
    return (match[1], tuple(int(part) for part in match[2].split(".")), match[3]) if match else (machine, (), "")


def _no_platform(request: Request, host: HostState) -> Finding:
    platforms = host.hardware.platforms
    if platforms is None:
        return Finding(warnings=(f"Whether {host.name} has the machine type {request.machine} is not known.",))
    has = ", ".join(f"{virt_type} for {arch}" for arch, virt_type in sorted(platforms)) or "nothing"
    return Finding(f"It cannot run guests of {request.virt_type} for {request.arch}; it has {has}.")
