# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Memory and CPUs: what the domain needs fits beside what is active on the host and what is on its way there. An exact fit passes."""

from __future__ import annotations

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from .base import PASS, Finding, Rule


class Memory(Rule):
    """Counted in MiB: (total - reserved) x ratio, and no domain larger than the host, however much the ratio promises."""

    name = "memory"

    def passes(self, request: Request, host: HostState, fleet: Fleet) -> bool:
        """Compare, and make no sentence for each of the full hosts of a large fleet."""
        return request.memory_mib <= host.total_mib and request.memory_mib <= host.free_mib(request.uuid)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Say how many MiB are missing."""
        if self.passes(request, host, fleet):
            return PASS
        if request.memory_mib > host.total_mib:
            return Finding(f"{request.name} has {request.memory_mib} MiB of memory, the whole host has {host.total_mib} MiB.")
        free = host.free_mib(request.uuid)
        return Finding(
            f"It is {request.memory_mib - free} MiB short of memory: {request.memory_mib} MiB are needed, {max(0, free)} MiB of {host.capacity_mib} MiB "
            f"are free ({host.settings.reserved_memory_mib} MiB are reserved for the host itself)."
        )


class Cpus(Rule):
    """Counted in vCPUs: (CPUs - reserved) x ratio, and no domain with more vCPUs than the host has CPUs."""

    name = "cpus"

    def passes(self, request: Request, host: HostState, fleet: Fleet) -> bool:
        """Compare, and make no sentence."""
        return request.vcpus <= host.hardware.cpus and request.vcpus <= host.free_vcpus(request.uuid)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Say how many vCPUs are missing."""
        if self.passes(request, host, fleet):
            return PASS
        if request.vcpus > host.hardware.cpus:
            return Finding(f"{request.name} has {request.vcpus} vCPUs, the whole host has {host.hardware.cpus} CPUs.")
        free = host.free_vcpus(request.uuid)
        return Finding(
            f"It is {request.vcpus - free} vCPUs short: {request.vcpus} are needed, {max(0, free)} of {host.capacity_vcpus} are free "
            f"({host.hardware.cpus} CPUs, {host.settings.reserved_cpus} of them reserved, times {host.settings.cpu_allocation_ratio:g})."
        )
