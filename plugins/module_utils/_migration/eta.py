# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How long the moves of a run that are left will last: what they still have to send, over the rate that they reach now."""

from __future__ import annotations

import math
import typing as t

from .._model.record_parts import PredictedMove
from .._model.records import MoveRecord
from .._model.statuses import BEFORE_JOB, RUNNING_POST_COPY
from .prediction import SETUP_SECONDS

# What a guest writes while it is sent prolongs its move by at most this factor: nearer to the rate of the link, the quotient means nothing. Above that rate,
# the policy of the move ends it, by a throttle, a longer pause or a timeout.
_MOST_GROWTH = 4.0
# Before that, the rate of a job is far below what its link reaches.
_SETTLING_MS = 2000


def estimate_rest(records: t.Sequence[MoveRecord]) -> t.Optional[int]:
    """Return the seconds until all of these moves will have ended; null while none of them has sent for two seconds, or if no memory size is known.

    :arg records: the newest record of each move that has not ended.
    """
    rate = sum(record.progress.bandwidth_bytes for record in records if _is_sending(record))
    if rate <= 0:
        return None
    left = sum(map(_left_bytes, records))
    beside = max(1, sum(map(_is_sending, records)))
    waiting = sum(record.status in BEFORE_JOB for record in records)
    return math.ceil(max(left / rate + SETUP_SECONDS * math.ceil(waiting / beside), *map(_capped_seconds, records)))


def has_settled_rate(record: MoveRecord) -> bool:
    """Whether a move has gone on for so long that its rate means something."""
    elapsed_ms = record.samples[-1].elapsed_ms if record.samples else None
    return elapsed_ms is None or elapsed_ms >= _SETTLING_MS


def _is_sending(record: MoveRecord) -> bool:
    return record.status not in BEFORE_JOB and record.progress.bandwidth_bytes > 0 and has_settled_rate(record)


def _capped_seconds(record: MoveRecord) -> float:
    """Return how long a move with a cap lasts at least: it does not get the rate of those that end before it. A cap can be lifted while it moves."""
    connection = record.connection
    cap = (connection.bandwidth_mib or 0) * 2**20 if connection else 0
    return _left_bytes(record) / max(cap, record.progress.bandwidth_bytes) if cap else 0.0


def _left_bytes(record: MoveRecord) -> float:
    """Return what a move still has to send; of one that has not begun what was predicted, else the size of its memory and disks."""
    progress = record.progress
    if progress.memory_total_bytes:
        return (progress.memory_remaining_bytes + progress.disk_remaining_bytes) * _find_growth(record)
    predicted = record.predicted
    return float(predicted.bytes if isinstance(predicted, PredictedMove) else record.memory_bytes + sum(record.copied_bytes))


def _find_growth(record: MoveRecord) -> float:
    """Return the factor by which a move lasts longer because its guest writes while it is sent."""
    progress = record.progress
    # In post-copy, the guest writes at the destination; the rate is the last one before.
    if not progress.bandwidth_bytes or record.status == RUNNING_POST_COPY:
        return 1.0
    net = progress.bandwidth_bytes - progress.dirty_rate_bytes
    return min(_MOST_GROWTH, progress.bandwidth_bytes / net) if net > 0 else _MOST_GROWTH
