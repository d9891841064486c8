# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The stepped downtime ramp: how long a pause the hypervisor may make at the end, growing while a move lasts (spec 4, nova.md section 1.1)."""

from __future__ import annotations

import typing as t

GIB = 1024**3
FLOOR_GIB = 2.0
TIMEOUT_SECONDS_PER_GIB = 800

Step = t.Tuple[float, int]


def size_gib(memory_bytes: int, copied_disks_bytes: t.Sequence[int] = ()) -> float:
    """Return the size that delays and timeouts are scaled with: memory plus each copied disk, none counted below 2 GiB."""
    return max(memory_bytes / GIB, FLOOR_GIB) + sum(max(disk / GIB, FLOOR_GIB) for disk in copied_disks_bytes)


def effective_timeout_seconds(timeout_seconds: t.Optional[int], gib: float) -> int:
    """Return the limit of the whole move in seconds: the given one, else 800 s a GiB. 0 is no limit."""
    return int(TIMEOUT_SECONDS_PER_GIB * gib) if timeout_seconds is None else timeout_seconds


def downtime_steps(downtime_ms: int, steps: int, delay_seconds_per_gib: int, gib: float, timeout_seconds: t.Optional[int] = None) -> t.List[Step]:
    """Return C((seconds since the start, downtime in ms)) pairs, N+1 of them; the last is always the full downtime.

    With a timeout the ramp takes at most half of it: a longer schedule is compressed evenly.
    """
    base = downtime_ms / steps
    offset = (downtime_ms - base) / steps
    delay: float = int(delay_seconds_per_gib * gib)
    if timeout_seconds and delay * steps > timeout_seconds / 2:
        delay = timeout_seconds / 2 / steps
    ramp: t.List[Step] = [(delay * index, max(1, int(base + offset * index))) for index in range(steps)]
    return [*ramp, (delay * steps, downtime_ms)]


def downtime_at(steps: t.Sequence[Step], elapsed_seconds: float) -> int:
    """Return the downtime in ms that the ramp allows after so many seconds."""
    allowed = steps[0][1]
    for seconds, milliseconds in steps:
        if elapsed_seconds >= seconds:
            allowed = milliseconds
    return allowed
