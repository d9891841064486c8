# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Predicts how long moves last that share a link, one after the other or at once: a simulation of the window, of the link and of the iterations of each move.

Sizes are in MiB, rates in MiB/s, times in seconds.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

from .downtime import SWITCHOVER_MS, DowntimeStep, downtime_at

# The time of a move besides its stream on an idle machine: until the destination has started QEMU and the stream begins; and after the guest has arrived,
# until QEMU has ended on the source. The second does not count for the move, but takes processors from others. Measured: 0.5 to 0.6 and 0.4 to 0.5.
SETUP_SECONDS = 0.6
END_SECONDS = 0.5
# How fast QEMU finds pages of zeros.
SCAN_MIB = 4000.0
# The part of a link that carries memory; the rest are headers, and waiting between iterations.
PAYLOAD = 0.95
# The ends of the range are this factor below and above the value. Their ratio is 2.
SPREAD = math.sqrt(2)

# libvirt reports whole MiB/s, rounded down: on average, half of one is missing.
_ROUNDING_MIB = 0.5
_MAX_ROUNDS = 200
_TINY = 1e-9


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What the moves of one source share.

    :arg link_mib: the rate of the link.
    :arg window: the maximum number of moves at the same time.
    :arg cpus: of the smaller of the hosts: starting and ending many QEMUs at once takes longer on few processors.
    :arg setup_seconds: the time of a move besides its stream.
    """

    link_mib: float
    window: int
    cpus: int = 64
    setup_seconds: float = SETUP_SECONDS


@dataclasses.dataclass(frozen=True)
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
    return round(seconds / SPREAD, 1), round(seconds * SPREAD, 1)


_SETUP, _STREAM, _END = "setup", "stream", "end"


class _Job:
    """A move in the simulation. C(left) are seconds before and after the stream, MiB in it."""

    def __init__(self, number: int, load: MoveLoad, begins: float, setup_seconds: float) -> None:
        self.number, self.load, self.begins = number, load, begins
        self.phase, self.left = _SETUP, setup_seconds
        self.rounds, self.round_began = 0, begins
        self.result: t.Optional[Prediction] = None

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
        """Decide after an iteration whether the rest fits into the allowed downtime, as the hypervisor does."""
        load, elapsed = self.load, now - self.begins
        rest = min(load.used_mib, load.written_mib * (now - self.round_began))
        self.rounds, self.round_began = self.rounds + 1, now
        if rest * 1000 / rate <= downtime_at(load.ramp, elapsed):
            downtime_ms = None if load.dirty_mib is None else SWITCHOVER_MS + int(rest * 1000 / rate)
            self._end(elapsed + rest / rate, downtime_ms, None if load.dirty_mib is None else True)
        elif (load.timeout_seconds and elapsed > load.timeout_seconds) or self.rounds >= _MAX_ROUNDS:
            self._end(load.timeout_seconds or elapsed, None, False)
        else:
            self.left = max(rest, _TINY)

    def _end(self, seconds: float, downtime_ms: t.Optional[int], converges: t.Optional[bool]) -> None:
        self.phase, self.left = _END, END_SECONDS
        self.result = Prediction(round(self.begins, 1), round(seconds, 1), downtime_ms, converges)


def predict_moves(loads: t.Sequence[MoveLoad], capacity: Capacity) -> t.List[Prediction]:
    """Return a prediction for each of these moves of one source, which begin in this order.

    As many moves run at once as the window has slots; a guest that has arrived frees its slot. Streams share the link equally, and a stream with a limit
    leaves the rest to the others.
    """
    jobs: t.List[_Job] = []
    results: t.Dict[int, Prediction] = {}
    now, begun = 0.0, 0
    while begun < len(loads) or jobs:
        while begun < len(loads) and sum(job.phase != _END for job in jobs) < max(1, capacity.window):
            jobs.append(_Job(begun, loads[begun], now, capacity.setup_seconds))
            begun += 1
        speeds = _share_speeds(jobs, capacity)
        step = min(job.left / speed for job, speed in zip(jobs, speeds))
        now += step
        for job, speed in zip(jobs, speeds):
            job.left -= step * speed
            if job.left <= _TINY:
                job.finish_phase(now, _next_rate(job, speed, jobs, capacity))
        results.update({job.number: job.result for job in jobs if job.result})
        jobs = [job for job in jobs if job.phase != _END or job.left > _TINY]
    return [results[number] for number in range(len(loads))]


def _share_speeds(jobs: t.Sequence[_Job], capacity: Capacity) -> t.List[float]:
    """Return how fast each job gets on: MiB/s in its stream, otherwise seconds in a second, fewer than one if the processors are not sufficient."""
    beside = sum(job.phase != _STREAM for job in jobs)
    shares = share_link([job.wanted_mib() for job in jobs if job.phase == _STREAM], capacity.link_mib * PAYLOAD)
    rates = iter(shares)
    return [next(rates) if job.phase == _STREAM else min(1.0, capacity.cpus / beside) for job in jobs]


def _next_rate(job: _Job, speed: float, jobs: t.Sequence[_Job], capacity: Capacity) -> float:
    """Return the rate of the stream of a job that ends a phase: its present one, or its share if its stream begins."""
    if job.phase == _STREAM:
        return speed
    streams = [job, *(other for other in jobs if other.phase == _STREAM)]
    return share_link([one.wanted_mib() for one in streams], capacity.link_mib * PAYLOAD)[0]


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
