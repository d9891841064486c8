# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How long moves will take. A guess from memory and rate, good enough to tell minutes from hours."""

from __future__ import annotations

import heapq
import statistics
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import COMPLETED

# What a move takes beside its stream: opening, handing over, ending the source's process.
OVERHEAD_SECONDS = 1.5
# A link of 1 Gbit/s, where nothing else is known.
DEFAULT_RATE_MIB = 110.0
_MIB = 1024**2


def rate_mib(history: Iterable[Mapping[str, t.Any]], cap_mib: int = 0) -> float:
    """Return MiB of guest memory a second: the median of completed moves, else a link of 1 Gbit/s; never more than the cap (0: none)."""
    rates = [rate for rate in map(_rate_of, history) if rate]
    rate = statistics.median(rates) if rates else DEFAULT_RATE_MIB
    return min(rate, float(cap_mib)) if cap_mib > 0 else rate


def move_seconds(memory_mib: int, rate: float) -> float:
    """Return how long one move lasts; what the guest writes meanwhile is not known, and not counted."""
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
