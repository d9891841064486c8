# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The use of every host and of its guests, from the signals in the facts. A guest whose load was not measured counts with its part of its host's load."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.load_signals import DomainLoad, HostLoad

from .._scheduler.fleet import HostState
from .pressure import CPU, IO, KNEES, MEMORY, Vector, effective_share, share_at

_NO_HOST_LOAD: t.Final = HostLoad()
_NO_DOMAIN_LOAD: t.Final = DomainLoad()


class GuestUse(t.NamedTuple):
    """What a guest uses: CPUs, MiB of memory beside huge pages, bytes a second, and vCPUs."""

    uuid: str
    name: str
    amounts: Vector


@dataclass(frozen=True)
class HostUse:
    """What a host has and uses.

    :arg capacity: CPUs, MiB beside huge pages, bytes a second, and vCPUs.
    :arg shares: the share of each that is in use; more than 1 for demand that exceeds the host.
    :arg is_measured: whether the host has pressure stall information.
    """

    name: str
    capacity: Vector
    shares: Vector
    guests: tuple[GuestUse, ...]
    is_measured: bool


def has_signals(facts: HostFacts) -> bool:
    """Whether the facts say how busy the processors of the host are: by its pressure, its CPU time, or the CPU time of its guests."""
    load = facts.load or _NO_HOST_LOAD
    if _known(load.cpu_pressure) is not None or _known(load.cpu_used_share) is not None:
        return True
    active = [domain for domain in facts.domains or () if domain.active]
    return bool(active) and all(_known((domain.load or _NO_DOMAIN_LOAD).cpu_cores_used) is not None for domain in active)


def read_uses(states: Mapping[str, HostState]) -> list[HostUse]:
    """Return the use of these hosts, which answered and have signals, in the order of their names."""
    ordered = [states[name] for name in sorted(states)]
    io_capacity = _find_io_capacity([state.hardware.facts for state in ordered])
    return [_read_use(state, io_capacity) for state in ordered]


def _read_use(state: HostState, io_capacity: float) -> HostUse:
    facts = state.hardware.facts
    load = facts.load or _NO_HOST_LOAD
    active = [domain for domain in facts.domains or () if domain.active]
    cpus, total_mib = float(max(1, state.hardware.cpus)), float(max(1, state.total_mib))
    cores = _read_cores(load, active, cpus)
    guests = tuple(_read_guest(domain, used, state) for domain, used in zip(active, cores, strict=True))
    cpu_used, memory_used = _known(load.cpu_used_share), _known(load.memory_used_mib)
    cpu = sum(cores) / cpus if cpu_used is None else cpu_used
    # For the kernel, all huge pages are in use.
    memory_mib = sum(guest.amounts[MEMORY] for guest in guests) if memory_used is None else max(0.0, memory_used - state.hardware.page_pool_mib)
    memory = memory_mib / total_mib
    io_pressure = _known(load.io_pressure)
    io = sum(guest.amounts[IO] for guest in guests) / io_capacity
    shares = (
        effective_share(cpu, _known(load.cpu_pressure), CPU),
        effective_share(memory, _known(load.memory_pressure), MEMORY),
        effective_share(io, io_pressure, IO),
        state.used_vcpus / max(1, state.capacity_vcpus),
    )
    is_measured = _known(load.cpu_pressure) is not None
    return HostUse(state.name, (cpus, total_mib, io_capacity, float(max(1, state.capacity_vcpus))), shares, guests, is_measured)


def _read_cores(load: HostLoad, active: Sequence[DomainFacts], cpus: float) -> list[float]:
    """Return the CPUs that each guest keeps busy. Those that were not measured share the rest of the CPU time of the host by their vCPUs."""
    measured = [_known((domain.load or _NO_DOMAIN_LOAD).cpu_cores_used) for domain in active]
    open_vcpus = sum(_vcpus(domain) for domain, cores in zip(active, measured, strict=True) if cores is None)
    if not open_vcpus:
        return [cores or 0.0 for cores in measured]
    used = _known(load.cpu_used_share)
    rest = max(0.0, (0.0 if used is None else used) * cpus - sum(cores or 0.0 for cores in measured))
    return [rest * _vcpus(domain) / open_vcpus if cores is None else cores for domain, cores in zip(active, measured, strict=True)]


def _vcpus(domain: DomainFacts) -> int:
    return domain.vcpus or 1


def _read_guest(domain: DomainFacts, cores: float, state: HostState) -> GuestUse:
    load = domain.load or _NO_DOMAIN_LOAD
    memory = _known(load.memory_used_mib)
    memory_mib = (domain.used_mib or domain.memory_mib or 0) if memory is None else memory
    guest = state.guests.get(domain.uuid)
    if guest and guest.page_mib and state.hardware.page_pool_mib:
        # Its huge pages are allocated as a whole when it starts, and are no part of the memory that the host has for all.
        memory_mib = min(state.ordinary_mib(guest), max(0.0, memory_mib - guest.page_mib))
    return GuestUse(domain.uuid, domain.name or domain.uuid, (cores, float(memory_mib), _io_rate(load), float(_vcpus(domain))))


def _io_rate(load: DomainLoad) -> float:
    return max(0.0, load.network_bytes_per_second or 0.0) + max(0.0, load.disk_bytes_per_second or 0.0)


def _find_io_capacity(hosts: Sequence[HostFacts]) -> float:
    """Return how many bytes a second a host can carry: no fact says it, so it is the most that was seen without pressure, or computed from the pressure.

    The busiest host without pressure is at the knee.
    """
    found = 1.0
    for facts in hosts:
        rate = sum(_io_rate(domain.load or _NO_DOMAIN_LOAD) for domain in facts.domains or () if domain.active)
        pressure = _known((facts.load or _NO_HOST_LOAD).io_pressure)
        found = max(found, rate / (KNEES[IO] if pressure is None else share_at(pressure, IO)))
    return found


def _known(value: Maybe[float]) -> float | None:
    """Return a signal, which is never negative; None if it is null or absent."""
    return max(0.0, value) if isinstance(value, (int, float)) else None
