# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The load of a host and of its domains, from two readings of their counters, as pure functions. Every signal that is null has its reason.

The reason that there is no earlier reading concerns all domains, and only the load of the host has it.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .._libvirt.values import DomainUse
from .._model.facts import NOT_REPORTED
from .._model.load_signals import DomainCounters, DomainLoad, HostCounters, HostLoad, LoadReading
from .kernel_load import HostKernelLoad, Pressure, ProcessKernelLoad

# The time over which the kernel itself averages pressure; reported if there is no earlier reading.
RECENT_SECONDS = 300.0
# Figures that a guest reported longer ago than this many periods do not describe it any more.
_PERIODS = 3

NO_PRESSURE = "the kernel of the host has no pressure stall information (/proc/pressure)"
NO_EARLIER_READING = "it is the mean since an earlier reading of its counter, and the host has none yet"
BEGAN_ANEW = "the earlier reading does not have the counter, or the counter began anew after it"
JUST_STARTED = "the domain started on the host, or arrived there, after the earlier reading"
NO_DEVICE = "the host has no physical device of this kind"
NO_GROUP = "the domain has no control group of its own"
NO_GROUP_PRESSURE = "the control group of the domain has no pressure stall information"
NO_PERIOD = "the definition of the domain sets no period for statistics of its balloon"
NOT_RECENT = "the guest has not reported to its balloon recently"
_DIGITS = 4


@dataclass(frozen=True)
class GuestFigures:
    """What is known of an active domain at the time of a reading.

    :arg use: null if libvirt did not report it.
    :arg process: null if the process of the domain could not be read.
    :arg used_mib: as in L(DomainFacts); null if it is not known.
    :arg period_seconds: how often the guest reports to its balloon; 0 for never.
    """

    uuid: str
    use: t.Optional[DomainUse]
    process: t.Optional[ProcessKernelLoad]
    used_mib: t.Optional[int]
    period_seconds: int

    def count(self) -> DomainCounters:
        """Return its counters."""
        processors = self.process.processors if self.process else None
        pressures = self.process.pressures if self.process else {}
        return DomainCounters(
            process=self.process.process if self.process else f"start {self.use.id if self.use else 0}",
            cpu_ns=self.use.cpu_ns if self.use else None,
            waiting_ns=processors.waited_ns if processors else None,
            network_bytes=self.use.network_bytes if self.use else None,
            disk_bytes=self.use.disk_bytes if self.use else None,
            cpu_pressure_us=_total(pressures.get("cpu")),
            memory_pressure_us=_total(pressures.get("memory")),
            io_pressure_us=_total(pressures.get("io")),
        )


def count_host(kernel: HostKernelLoad) -> HostCounters:
    """Return the counters of the host."""
    cpu = kernel.cpu
    return HostCounters(
        cpu_pressure_us=_total(kernel.pressures["cpu"]),
        memory_pressure_us=_total(kernel.pressures["memory"]),
        io_pressure_us=_total(kernel.pressures["io"]),
        cpu_used_ticks=cpu.used if cpu else None,
        cpu_steal_ticks=cpu.steal if cpu else None,
        cpu_total_ticks=cpu.total if cpu else None,
        network_bytes=kernel.network_bytes,
        disk_bytes=kernel.disk_bytes,
    )


def describe_host_load(kernel: HostKernelLoad, now: LoadReading, earlier: t.Optional[LoadReading], why_no_earlier: str) -> HostLoad:
    """Return the load of the host since the earlier reading; without one, what the kernel averages itself, and why there is no more.

    :arg now: the counters of this reading.
    :arg why_no_earlier: why there is no earlier reading, if there is none.
    """
    own, before = now.host, earlier.host if earlier else HostCounters()
    seconds = _seconds_between(now, earlier)
    ticks = _rise(own.cpu_total_ticks, before.cpu_total_ticks)
    has_pressure = any(kernel.pressures.values())
    load = HostLoad(
        cpu_pressure=_mean_pressure(kernel.pressures["cpu"], before.cpu_pressure_us, seconds),
        memory_pressure=_mean_pressure(kernel.pressures["memory"], before.memory_pressure_us, seconds),
        io_pressure=_mean_pressure(kernel.pressures["io"], before.io_pressure_us, seconds),
        cpu_used_share=_mean(own.cpu_used_ticks, before.cpu_used_ticks, ticks),
        memory_used_mib=kernel.memory_used_mib,
        interval_seconds=round(seconds, 1) if seconds else RECENT_SECONDS if has_pressure else None,
        cpu_steal_share=_mean(own.cpu_steal_ticks, before.cpu_steal_ticks, ticks),
        ksm_saved_mib=kernel.ksm_saved_mib,
        network_bytes_per_second=_mean(own.network_bytes, before.network_bytes, seconds),
        disk_bytes_per_second=_mean(own.disk_bytes, before.disk_bytes, seconds),
    )
    why = BEGAN_ANEW if earlier else why_no_earlier
    cpu = why if kernel.cpu else NOT_REPORTED
    reasons = {
        **dict.fromkeys(("cpu_pressure", "memory_pressure", "io_pressure"), NO_PRESSURE),
        **dict.fromkeys(("cpu_used_share", "cpu_steal_share"), cpu),
        **dict.fromkeys(("memory_used_mib", "ksm_saved_mib"), NOT_REPORTED),
        "interval_seconds": why,
        "network_bytes_per_second": NO_DEVICE if own.network_bytes is None else why,
        "disk_bytes_per_second": NO_DEVICE if own.disk_bytes is None else why,
    }
    return dataclasses.replace(load, unknown=_list_unknown(load, reasons))


def describe_domain_load(guest: GuestFigures, now: LoadReading, earlier: t.Optional[LoadReading], why_no_use: str, epoch_seconds: float) -> DomainLoad:
    """Return the load of a domain since the earlier reading; without counters of the domain there, only what needs none.

    :arg why_no_use: why libvirt has not reported what the domain has used, if it has not.
    :arg epoch_seconds: the clock of the host, by which the guest reported to its balloon.
    """
    own, before = now.domains[guest.uuid], earlier.domains.get(guest.uuid) if earlier else None
    is_new = before is None or before.process != own.process
    then = DomainCounters(own.process) if before is None or is_new else before
    seconds = None if is_new else _seconds_between(now, earlier)
    pressures = guest.process.pressures if guest.process else {}
    use = guest.use
    load = DomainLoad(
        cpu_cores_used=_mean(own.cpu_ns, then.cpu_ns, seconds and seconds * 1e9),
        memory_used_mib=guest.used_mib if guest.used_mib is not None or use is None else use.resident_mib,
        available_in_guest_mib=use.available_in_guest_mib if use and _is_recent(use, guest.period_seconds, epoch_seconds) else None,
        network_bytes_per_second=_mean(own.network_bytes, then.network_bytes, seconds),
        disk_bytes_per_second=_mean(own.disk_bytes, then.disk_bytes, seconds),
        cpu_pressure=_mean_pressure(pressures.get("cpu"), then.cpu_pressure_us, seconds),
        memory_pressure=_mean_pressure(pressures.get("memory"), then.memory_pressure_us, seconds),
        io_pressure=_mean_pressure(pressures.get("io"), then.io_pressure_us, seconds),
        cpu_cores_waiting=_mean(own.waiting_ns, then.waiting_ns, seconds and seconds * 1e9),
    )
    why = "" if earlier is None else JUST_STARTED if is_new else BEGAN_ANEW
    reasons = {
        **_explain_use(guest, own, why, why_no_use),
        **dict.fromkeys(("cpu_pressure", "memory_pressure", "io_pressure"), _explain_pressure(guest.process)),
        "cpu_cores_waiting": NOT_REPORTED if own.waiting_ns is None else why,
    }
    return dataclasses.replace(load, unknown=_list_unknown(load, reasons))


def _explain_use(guest: GuestFigures, own: DomainCounters, why_no_mean: str, why_no_use: str) -> t.Dict[str, str]:
    """Return why the signals that libvirt's statistics provide may be null."""
    why_missing = NOT_REPORTED if guest.use else why_no_use
    return {
        "memory_used_mib": why_missing,
        "available_in_guest_mib": (NOT_RECENT if guest.use else why_no_use) if guest.period_seconds else NO_PERIOD,
        "cpu_cores_used": why_missing if own.cpu_ns is None else why_no_mean,
        "network_bytes_per_second": why_missing if own.network_bytes is None else why_no_mean,
        "disk_bytes_per_second": why_missing if own.disk_bytes is None else why_no_mean,
    }


def _explain_pressure(process: t.Optional[ProcessKernelLoad]) -> str:
    if process is None:
        return NOT_REPORTED
    return NO_GROUP_PRESSURE if process.has_group else NO_GROUP


def _is_recent(use: DomainUse, period_seconds: int, epoch_seconds: float) -> bool:
    """Whether the guest has reported to its balloon within the last periods."""
    # QEMU rounds to whole seconds.
    return bool(period_seconds) and use.reported_at is not None and -1 <= epoch_seconds - use.reported_at <= _PERIODS * period_seconds


def _seconds_between(now: LoadReading, earlier: t.Optional[LoadReading]) -> t.Optional[float]:
    return now.at.seconds_since(earlier.at) if earlier else None


def _total(pressure: t.Optional[Pressure]) -> t.Optional[int]:
    return pressure.total_us if pressure else None


def _mean_pressure(pressure: t.Optional[Pressure], before_us: t.Optional[int], seconds: t.Optional[float]) -> t.Optional[float]:
    """Return the share of the interval, or what the kernel averages itself if there is no earlier counter."""
    if pressure is None:
        return None
    mean = _mean(pressure.total_us, before_us, seconds and seconds * 1e6)
    return min(mean, 1.0) if mean is not None else round(pressure.recent_share, _DIGITS)


def _mean(now: t.Optional[int], before: t.Optional[int], divisor: t.Optional[float]) -> t.Optional[float]:
    """Return how much a counter has risen, divided; null if there is nothing to compare, or if the counter began anew."""
    rise = _rise(now, before)
    return round(rise / divisor, _DIGITS) if rise is not None and divisor else None


def _rise(now: t.Optional[int], before: t.Optional[int]) -> t.Optional[int]:
    return None if now is None or before is None or now < before else now - before


def _list_unknown(load: t.Union[HostLoad, DomainLoad], reasons: t.Mapping[str, str]) -> t.Dict[str, str]:
    return {name: why for name, why in reasons.items() if why and getattr(load, name) is None}
