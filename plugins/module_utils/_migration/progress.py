# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A job's statistics as a record shows them: percent that never falls, and at most 60 samples however long the move."""

from __future__ import annotations

import typing as t

from .._records.schema import MAX_SAMPLES
from .hypervisor import JobStats


def progress_of(stats: JobStats, percent_before: int, memory_bytes: int = 0) -> t.Dict[str, int]:
    """Return the record's C(progress). The percent is monotonic and stays below 100 until the move has ended.

    :arg memory_bytes: the guest's memory, which counts as left while disks are copied and nothing is said of memory yet.
    """
    total = (stats.memory_total_bytes or memory_bytes) + stats.disk_total_bytes
    remaining = (stats.memory_remaining_bytes if stats.memory_total_bytes else memory_bytes) + stats.disk_remaining_bytes
    percent = int(100 * (total - remaining) / total) if total else 0
    return {
        "memory_total_bytes": stats.memory_total_bytes,
        "memory_processed_bytes": stats.memory_processed_bytes,
        "memory_remaining_bytes": stats.memory_remaining_bytes,
        "disk_total_bytes": stats.disk_total_bytes,
        "disk_processed_bytes": stats.disk_processed_bytes,
        "disk_remaining_bytes": stats.disk_remaining_bytes,
        "percent": max(percent_before, min(percent, 99)),
        "iteration": stats.iteration,
        "dirty_rate_bytes": stats.dirty_rate_bytes,
        "bandwidth_bytes": stats.bandwidth_bytes,
        "throttle_percent": stats.throttle_percent,
    }


class Samples:
    """Keeps an even selection of what is added: when full, every second sample goes and only every second one is taken from then on."""

    def __init__(self, kept: t.Optional[t.List[t.Dict[str, int]]] = None) -> None:
        self.kept = kept if kept is not None else []
        self._stride = 1
        self._seen = 0

    def add(self, stats: JobStats, elapsed_ms: int, downtime_ms: int) -> None:
        """Add the figures of one poll; C(downtime_ms) is the pause allowed at that moment."""
        self._seen += 1
        if self._seen % self._stride:
            return
        if len(self.kept) >= MAX_SAMPLES:
            del self.kept[1::2]
            self._stride *= 2
        self.kept.append(
            {
                "elapsed_ms": elapsed_ms,
                "remaining_bytes": stats.memory_remaining_bytes + stats.disk_remaining_bytes,
                "bandwidth_bytes": stats.bandwidth_bytes,
                "dirty_rate_bytes": stats.dirty_rate_bytes,
                "allowed_downtime_ms": downtime_ms,
                "throttle_percent": stats.throttle_percent,
                "iteration": stats.iteration,
            }
        )
