# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Predicts how long moves last that share a link, one after the other or at once: a simulation of the window, of the link and of the iterations of each move.

Sizes are in MiB, rates in MiB/s, times in seconds.
"""

from __future__ import annotations

import math
import typing as t

from .._dataclass import dataclass
from .._model.watched_moves import AUTO_PARALLEL
from .downtime import SWITCHOVER_MS, DowntimeStep, downtime_at
from .link_share import (
    ALWAYS_PREPARED,
    ASSUMED_BYTES,
    BUSY_SHARE,
    ENDING_SECONDS,
    ENDLESS_SHARE,
    MAX_PREPARED,
    MEASURE_SECONDS,
    MIB,
    PREPARE_SECONDS,
    WAITING_MIB,
)

AUTO = AUTO_PARALLEL

# The time of a move besides its stream: until the destination has started QEMU and the stream begins; and after the guest has arrived, until QEMU has ended
# on the source. The second does not count for the move, but takes processors from others. Measured: 0.2 to 0.3 on an idle machine, 0.4 to 0.5 on a busy one.
SETUP_SECONDS = 0.3
END_SECONDS = 0.3
# How fast QEMU finds pages of zeros.
SCAN_MIB = 4000.0
# The part of a link that carries memory; the rest are headers, and waiting between iterations.
PAYLOAD = 0.93
# The ends of the range are this factor below and above the value. Their ratio is 2.
SPREAD = math.sqrt(2)

# libvirt reports whole MiB/s, rounded down: on average, half of one is missing.
_ROUNDING_MIB = 0.5
_MAX_ROUNDS = 200
_TINY = 1e-9


@dataclass(frozen=True)
class MoveLoad:
    """What a move has to send, and its limits.

    :arg used_mib: what the guest has written of its memory.
    :arg dirty_mib: the dirty rate that was measured; null if it was not.
    :arg ramp: the downtimes that are allowed, see L(downtime_steps).
    :arg timeout_seconds: the limit of the move; 0 is none.
    :arg copied_mib: disks that are copied before the memory.
    :arg cap_mib: the bandwidth limit; 0 is none.
    """

    memory_mib: float
    used_mib: float
    dirty_mib: t.Optional[float]
    ramp: t.Sequence[DowntimeStep]
    timeout_seconds: int = 0
    copied_mib: float = 0.0
    cap_mib: float = 0.0

    @property
    def written_mib(self) -> float:
        """What the guest writes in a second."""
        return self.dirty_mib + _ROUNDING_MIB if self.dirty_mib else 0.0


@dataclass(frozen=True)
class Capacity:
    """What the moves of one source share.

    :arg link_mib: the rate of the link.
    :arg window: the number of moves at the same time, or C(AUTO) for the rule of C(link_share.py).
    :arg cpus: of the smaller of the hosts: starting and ending many QEMUs at once takes longer on few processors.
    :arg setup_seconds: the time of a move besides its stream.
    :arg is_link_set: whether the source knows the link from its operator.
    """

    link_mib: float
    window: int
    cpus: int = 64
    setup_seconds: float = SETUP_SECONDS
    is_link_set: bool = False


@dataclass(frozen=True)
class Prediction:
    """The prediction for one move.

    :arg begins: when it begins, counted from the beginning of the first move; C(seconds) is how long it lasts, between C(low) and C(high).
    :arg downtime_ms: the pause of the guest; null if nothing was measured, or if the move does not converge.
    :arg converges: whether it finishes within its limits without force; null if nothing was measured.
    """

    begins: float
    seconds: float
    downtime_ms: t.Optional[int] = None
    converges: t.Optional[bool] = None

    @property
    def low(self) -> float:
        """The lower end of the range."""
        return range_of(self.seconds)[0]

    @property
    def high(self) -> float:
        """The upper end of the range."""
        return range_of(self.seconds)[1]


def range_of(seconds: float) -> t.Tuple[float, float]:
    """Return the range of a predicted time; its ends differ by a factor of 2."""
    return round_seconds(seconds / SPREAD), round_seconds(seconds * SPREAD)


def round_seconds(seconds: float) -> float:
    """Return a predicted time as it is shown: below a second, a tenth would be too coarse for the range."""
    return round(seconds, 2 if seconds < 1 else 1)


_SETUP, _STREAM, _END = "setup", "stream", "end"


class _Job:
    """A move in the simulation. C(left) are seconds before and after the stream, MiB in it."""

    def __init__(self, number: int, load: MoveLoad, begins: float, setup_seconds: float) -> None:
        self.number, self.load, self.begins = number, load, begins
        self.phase, self.left = _SETUP, setup_seconds
        self.rounds, self.round_began = 0, begins
        self.pause_ms: t.Optional[int] = None
        self.result: t.Optional[Prediction] = None

    @property
    def remaining_mib(self) -> float:
        """What the hypervisor reports as remaining: all of the memory at first, pages of zeros included."""
        if self.phase != _STREAM:
            return self.load.memory_mib
        return self.left + (max(0.0, self.load.memory_mib - self.load.used_mib) if self.rounds == 0 else 0.0)

    def wanted_mib(self) -> float:
        """The most that its stream can use of the link."""
        return self.load.cap_mib or math.inf

    def finish_phase(self, now: float, rate: float) -> None:
        """Enter the next phase, or the next iteration, at this time. C(rate) is that of its stream."""
        if self.phase == _SETUP:
            scan_seconds = max(0.0, self.load.memory_mib - self.load.used_mib) / SCAN_MIB
            self.phase, self.round_began = _STREAM, now
            self.left = self.load.copied_mib + self.load.used_mib + scan_seconds * rate
        elif self.phase == _STREAM:
            self._finish_round(now, rate)
        else:
            self.left = 0.0

    def _finish_round(self, now: float, rate: float) -> None:
        """Decide after an iteration whether the rest fits into the allowed downtime, as the hypervisor does. The guest is paused for this rest."""
        load, elapsed = self.load, now - self.begins
        is_measured = load.dirty_mib is not None
        if self.pause_ms is not None:
            self._end(elapsed, self.pause_ms if is_measured else None, True if is_measured else None)
            return
        rest = min(load.used_mib, load.written_mib * (now - self.round_began))
        self.rounds, self.round_began = self.rounds + 1, now
        self.left = max(rest, _TINY)
        if rest * 1000 / rate <= downtime_at(load.ramp, elapsed):
            self.pause_ms = SWITCHOVER_MS + int(rest * 1000 / rate)
        elif (load.timeout_seconds and elapsed > load.timeout_seconds) or self.rounds >= _MAX_ROUNDS:
            self._end(load.timeout_seconds or elapsed, None, False)

    def _end(self, seconds: float, downtime_ms: t.Optional[int], converges: t.Optional[bool]) -> None:
        self.phase, self.left = _END, END_SECONDS
        self.result = Prediction(round(self.begins, 1), round_seconds(seconds), downtime_ms, converges)


def predict_moves(loads: t.Sequence[MoveLoad], capacity: Capacity) -> t.List[Prediction]:
    """Return a prediction for each of these moves of one source, which begin in this order, as far as its window permits."""
    pace = _SharedLink(capacity) if capacity.window == AUTO else _FixedWindow(capacity)
    waiting, now = list(range(len(loads))), 0.0
    jobs: t.List[_Job] = []
    results: t.Dict[int, Prediction] = {}
    while waiting or jobs:
        while (number := pace.choose_next([loads[one] for one in waiting], _under_way(jobs), now)) is not None:
            jobs.append(_Job(waiting[number], loads[waiting.pop(number)], now, capacity.setup_seconds))
        speeds = _find_speeds(jobs, pace, capacity)
        step = min([job.left / speed for job, speed in zip(jobs, speeds)] + ([pace.next_change(_under_way(jobs))] if waiting else []))
        now += step
        for job, speed in zip(jobs, speeds):
            job.left -= step * speed
        for job, speed in zip(list(jobs), speeds):
            if job.left <= _TINY:
                job.finish_phase(now, speed if job.phase == _STREAM else pace.find_rates([*_streams(jobs), job])[-1])
        results.update({job.number: job.result for job in jobs if job.result})
        jobs = [job for job in jobs if job.phase != _END or job.left > _TINY]
    return [results[number] for number in range(len(loads))]


def _under_way(jobs: t.Sequence[_Job]) -> t.List[_Job]:
    return [job for job in jobs if job.phase != _END]


def _streams(jobs: t.Sequence[_Job]) -> t.List[_Job]:
    return [job for job in jobs if job.phase == _STREAM]


def _find_speeds(jobs: t.Sequence[_Job], pace: _Pace, capacity: Capacity) -> t.List[float]:
    """Return how fast each job gets on: MiB/s in its stream, otherwise seconds in a second, fewer than one if the processors are not sufficient."""
    beside = sum(job.phase != _STREAM for job in jobs)
    rates = iter(pace.find_rates(_streams(jobs)))
    return [next(rates) if job.phase == _STREAM else min(1.0, capacity.cpus / beside) for job in jobs]


class _Pace(t.Protocol):
    """When moves begin, and how they share the link."""

    def choose_next(self, waiting: t.Sequence[MoveLoad], jobs: t.Sequence[_Job], now: float) -> t.Optional[int]:
        """Return which of the waiting moves begins now, beside these jobs."""

    def find_rates(self, streams: t.Sequence[_Job]) -> t.List[float]:
        """Return the rates of these streams."""

    def next_change(self, jobs: t.Sequence[_Job]) -> float:
        """Return after how many seconds another move may begin, although no job has ended a phase."""


class _FixedWindow:
    """A fixed number of moves at once. A guest that has arrived frees its slot. Streams share the link equally."""

    def __init__(self, capacity: Capacity) -> None:
        self._slots = capacity.window
        self._link_mib = capacity.link_mib * PAYLOAD

    def choose_next(self, waiting: t.Sequence[MoveLoad], jobs: t.Sequence[_Job], now: float) -> t.Optional[int]:
        return 0 if waiting and len(jobs) < self._slots else None

    def find_rates(self, streams: t.Sequence[_Job]) -> t.List[float]:
        return share_link([job.wanted_mib() for job in streams], self._link_mib)

    def next_change(self, jobs: t.Sequence[_Job]) -> float:
        return math.inf


class _SharedLink:
    """The rule of C(link_share.py): one guest is sent at a time, a busy one first, and the next ones are prepared and wait."""

    def __init__(self, capacity: Capacity) -> None:
        self._link_mib = capacity.link_mib * PAYLOAD
        self._is_known = capacity.is_link_set
        self._measured_at = capacity.setup_seconds + MEASURE_SECONDS

    def choose_next(self, waiting: t.Sequence[MoveLoad], jobs: t.Sequence[_Job], now: float) -> t.Optional[int]:
        senders = self._choose_senders(_streams(jobs))
        prepared = [job for job in jobs if job not in senders]
        # Until the source has measured a link that nobody has set, it assumes a rate.
        is_measured = self._is_known or now >= self._measured_at
        faster = 1.0 if is_measured else max(1.0, ASSUMED_BYTES / MIB / self._link_mib)
        sending, all_of_them = self._seconds_of(senders) / faster, self._seconds_of(jobs) / faster
        if len(prepared) >= MAX_PREPARED or sending >= PREPARE_SECONDS or (len(prepared) >= ALWAYS_PREPARED and all_of_them >= PREPARE_SECONDS):
            return None
        has_busy = any(self._is_busy(job.load) for job in jobs)
        return next((number for number, load in enumerate(waiting) if not (has_busy and self._is_busy(load))), None)

    def find_rates(self, streams: t.Sequence[_Job]) -> t.List[float]:
        senders = self._choose_senders(streams)
        return share_link([job.wanted_mib() if job in senders else WAITING_MIB for job in streams], self._link_mib)

    def next_change(self, jobs: t.Sequence[_Job]) -> float:
        ahead = self._seconds_of(self._choose_senders(_streams(jobs))) - PREPARE_SECONDS
        return ahead + _TINY if ahead > 0 else math.inf

    def _choose_senders(self, streams: t.Sequence[_Job]) -> t.List[_Job]:
        ordered = sorted(streams, key=self._rank)
        senders, free = [], self._link_mib
        for job in ordered:
            if free <= 0:
                break
            senders.append(job)
            # What a stream with a limit leaves, others use; and a quiet one that ends leaves the link to the next one already.
            is_ending = not self._is_busy(job.load) and self._seconds_of([job]) < ENDING_SECONDS
            free -= 0 if is_ending else job.wanted_mib()
        return senders

    def _rank(self, job: _Job) -> t.Tuple[int, int]:
        """Return the place of a stream: busy guests first, and those last that were seen to write as fast as they are sent."""
        is_endless = job.rounds > 1 and job.load.written_mib >= ENDLESS_SHARE * self._link_mib
        return 2 if is_endless else 0 if self._is_busy(job.load) else 1, job.number

    def _is_busy(self, load: MoveLoad) -> bool:
        return load.written_mib >= BUSY_SHARE * self._link_mib

    def _seconds_of(self, jobs: t.Iterable[_Job]) -> float:
        return sum(job.remaining_mib for job in jobs) / self._link_mib


def share_link(wanted: t.Sequence[float], link_mib: float) -> t.List[float]:
    """Return the share of each stream: equal, except that a stream gets no more than it wants, and the others get what that leaves."""
    shares = [0.0] * len(wanted)
    free, open_streams = link_mib, sorted(range(len(wanted)), key=lambda number: wanted[number])
    while open_streams:
        number = open_streams.pop(0)
        shares[number] = min(wanted[number], free / (len(open_streams) + 1))
        free -= shares[number]
    return shares


def drain_seconds(predictions: t.Sequence[Prediction]) -> float:
    """Return how long all of the moves last, from the beginning of the first to the end of the last one; 0 without moves."""
    return round(max((one.begins + one.seconds for one in predictions), default=0.0), 1)
