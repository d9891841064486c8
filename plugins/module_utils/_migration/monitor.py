# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One poll of a running migration: the figures for its record, and the action that its limits and the clock require. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .._model.domain_states import JobStats
from .._model.record_parts import Progress, Sample
from .._model.records import MAX_SAMPLES
from .._model.statuses import REASON_STALLED, REASON_TIMEOUT
from .downtime import DowntimeSchedule, Iterations, ScheduleMoment, read_iterations

# The hypervisor recomputes its rate, and what it can send within the allowed downtime, every tenth of a second.
RATE_SETTLES_SECONDS = 0.3
# How long an aborted job may go on without sending anything. QEMU ends one within a second, or never.
ABORT_SECONDS = 60.0


def measure_progress(stats: JobStats, percent_before: int, memory_bytes: int = 0) -> Progress:
    """Return the record's C(progress). The percent is monotonic and stays below 100 until the move has ended.

    :arg memory_bytes: the guest's memory, which counts as remaining while disks are copied and no figures of memory are reported yet.
    """
    total = (stats.memory_total_bytes or memory_bytes) + stats.disk_total_bytes
    remaining = (stats.memory_remaining_bytes if stats.memory_total_bytes else memory_bytes) + stats.disk_remaining_bytes
    percent = int(100 * (total - remaining) / total) if total else 0
    return Progress(
        memory_total_bytes=stats.memory_total_bytes,
        memory_processed_bytes=stats.memory_processed_bytes,
        memory_remaining_bytes=stats.memory_remaining_bytes,
        disk_total_bytes=stats.disk_total_bytes,
        disk_processed_bytes=stats.disk_processed_bytes,
        disk_remaining_bytes=stats.disk_remaining_bytes,
        percent=max(percent_before, min(percent, 99)),
        iteration=stats.iteration,
        dirty_rate_bytes=stats.dirty_rate_bytes,
        bandwidth_bytes=stats.bandwidth_bytes,
        throttle_percent=stats.throttle_percent,
    )


class Samples:
    """Keeps an even selection of what is added: when the selection is full, every second sample is removed, and from then on only every second one is added."""

    def __init__(self, kept: t.Iterable[Sample] = ()) -> None:
        self.kept = list(kept)
        self._stride = 1
        self._seen = 0

    def add_sample(self, stats: JobStats, elapsed_ms: int, downtime_ms: int) -> None:
        """Add the figures of one poll; C(downtime_ms) is the downtime that is allowed at that moment."""
        self._seen += 1
        if self._seen % self._stride:
            return
        if len(self.kept) >= MAX_SAMPLES:
            del self.kept[1::2]
            self._stride *= 2
        self.kept.append(
            Sample(
                elapsed_ms=elapsed_ms,
                remaining_bytes=stats.memory_remaining_bytes + stats.disk_remaining_bytes,
                bandwidth_bytes=stats.bandwidth_bytes,
                dirty_rate_bytes=stats.dirty_rate_bytes,
                allowed_downtime_ms=downtime_ms,
                throttle_percent=stats.throttle_percent,
                iteration=stats.iteration,
            )
        )


@dataclass(frozen=True)
class Limits:
    """The limits of one move. 0 seconds is no limit."""

    downtime: DowntimeSchedule
    timeout_seconds: float
    stall_seconds: float
    force_on_timeout: bool = False


@dataclass(frozen=True)
class MonitorState:
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
    aborted_at: t.Optional[float] = None
    bandwidth_changed_at: t.Optional[float] = None


@dataclass(frozen=True)
class SetDowntime:
    """Allow this downtime now, with a reason for the history, or none; C(predicted_ms) is the predicted downtime, if it is known."""

    milliseconds: int
    predicted_ms: t.Optional[int] = None
    reason: str = ""


@dataclass(frozen=True)
class Abort:
    """Cancel the job, for this reason of the record."""

    reason: str


@dataclass(frozen=True)
class ForceComplete:
    """Start to force the move."""


@dataclass(frozen=True)
class EndIncoming:
    """End the incoming domain at the destination: the job does not react to its abort, and ends with its stream."""


Action = t.Union[SetDowntime, Abort, ForceComplete, EndIncoming]


def decide_actions(stats: JobStats, elapsed_seconds: float, limits: Limits, watched: MonitorState, cap_bytes: int = 0) -> t.Tuple[t.List[Action], MonitorState]:
    """Return the actions that are due, and what to remember. Only for pre-copy: in post-copy neither limit acts.

    :arg cap_bytes: the bandwidth cap of the job itself, as L(ScheduleMoment) has it.

    The timeout fires once. A downtime that could not be set is returned again at the next poll, until the caller confirms it with L(note_downtime). An abort is
    returned once; L(note_lost_abort) makes it due again. A job that sends nothing and does not end within C(ABORT_SECONDS) of its abort is stuck. After a
    change of the bandwidth, the downtime waits for the new rate (L(note_bandwidth)).
    """
    watched = _note_progress(stats, elapsed_seconds, limits, watched)
    if watched.aborted:
        return _await_abort(elapsed_seconds, watched)
    if _is_stalled(elapsed_seconds, limits, watched):
        return [Abort(REASON_STALLED)], dataclasses.replace(watched, aborted=True)
    if limits.timeout_seconds and elapsed_seconds > limits.timeout_seconds and not watched.timed_out:
        watched = dataclasses.replace(watched, timed_out=True, aborted=not limits.force_on_timeout)
        return [ForceComplete() if limits.force_on_timeout else Abort(REASON_TIMEOUT)], watched
    if watched.bandwidth_changed_at is not None and elapsed_seconds - watched.bandwidth_changed_at < RATE_SETTLES_SECONDS:
        return [], watched
    allowance = limits.downtime.allowance_at(ScheduleMoment(elapsed_seconds, watched.iterations, watched.downtime_ms, cap_bytes))
    if allowance.milliseconds == watched.downtime_ms:
        return [], watched
    return [SetDowntime(allowance.milliseconds, allowance.predicted_ms, allowance.reason)], watched


def watch_post_copy(stats: JobStats, elapsed_seconds: float, limits: Limits, watched: MonitorState) -> t.Tuple[bool, MonitorState]:
    """Return whether no byte has arrived for so long that the connection must be broken. Nothing else acts in post-copy."""
    watched = _note_progress(stats, elapsed_seconds, limits, watched)
    stalled = _is_stalled(elapsed_seconds, limits, watched)
    return stalled, dataclasses.replace(watched, progressed_at=elapsed_seconds) if stalled else watched


def note_downtime(watched: MonitorState, milliseconds: int) -> MonitorState:
    """Return what to remember after libvirt accepted a downtime."""
    return dataclasses.replace(watched, downtime_ms=milliseconds)


def note_bandwidth(watched: MonitorState, elapsed_seconds: float) -> MonitorState:
    """Return what to remember after libvirt accepted a bandwidth: the downtime is decided again when the rate that it leads to was measured."""
    return dataclasses.replace(watched, bandwidth_changed_at=elapsed_seconds)


def note_lost_abort(watched: MonitorState) -> MonitorState:
    """Return what to remember after an abort that may not have reached libvirt: it is due again at the next poll."""
    return dataclasses.replace(watched, aborted=False, aborted_at=None, timed_out=False)


def _await_abort(elapsed_seconds: float, watched: MonitorState) -> t.Tuple[t.List[Action], MonitorState]:
    if watched.aborted_at is None:
        return [], dataclasses.replace(watched, aborted_at=elapsed_seconds)
    if elapsed_seconds - max(watched.aborted_at, watched.progressed_at or 0.0) < ABORT_SECONDS:
        return [], watched
    return [EndIncoming()], dataclasses.replace(watched, aborted_at=elapsed_seconds)


def _is_stalled(elapsed_seconds: float, limits: Limits, watched: MonitorState) -> bool:
    if not limits.stall_seconds or watched.progressed_at is None:
        return False
    return elapsed_seconds - watched.progressed_at >= limits.stall_seconds


def _note_progress(stats: JobStats, elapsed_seconds: float, limits: Limits, watched: MonitorState) -> MonitorState:
    """Note progress: processed bytes, or fewer remaining bytes. The reported bandwidth is stale after a link is cut.

    Note also when an iteration began and how much remained then: that is the working set of the guest.
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
        iterations=read_iterations(stats, watched.downtime_ms or limits.downtime.first_ms, watched.iterations),
        synced_at=elapsed_seconds if synced else watched.synced_at,
        dirty_set_bytes=max(watched.dirty_set_bytes, grew),
    )
