# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Measures the load of this host and of its domains: it reads all counters, compares them with those of an earlier reading, and stores them for later ones."""

from __future__ import annotations

import contextlib
import functools
import time
import typing as t

from .._dataclass import dataclass
from .._libvirt.interface import OpenHost
from .._libvirt.values import Definition, DomainUse
from .._model.clock import BootMoment, boot_moment
from .._model.errors import KvmfleetError
from .._model.facts import NOT_READABLE
from .._model.load_signals import DomainLoad, HostLoad, LoadReading
from .._proc_files import parse_number
from .._time_limits import PendingAnswer
from .kernel_load import HostKernelLoad, KernelFiles, ProcessKernelLoad
from .load_means import NO_EARLIER_READING, GuestFigures, count_host, describe_domain_load, describe_host_load
from .load_readings import READINGS_FOLDER, ReadingStore

# Of a guest whose QEMU hangs, libvirt does not learn what it has used, and the answer about all others waits for it.
USE_SECONDS = 5.0
NO_ANSWER = f"libvirt did not report what the domains have used within {USE_SECONDS:.0f} s"


@dataclass(frozen=True)
class ActiveGuest:
    """An active domain whose load is wanted; see L(GuestFigures)."""

    uuid: str
    name: str
    used_mib: t.Optional[int] = None
    period_seconds: int = 0


@dataclass(frozen=True)
class LoadReport:
    """The result of a measurement.

    :arg domains: by UUID.
    :arg warnings: why later measurements cannot use the counters of this one.
    """

    host: HostLoad
    domains: t.Mapping[str, DomainLoad]
    warnings: t.Tuple[str, ...] = ()


@dataclass(frozen=True)
class _Snapshot:
    """All that was read at one moment. C(use) and C(processes) are by UUID; C(use) is null if libvirt did not report it."""

    at: BootMoment
    kernel: HostKernelLoad
    processes: t.Mapping[str, t.Optional[ProcessKernelLoad]]
    use: t.Optional[t.Mapping[str, DomainUse]]

    def describe_guest(self, uuid: str, guest: t.Optional[ActiveGuest]) -> GuestFigures:
        """Return what was read of an active domain, with what is known of it already."""
        used_mib, period_seconds = (guest.used_mib, guest.period_seconds) if guest else (None, 0)
        return GuestFigures(uuid, (self.use or {}).get(uuid), self.processes.get(uuid), used_mib, period_seconds)


class LoadMeasurement:
    """A measurement of the load of this host.

    libvirt is queried over a connection of its own while the caller gathers other facts: if the query hangs, only this connection is abandoned.

    :arg seconds: the mean is reported over about so many seconds, if an earlier reading allows it.
    :arg keeps: whether the counters are stored for later measurements.
    """

    def __init__(
        self,
        uri: str,
        open_host: OpenHost,
        seconds: int,
        keeps: bool = True,
        files: t.Optional[KernelFiles] = None,
        readings: t.Optional[ReadingStore] = None,
        clock: t.Callable[[], BootMoment] = boot_moment,
    ) -> None:
        self._seconds, self._keeps, self._clock = seconds, keeps, clock
        self._files, self._readings = files or KernelFiles(), readings or ReadingStore()
        self._answer = PendingAnswer(functools.partial(self._read_with_libvirt, uri, open_host))

    def finish(self, guests: t.Iterable[ActiveGuest]) -> LoadReport:
        """Return the load of the host and of these domains, and store the counters of all active domains for later measurements."""
        wanted = {guest.uuid: guest for guest in guests}
        read = self._answer.wait(USE_SECONDS) or self._read_kernel({guest.uuid: guest.name for guest in wanted.values()}, None)
        figures = {uuid: read.describe_guest(uuid, wanted.get(uuid)) for uuid in {**read.processes, **wanted}}
        now = LoadReading(read.at, count_host(read.kernel), {uuid: one.count() for uuid, one in figures.items()})
        earlier, why = self._find_earlier(now.at)
        return LoadReport(
            describe_host_load(read.kernel, now, earlier, why),
            {uuid: describe_domain_load(figures[uuid], now, earlier, NO_ANSWER, time.time()) for uuid in wanted},
            tuple(self._keep(now, NO_ANSWER if read.use is None else "")),
        )

    def _read_with_libvirt(self, uri: str, open_host: OpenHost) -> t.Optional[_Snapshot]:
        """Return everything; null if libvirt cannot report what the domains have used."""
        try:
            with contextlib.closing(open_host(uri)) as host:
                use = {use.uuid: use for use in host.list_use()}
        except KvmfleetError:
            return None
        return self._read_kernel({uuid: one.name for uuid, one in use.items()}, use)

    def _read_kernel(self, names: t.Mapping[str, str], use: t.Optional[t.Mapping[str, DomainUse]]) -> _Snapshot:
        return _Snapshot(self._clock(), self._files.read_host(), {uuid: self._files.read_process(name) for uuid, name in names.items()}, use)

    def _find_earlier(self, now: BootMoment) -> t.Tuple[t.Optional[LoadReading], str]:
        try:
            return self._readings.find_earlier(now, self._seconds), NO_EARLIER_READING
        except PermissionError:
            return None, f"{NOT_READABLE} ({READINGS_FOLDER})"
        except OSError:
            return None, NO_EARLIER_READING

    def _keep(self, now: LoadReading, why_not: str) -> t.Iterator[str]:
        """Store a reading, unless it lacks the domains; yield why it was not stored although it should have been."""
        if not self._keeps:
            return
        try:
            if not why_not:
                self._readings.keep(now)
        except (OSError, KvmfleetError) as error:
            why_not = str(error)
        if why_not:
            yield f"The counters of the load were not stored in {READINGS_FOLDER}, so no later task can report the mean since now: {why_not}"


def read_balloon_period(definition: Definition) -> int:
    """Return how often the guest reports to its balloon, in seconds; 0 for never."""
    stats = definition.root.find("devices/memballoon/stats") if definition.root is not None else None
    return (parse_number(stats.get("period", "")) or 0) if stats is not None else 0
