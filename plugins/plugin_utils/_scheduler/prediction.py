# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How long moves will take, and how long each guest will stand still: from memory, link and what it writes (libvirt.md, section 8.1)."""

from __future__ import annotations

import heapq
import statistics
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import Step, downtime_at
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.estimate import SWITCHOVER_MS
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import COMPLETED

# What a move takes beside its stream: opening, handing over, ending the source's process.
OVERHEAD_SECONDS = 1.5
# A link of 1 Gbit/s, where nothing else is known.
DEFAULT_RATE_MIB = 110.0
# Sampled dirty rates come out too low: guests under load wrote up to this many times as much.
DIRTY_FACTOR = 2.5

_MAX_ROUNDS = 1000


@dataclass(frozen=True)
class Prediction:
    """What is expected of one move.

    :arg downtime_ms: how long the guest stands still; None where nothing was measured, or where it never converges.
    :arg converges: whether it ends by itself within its limits; None where nothing was measured.
    """

    seconds: float
    downtime_ms: t.Optional[int] = None
    converges: t.Optional[bool] = None


def rate_mib(history: Iterable[Mapping[str, t.Any]], cap_mib: int = 0, link_mib: t.Optional[int] = None, together: int = 1) -> float:
    """Return MiB of one guest's memory a second: its share of the link where that is known, else the median of completed moves, else a share of 1 Gbit/s.

    :arg cap_mib: what a move may use at most; 0 is no cap.
    :arg together: how many moves share the link.
    """
    rates = [] if link_mib else [rate for rate in map(_rate_of, history) if rate]
    rate = statistics.median(rates) if rates else (link_mib or DEFAULT_RATE_MIB) / max(1, together)
    return min(rate, float(cap_mib)) if cap_mib > 0 else rate


def predict(memory_mib: int, rate: float, dirty_rate_mib: t.Optional[float], ramp: Sequence[Step], timeout_seconds: int = 0, copied_mib: int = 0) -> Prediction:
    """Return how long a move lasts.

    :arg rate: of the stream, MiB/s.
    :arg dirty_rate_mib: what was measured, MiB/s; None: not measured, so what the guest writes meanwhile is not counted.
    :arg ramp: the pauses that are allowed, as L(downtime_steps) gives them.
    :arg timeout_seconds: the move's own limit; 0 is none.
    :arg copied_mib: disks that are copied first, over the same link.
    """
    if dirty_rate_mib is None:
        return Prediction(move_seconds(memory_mib + copied_mib, rate))
    dirty = dirty_rate_mib * DIRTY_FACTOR
    left, seconds = float(memory_mib), copied_mib / rate
    for _round in range(_MAX_ROUNDS):
        seconds += left / rate
        left = min(float(memory_mib), dirty * left / rate)
        if timeout_seconds and seconds > timeout_seconds:
            break
        if left * 1000 / rate <= downtime_at(ramp, seconds):
            pause_ms = SWITCHOVER_MS + int(left * 1000 / rate)
            return Prediction(round(OVERHEAD_SECONDS + seconds + left / rate, 1), pause_ms, converges=True)
        if dirty >= rate and seconds > ramp[-1][0]:
            break
    return Prediction(round(OVERHEAD_SECONDS + (timeout_seconds or seconds), 1), None, converges=False)


def move_seconds(memory_mib: int, rate: float) -> float:
    """Return how long one move lasts when the guest writes nothing meanwhile."""
    return round(OVERHEAD_SECONDS + memory_mib / rate, 1)


def window_seconds(durations: Sequence[float], parallel: int) -> float:
    """Return how long moves last that run in this order, so many at a time."""
    lanes = [0.0] * max(1, parallel)
    for duration in durations:
        heapq.heappush(lanes, heapq.heappop(lanes) + duration)
    return round(max(lanes), 1)


def _rate_of(record: Mapping[str, t.Any]) -> t.Optional[float]:
    elapsed_ms = record.get("result", {}).get("elapsed_ms")
    memory_mib = record.get("request", {}).get("memory_mib")
    if record.get("status") != COMPLETED or not elapsed_ms or not memory_mib:
        return None
    return float(memory_mib) / max(0.5, elapsed_ms / 1000 - OVERHEAD_SECONDS)
