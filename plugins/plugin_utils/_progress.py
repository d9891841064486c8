# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Progress lines of moves in flight: on a change of phase, every 10 %, and at least every 10 seconds."""

from __future__ import annotations

import math
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

MIB = 1024**2
EVERY_SECONDS = 10.0
EVERY_PERCENT = 10
# For a move that waits for its admission.
EVERY_WAITING_SECONDS = 30.0


def progress_line(record: MoveRecord, waits_for: str | None = None) -> str:
    """Return one line on a move, e.g. C(kvm1 -> kvm2  web1  running  62 %  312 MiB left  940 MiB/s  dirty 210 MiB/s  pause <= 95 ms  eta 8 s).

    :arg waits_for: what the move waits for, a phrase.
    """
    parts = [f"{record.source.host} -> {record.destination.host}", record.domain.name or record.domain.uuid, record.status]
    if record.reason:
        parts.append(f"({record.reason})")
    if waits_for:
        parts.append(waits_for)
    elif record.status.startswith("running") and record.progress.memory_total_bytes:
        parts += _figure_texts(record)
    elif record.result.elapsed_ms is not None:
        parts.append(f"{record.result.elapsed_ms / 1000:.1f} s")
    elif record.turn:
        until = f" until {record.turn.until}" if record.turn.until else ""
        parts.append(f"waits for its turn{until}: {record.turn.waits_for}")
    if record.result.downtime_ms is not None:
        parts.append(f"paused {record.result.downtime_ms} ms")
    return printable_line("  ".join(parts))


def _figure_texts(record: MoveRecord) -> list[str]:
    progress = record.progress
    left = progress.memory_remaining_bytes + progress.disk_remaining_bytes
    rate = progress.bandwidth_bytes
    parts = [f"{progress.percent} %", f"{left // MIB} MiB left", f"{rate // MIB} MiB/s", f"dirty {progress.dirty_rate_bytes // MIB} MiB/s"]
    if record.samples:
        parts.append(f"pause <= {record.samples[-1].allowed_downtime_ms} ms")
    net = rate - progress.dirty_rate_bytes
    # If the guest writes nearly as fast as the link transfers, the quotient is meaningless.
    parts.append(f"eta {left // net} s" if net > rate / 10 else "eta unknown")
    return parts


class ProgressLines:
    """Decides which states become lines, and passes these to C(show)."""

    def __init__(self, show: t.Callable[[str], None], clock: t.Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._last: dict[str, tuple[tuple[str, int, bool], float]] = {}

    def show_record(self, record: MoveRecord, waits_for: str | None = None) -> None:
        """Print a line on this record if one is due.

        :arg waits_for: what the move waits for, a phrase.
        """
        now, waits = self._clock(), bool(record.turn or waits_for)
        shown = (record.status, record.progress.percent // EVERY_PERCENT, waits)
        every = EVERY_SECONDS if record.status.startswith("running") else EVERY_WAITING_SECONDS if waits else math.inf
        last = self._last.get(record.record_id)
        if last and last[0] == shown and now - last[1] < every:
            return
        self._last[record.record_id] = (shown, now)
        self._show(progress_line(record, waits_for))
