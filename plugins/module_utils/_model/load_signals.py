# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The load of a host and of its domains over an interval, as C(host_facts) reports it. A signal that is not known is null or absent."""

from __future__ import annotations

import dataclasses
import typing as t

from .codec import ABSENT, JsonObject, Maybe


@dataclasses.dataclass(frozen=True)
class HostLoad:
    """The load of a host, averaged over an interval. Pressure is the share of time, 0 to 1, in which some task waited for the resource (PSI "some").

    :arg cpu_pressure: null if the kernel of the host has no pressure stall information; so are the other pressures.
    :arg cpu_used_share: the share of CPU time in use, 0 to 1, guests included.
    :arg memory_used_mib: memory that is not available, guests included.
    :arg interval_seconds: how long the interval is.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    cpu_pressure: Maybe[float] = ABSENT
    memory_pressure: Maybe[float] = ABSENT
    io_pressure: Maybe[float] = ABSENT
    cpu_used_share: Maybe[float] = ABSENT
    memory_used_mib: Maybe[int] = ABSENT
    interval_seconds: Maybe[float] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class DomainLoad:
    """The load of a domain, averaged over the interval of its host.

    :arg cpu_cores_used: how many CPUs of the host it keeps busy.
    :arg memory_used_mib: memory of the host that it holds.
    :arg available_in_guest_mib: memory that the guest itself could still use, from recent statistics of its balloon.
    :arg cpu_pressure: the pressure in its control group, as that of a host.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    cpu_cores_used: Maybe[float] = ABSENT
    memory_used_mib: Maybe[int] = ABSENT
    available_in_guest_mib: Maybe[int] = ABSENT
    network_bytes_per_second: Maybe[float] = ABSENT
    disk_bytes_per_second: Maybe[float] = ABSENT
    cpu_pressure: Maybe[float] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)
