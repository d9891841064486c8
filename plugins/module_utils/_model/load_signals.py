# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The load of a host and of its domains over an interval, as C(host_facts) reports it, and the readings of counters from which it is computed.

A signal that is not known is null or absent.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .clock import BootMoment
from .codec import ABSENT, Absent, JsonObject, Maybe


@dataclass(frozen=True)
class HostLoad:
    """The load of a host, averaged over an interval. Pressure is the share of time, 0 to 1, in which some task waited for the resource (PSI "some").

    :arg cpu_pressure: null if the kernel of the host has no pressure stall information; so are the other pressures.
    :arg cpu_used_share: the share of CPU time in use, 0 to 1, guests included.
    :arg memory_used_mib: memory that is not available, guests included.
    :arg interval_seconds: how long the interval is.
    :arg cpu_steal_share: the share of CPU time that a hypervisor below this host gave to others, 0 to 1.
    :arg ksm_saved_mib: memory that the kernel saves because guests share equal pages.
    :arg network_bytes_per_second: sent and received by the physical network interfaces; C(disk_bytes_per_second) read and written by the physical disks.
    :arg unknown: why a signal is null, by its name.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    cpu_pressure: Maybe[float] = ABSENT
    memory_pressure: Maybe[float] = ABSENT
    io_pressure: Maybe[float] = ABSENT
    cpu_used_share: Maybe[float] = ABSENT
    memory_used_mib: Maybe[int] = ABSENT
    interval_seconds: Maybe[float] = ABSENT
    cpu_steal_share: Maybe[float] = ABSENT
    ksm_saved_mib: Maybe[int] = ABSENT
    network_bytes_per_second: Maybe[float] = ABSENT
    disk_bytes_per_second: Maybe[float] = ABSENT
    unknown: t.Union[t.Mapping[str, str], Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DomainLoad:
    """The load of a domain, averaged over the interval of its host.

    :arg cpu_cores_used: how many CPUs of the host it keeps busy.
    :arg memory_used_mib: memory of the host that it holds.
    :arg available_in_guest_mib: memory that the guest itself could still use, from recent statistics of its balloon.
    :arg cpu_pressure: the pressure in its control group, as that of a host; so are the other pressures.
    :arg cpu_cores_waiting: how many of its virtual CPUs wait for a CPU of the host, which the guest sees as steal.
    :arg unknown: why a signal is null, by its name.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    cpu_cores_used: Maybe[float] = ABSENT
    memory_used_mib: Maybe[int] = ABSENT
    available_in_guest_mib: Maybe[int] = ABSENT
    network_bytes_per_second: Maybe[float] = ABSENT
    disk_bytes_per_second: Maybe[float] = ABSENT
    cpu_pressure: Maybe[float] = ABSENT
    memory_pressure: Maybe[float] = ABSENT
    io_pressure: Maybe[float] = ABSENT
    cpu_cores_waiting: Maybe[float] = ABSENT
    unknown: t.Union[t.Mapping[str, str], Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class HostCounters:
    """Counters of a host, which only rise until its next boot. One that the host does not have is absent.

    :arg cpu_pressure_us: for how many microseconds some task has waited for a CPU; so are the other pressures.
    :arg cpu_used_ticks: CPU time in use, in clock ticks; C(cpu_total_ticks) is all CPU time.
    """

    cpu_pressure_us: t.Optional[int] = None
    memory_pressure_us: t.Optional[int] = None
    io_pressure_us: t.Optional[int] = None
    cpu_used_ticks: t.Optional[int] = None
    cpu_steal_ticks: t.Optional[int] = None
    cpu_total_ticks: t.Optional[int] = None
    network_bytes: t.Optional[int] = None
    disk_bytes: t.Optional[int] = None
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DomainCounters:
    """Counters of an active domain, which only rise until it stops.

    :arg process: identifies the process of the domain on its host: counters of different processes are never compared.
    :arg cpu_ns: CPU time that it has used; C(waiting_ns) is for how long its virtual CPUs have waited for a CPU of the host.
    """

    process: str
    cpu_ns: t.Optional[int] = None
    waiting_ns: t.Optional[int] = None
    network_bytes: t.Optional[int] = None
    disk_bytes: t.Optional[int] = None
    cpu_pressure_us: t.Optional[int] = None
    memory_pressure_us: t.Optional[int] = None
    io_pressure_us: t.Optional[int] = None
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class LoadReading:
    """All counters at one moment. C(domains) is by UUID."""

    at: BootMoment
    host: HostCounters
    domains: t.Mapping[str, DomainCounters]
    extra: JsonObject = dataclasses.field(default_factory=dict)
