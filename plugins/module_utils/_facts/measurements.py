# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a prediction is made from, measured just before: dirty rates, how much memory the guests use, and the rate of the link to other hosts."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
import typing as t

from .._libvirt.interface import Host, OpenHost
from .._model.errors import KvmfleetError
from .._model.facts import MAX_LINKS
from .._time_limits import answer_within

MIB = 1024**2
# QEMU and libvirt report a rate somewhat later than requested.
_SLACK_SECONDS = 3.0
_POLL_SECONDS = 0.1

Clock = t.Callable[[], float]


class DirtyRates:
    """Measures the dirty rates of domains while the caller does something else.

    :arg names: of domains of this host, by UUID. One whose processors hardly run writes nothing worth measuring, and is not waited for.
    """

    def __init__(
        self,
        host: Host,
        uuids: t.Sequence[str],
        seconds: int,
        clock: Clock = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
        names: t.Optional[t.Mapping[str, str]] = None,
    ) -> None:
        self._host, self._clock, self._sleep = host, clock, sleep
        self._uuids = host.start_dirty_rates(uuids, seconds) if seconds and uuids else []
        self._begun_at = clock()
        self._ready_at = self._begun_at + seconds
        self._names = {uuid: name for uuid, name in (names or {}).items() if uuid in self._uuids}
        self._used = self._read_processor_times()

    def collect_rates(self) -> t.Dict[str, float]:
        """Wait for the end of the measurements, and return the rates in MiB/s by UUID; domains that could not be measured are omitted."""
        if not self._uuids:
            return {}
        idle = self._find_idle()
        waiting = [uuid for uuid in self._uuids if uuid not in idle]
        return {**dict.fromkeys(idle, 0.0), **(self._wait_for_rates(waiting) if waiting else {})}

    def _wait_for_rates(self, uuids: t.Sequence[str]) -> t.Dict[str, float]:
        self._sleep(max(0.0, self._ready_at - self._clock()))
        while True:
            rates = self._host.read_dirty_rates(uuids)
            if len(rates) == len(uuids) or self._clock() > self._ready_at + _SLACK_SECONDS:
                return {uuid: rate / MIB for uuid, rate in rates.items()}
            self._sleep(_POLL_SECONDS)

    def _find_idle(self) -> t.List[str]:
        if not self._used:
            return []
        self._sleep(max(0.0, self._begun_at + _IDLE_SECONDS - self._clock()))
        seconds, used = self._clock() - self._begun_at, self._read_processor_times()
        return [uuid for uuid, before in self._used.items() if uuid in used and used[uuid] - before < seconds * _IDLE_SHARE]

    def _read_processor_times(self) -> t.Dict[str, float]:
        times = {uuid: read_processor_seconds(name) for uuid, name in self._names.items()}
        return {uuid: seconds for uuid, seconds in times.items() if seconds is not None}


# For how long the processors of a guest are observed at least, and the share of one core below which the guest is idle: in that time it could write 12 MiB a
# second, if it did nothing else.
_IDLE_SECONDS = 0.2
_IDLE_SHARE = 0.003
_TASKS_FOLDER = "/proc/{}/task"
# QEMU names the threads of processors "CPU 0/KVM" and so on. The first number of schedstat is the time on a core, the second one that in its queue, in
# nanoseconds.
_PROCESSOR = "CPU "


def read_processor_seconds(name: str) -> t.Optional[float]:
    """Return how long the virtual processors of a running domain of this host have run so far; null if that cannot be read."""
    try:
        times = sum_processor_times(_TASKS_FOLDER.format(_read_pid(name)))
    except (OSError, ValueError, IndexError):
        return None
    return times.run_ns / 1e9 if times else None


class ProcessorTimes(t.NamedTuple):
    """How long the virtual processors of a domain have run, and waited for a processor of the host while they could run."""

    run_ns: int
    waited_ns: int


def sum_processor_times(folder: str) -> t.Optional[ProcessorTimes]:
    """Return the times of the virtual processors together, see L(list_processor_times); null if there are none."""
    times = list_processor_times(folder)
    return ProcessorTimes(sum(one.run_ns for one in times), sum(one.waited_ns for one in times)) if times else None


def list_processor_times(folder: str) -> t.List[ProcessorTimes]:
    """Return the times of each virtual processor among the threads in a folder C(/proc/PID/task).

    Raises OSError, ValueError or IndexError if they cannot be read.
    """
    tasks = [os.path.join(folder, task) for task in os.listdir(folder)]
    processors = [task for task in tasks if _read_text(os.path.join(task, "comm")).startswith(_PROCESSOR)]
    times = [_read_text(os.path.join(task, "schedstat")).split() for task in processors]
    return [ProcessorTimes(int(fields[0]), int(fields[1])) for fields in times]


def _read_pid(name: str) -> int:
    return int(_read_text(_PID_FILE.format(name)))


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()


_PID_FILE = "/run/libvirt/qemu/{}.pid"
_STATUS_FILE = "/proc/{}/status"
# Guest memory is anonymous, or shared with other processes; it may be in huge pages, or swapped out. Files are QEMU's program and its libraries.
_GUEST_LINES = ("RssAnon", "RssShmem", "HugetlbPages", "VmSwap")
# What QEMU itself uses: 20 to 22 MiB for a guest without devices.
_OWN_MIB = 20


def read_used_mib(name: str, memory_mib: int) -> t.Optional[int]:
    """Return how many MiB of its memory a running domain of this host has written since its start: the rest are pages of zeros, which migrations do not send.

    Null if the process of the domain cannot be read.
    """
    try:
        fields = (line.partition(":") for line in _read_text(_STATUS_FILE.format(_read_pid(name))).splitlines())
        used_kib = sum(int(value.split()[0]) for key, _colon, value in fields if key in _GUEST_LINES)
    except (OSError, ValueError, IndexError):
        return None
    return min(memory_mib, max(0, used_kib // 1024 - _OWN_MIB))


# A link is probed for at most so many seconds, all of them together for at most so many, because hosts may be off.
_LINK_SECONDS = 4.0
_LINKS_SECONDS = 6.0
_CONNECT_SECONDS = 3.0
_LEAST_SECONDS = 0.5
# The first query empties what a link may send at once, the others are measured: the largest, unless a smaller one has already taken long enough. libvirt
# refuses text of more than 4 MiB.
_FIRST_BYTES = MIB // 2
_SIZES = (MIB, 15 * MIB // 4, 15 * MIB // 4, 15 * MIB // 4)
_LONG_SECONDS = 0.2
# A difference to the host itself that is smaller than this share of the time is not measurable.
_LEAST_SHARE = 0.25


def probe_links(host: Host, uris: t.Sequence[str], open_host: OpenHost, clock: Clock = time.monotonic) -> t.Dict[str, float]:
    """Return the rate of the link to the hosts at these URIs in MiB/s; hosts that do not answer in time are omitted.

    A query that changes nothing is padded to some MiB and sent to the other host over libvirt's own connection. What the same query takes on this host is
    subtracted, because that is the work of libvirt and not of the link.
    """
    rates: t.Dict[str, float] = {}
    end = clock() + _LINKS_SECONDS
    for uri in uris[:MAX_LINKS]:
        seconds = min(_LINK_SECONDS, end - clock())
        rate = answer_within(seconds, functools.partial(_probe_link, host, uri, open_host, clock)) if seconds > _LEAST_SECONDS else None
        if rate is not None:
            rates[uri] = rate
    return rates


def _probe_link(host: Host, uri: str, open_host: OpenHost, clock: Clock) -> t.Optional[float]:
    try:
        other = open_host(uri, _CONNECT_SECONDS)
        with contextlib.closing(other):
            other.carry_padding(_FIRST_BYTES)
            return _measure_rate(host, other, clock)
    except KvmfleetError:
        return None


def _measure_rate(host: Host, other: Host, clock: Clock) -> float:
    """Return the rate of the largest query. Of several, the shortest time counts, on either host: a busy processor only adds to it."""
    there: t.Dict[int, float] = {}
    own: t.Dict[int, float] = {}
    for length in _SIZES:
        there[length] = min(there.get(length, math.inf), _time_padding(other, length, clock))
        own[length] = min(own.get(length, math.inf), _time_padding(host, length, clock))
        if there[length] > _LONG_SECONDS:
            break
    seconds = max(there[length] - own[length], there[length] * _LEAST_SHARE, 1e-6)
    return round(length / MIB / seconds, 1)


def _time_padding(host: Host, length: int, clock: Clock) -> float:
    begun = clock()
    host.carry_padding(length)
    return clock() - begun
