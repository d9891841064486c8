# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One-way moves: whether a guest that moves to a host could move back to its own host afterwards, as far as QEMU and libvirt decide that."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import GuestCpu

from ..fleet import Fleet, HostState
from ..request import Request
from .base import PASS, Filter, Finding, Rule, filters_for_host, relevant_filters
from .cpu import HOST_CPU_MODES, REQUIRED_POLICY, SHOWN_SINCE, CpuModel, CpuThreads, Hypervisor, MachineType, judge_start


class _GivenCpu(CpuModel):
    """The CPU of a guest that has the one of its host, or one made for it: a start gives it another one. Others keep theirs, which their own host can run."""

    def applies_to(self, request: Request) -> bool:
        """Return whether the guest is given the CPU of its host."""
        return bool(request.start_cpu or (request.cpu and request.cpu.mode in HOST_CPU_MODES))

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the missing features. An unknown value is a warning."""
        return judge_start(request, host) if request.start_cpu else super().judge_host(request, host, fleet)


# The rules whose answer depends on the CPU, the QEMU and the libvirt of both hosts. The guest keeps its machine type.
_RULES: t.Final[tuple[Filter, ...]] = (_GivenCpu(), MachineType(), CpuThreads(), Hypervisor())


def find_obstacle(request: Request, host: HostState, fleet: Fleet) -> t.Optional[str]:
    """Return why the guest could not move back from this host to the one that it runs on; None if it could, or if that is not known."""
    home = fleet.source_of(request)
    if home is None or home.name == host.name or home.unanswered is not None:
        return None
    returning = _after_move(request, host)
    rules = filters_for_host(relevant_filters(_RULES, returning), home)
    reasons = [reason for rule in rules if (reason := rule.judge_host(returning, home, fleet).reason)]
    return " ".join(reasons) or None


def _after_move(request: Request, host: HostState) -> Request:
    """Return the request of the guest as it runs after it has moved to this host."""
    qemu, cpu = host.hardware.hypervisor, request.needs.cpu
    if qemu and cpu and isinstance(cpu.shows_threads, bool):
        cpu = replace(cpu, shows_threads=qemu >= SHOWN_SINCE)
    needs = replace(request.needs, hypervisor=qemu or None, cpu=cpu, start_cpu=_give_cpu(request, host) if request.starts else ABSENT)
    return replace(request, needs=needs, source=host.name, source_uuid=host.host_uuid, source_id=host.host_id, starts=False)


def _give_cpu(request: Request, host: HostState) -> GuestCpu | Absent:
    """Return the CPU that a guest of host-model is given at a start on this host; absent for other guests."""
    given = host.hardware.cpu_features.get((request.arch or "", request.virt_type or ""), frozenset())
    return replace(request.start_cpu, features=dict.fromkeys(given, REQUIRED_POLICY)) if request.start_cpu else ABSENT


class OneWay(Rule):
    """A guest is not moved to a host that it cannot come back from, if the operator does not allow it."""

    name = "one_way"

    def applies_to(self, request: Request) -> bool:
        """Return whether the operator has excluded such moves."""
        return not request.one_way

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name what would refuse the way back."""
        reason = find_obstacle(request, host, fleet)
        if reason is None:
            return PASS
        return Finding(f"{request.name} could not come back to {request.source}, which would refuse it: {reason[:1].lower()}{reason[1:].rstrip('.')}.")
