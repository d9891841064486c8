# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What to do at one poll of a running migration: given its statistics, its limits and the clock. It decides, it touches nothing."""

from __future__ import annotations

import dataclasses
import typing as t

from .._records.statuses import REASON_STALLED, REASON_TIMEOUT
from .hypervisor import JobStats
from .iterations import Iterations, read
from .schedule import Moment, Schedule


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of one move. 0 seconds is no limit."""

    downtime: Schedule
    timeout_seconds: float
    stall_seconds: float
    force_on_timeout: bool = False


@dataclasses.dataclass(frozen=True)
class Watched:
    """What the monitor remembers from poll to poll (seconds of a monotonic clock, from the job's start)."""

    data_processed_bytes: int = 0
    memory_remaining_bytes: t.Optional[int] = None
    progressed_at: t.Optional[float] = None
    downtime_ms: t.Optional[int] = None
    iterations: Iterations = dataclasses.field(default_factory=Iterations)
    synced_at: float = 0.0
    dirty_set_bytes: int = 0
    timed_out: bool = False
    aborted: bool = False


@dataclasses.dataclass(frozen=True)
class SetDowntime:
    """Allow this pause now, for a reason that is worth a line of history or for none; C(predicted_ms) is the pause that follows, where it is known."""

    milliseconds: int
    predicted_ms: t.Optional[int] = None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Abort:
    """Cancel the job, for this reason of the record."""

    reason: str


@dataclasses.dataclass(frozen=True)
class ForceComplete:
    """Make the move end now."""


Action = t.Union[SetDowntime, Abort, ForceComplete]


def decide(stats: JobStats, elapsed_seconds: float, limits: Limits, watched: Watched) -> t.Tuple[t.List[Action], Watched]:
    """Return the actions that are due, and what to remember. Only for pre-copy: in post-copy neither limit acts.

    The timeout fires once. A downtime that could not be set is asked for again at the next poll: the caller confirms with L(downtime_was_set).
    An abort is asked for once: the caller takes one back with L(abort_was_lost).
    """
    watched = _seen(stats, elapsed_seconds, limits, watched)
    if watched.aborted:
        return [], watched
    if _is_stalled(elapsed_seconds, limits, watched):
        return [Abort(REASON_STALLED)], dataclasses.replace(watched, aborted=True)
    if limits.timeout_seconds and elapsed_seconds > limits.timeout_seconds and not watched.timed_out:
        watched = dataclasses.replace(watched, timed_out=True, aborted=not limits.force_on_timeout)
        return [ForceComplete() if limits.force_on_timeout else Abort(REASON_TIMEOUT)], watched
    allowance = limits.downtime.allow(Moment(elapsed_seconds, watched.iterations, watched.downtime_ms))
    if allowance.milliseconds == watched.downtime_ms:
        return [], watched
    return [SetDowntime(allowance.milliseconds, allowance.predicted_ms, allowance.reason)], watched


def watch_post_copy(stats: JobStats, elapsed_seconds: float, limits: Limits, watched: Watched) -> t.Tuple[bool, Watched]:
    """Return whether no byte has come over for so long that the link must be broken. Nothing else acts in post-copy."""
    watched = _seen(stats, elapsed_seconds, limits, watched)
    stalled = _is_stalled(elapsed_seconds, limits, watched)
    return stalled, dataclasses.replace(watched, progressed_at=elapsed_seconds) if stalled else watched


def downtime_was_set(watched: Watched, milliseconds: int) -> Watched:
    """Return what to remember after libvirt accepted a downtime."""
    return dataclasses.replace(watched, downtime_ms=milliseconds)


def abort_was_lost(watched: Watched) -> Watched:
    """Return what to remember after an abort that may not have reached libvirt: it is due again at the next poll."""
    return dataclasses.replace(watched, aborted=False, timed_out=False)


def _is_stalled(elapsed_seconds: float, limits: Limits, watched: Watched) -> bool:
    if not limits.stall_seconds or watched.progressed_at is None:
        return False
    return elapsed_seconds - watched.progressed_at >= limits.stall_seconds


def _seen(stats: JobStats, elapsed_seconds: float, limits: Limits, watched: Watched) -> Watched:
    """Note progress: bytes processed, or a remainder that falls. The reported bandwidth goes stale when a link is cut.

    Note also when an iteration began and how much was left then: that is what the guest writes over and over.
    """
    before = watched.memory_remaining_bytes
    fell = before is not None and stats.memory_remaining_bytes < before
    moved = stats.data_processed_bytes != watched.data_processed_bytes
    progressed_at = elapsed_seconds if stats.data_processed_bytes and (moved or fell) else watched.progressed_at
    synced = stats.iteration > watched.iterations.number
    grew = stats.memory_remaining_bytes if synced and stats.iteration > 1 else 0
    return dataclasses.replace(
        watched,
        data_processed_bytes=stats.data_processed_bytes,
        memory_remaining_bytes=stats.memory_remaining_bytes,
        progressed_at=progressed_at,
        iterations=read(stats, watched.downtime_ms or limits.downtime.first_ms, watched.iterations),
        synced_at=elapsed_seconds if synced else watched.synced_at,
        dirty_set_bytes=max(watched.dirty_set_bytes, grew),
    )
