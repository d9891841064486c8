# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Decides at each poll how to make a migration end now, with the guest paused as late and as briefly as possible. Pure functions.

If post-copy is permitted, the guest is switched over. Otherwise the measures are taken in order: lift the bandwidth cap and measure the connection; allow the
downtime that the remaining memory needs; suspend the guest only if neither has ended the move.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .._model.domain_states import JobStats
from .._model.statuses import REASON_PAUSE_OVERRUN
from .downtime import SWITCHOVER_MS, converged_pause_ms, pause_ms, pending_bytes, suspended_bytes
from .monitor import Abort, SetDowntime

MIB = 1024**2
UNLIMITED_MIB = 0

RUNG_POST_COPY = "post_copy"
RUNG_BANDWIDTH = "bandwidth"
RUNG_DOWNTIME = "downtime"
RUNG_SUSPEND = "suspend"

# Where a watcher that takes over continues, if the act of a rung may not have been done.
_RUNG_BEFORE = {RUNG_DOWNTIME: RUNG_BANDWIDTH, RUNG_SUSPEND: RUNG_DOWNTIME}
# The rungs that pause the guest, in their order.
PAUSING_RUNGS = (RUNG_DOWNTIME, RUNG_SUSPEND)

# The rate counts as measured when two polls in a row agree, or when this long has passed.
MEASURE_SECONDS = 1.0
_STEADY = 0.7
_MAX_DOWNTIME_MS = 2_000_000


@dataclass(frozen=True)
class SetBandwidth:
    """Limit the memory stream to that many MiB/s from now on; 0 is no limit."""

    mib: int


@dataclass(frozen=True)
class StartPostCopy:
    """Switch the guest over to the destination now."""


@dataclass(frozen=True)
class Suspend:
    """Stop the guest on the source; libvirt lets it run on the destination, or on the source when the job is cancelled."""


ForceAction = t.Union[SetBandwidth, SetDowntime, StartPostCopy, Suspend, Abort]


@dataclass(frozen=True)
class ForcingTerms:
    """The limits of forcing a move, in seconds, bytes a second, and milliseconds.

    C(link_rate_bytes) is the known capacity of the link, 0 if it has to be measured. C(bandwidth_mib) is what a person gives a capped job in place of its cap.
    """

    IS_WHOLE: t.ClassVar[bool] = True
    post_copy: bool
    capped: bool
    suspend_seconds: float
    pause_max_seconds: float
    downtime_ms: int
    link_rate_bytes: int = 0
    bandwidth_mib: int = UNLIMITED_MIB


@dataclass(frozen=True)
class ForcingState:
    """The progress of forcing. Points in time are seconds from the job's start.

    C(in_doubt) is true if an earlier watcher has written the act of the rung, and perhaps has not done it.
    """

    began_at: float
    rung: t.Optional[str] = None
    rung_at: float = 0.0
    rung_processed_bytes: t.Optional[int] = None
    processed_bytes: t.Optional[int] = None
    seen_at: float = 0.0
    rate_bytes: int = 0
    steady: bool = False
    predicted_ms: t.Optional[int] = None
    paused_at: t.Optional[float] = None
    aborted: bool = False
    in_doubt: bool = False


@dataclass(frozen=True)
class ForcingPoll:
    """One poll: the job's figures, their time, and the iterations that the monitor knows."""

    stats: JobStats
    elapsed: float
    paused: bool
    since_sync_seconds: float
    dirty_set_bytes: int
    allowed_ms: int


def decide_forcing(seen: ForcingPoll, terms: ForcingTerms, forcing: ForcingState) -> t.Tuple[t.List[ForceAction], ForcingState]:
    """Return the act that is due, and the progress of forcing after it. Only for pre-copy."""
    forcing = _measure_rate(seen, terms, forcing)
    if seen.paused:
        return _decide_while_paused(seen, terms, forcing)
    forcing = _continue_unpaused(forcing)
    if not seen.stats.memory_total_bytes:
        # The hypervisors still connect, or disks are copied, and the memory follows. libvirt would replace a bandwidth that is set now by that of the migrate
        # call, and a guest that is suspended now would be paused until all of its memory is copied.
        return [], dataclasses.replace(forcing, began_at=seen.elapsed)
    if terms.post_copy:
        # The hypervisor refuses a switch that is too early: it is requested at every poll until it is done.
        return [StartPostCopy()], _enter_rung(forcing, RUNG_POST_COPY, seen)
    if forcing.rung is None and terms.capped:
        return [SetBandwidth(terms.bandwidth_mib)], _predict_pause(seen, _enter_rung(forcing, RUNG_BANDWIDTH, seen), self_converging=True)
    if forcing.rung in (None, RUNG_BANDWIDTH) and not _is_measured(seen, terms, forcing):
        return [], _predict_pause(seen, forcing, self_converging=True)
    if forcing.rung in (None, RUNG_BANDWIDTH):
        forcing = _predict_pause(seen, _enter_rung(forcing, RUNG_DOWNTIME, seen))
        return [SetDowntime(_allowance_ms(seen, terms, forcing))], forcing
    if forcing.rung == RUNG_DOWNTIME and seen.elapsed - forcing.began_at >= terms.suspend_seconds:
        return [Suspend()], _enter_rung(_predict_suspended_pause(seen, terms, forcing), RUNG_SUSPEND, seen)
    return [], forcing


def _decide_while_paused(seen: ForcingPoll, terms: ForcingTerms, forcing: ForcingState) -> t.Tuple[t.List[ForceAction], ForcingState]:
    if forcing.paused_at is None or forcing.paused_at > seen.elapsed:
        forcing = dataclasses.replace(forcing, paused_at=seen.elapsed)
    limit = pause_limit_seconds(forcing.predicted_ms, terms)
    if not forcing.aborted and seen.elapsed - t.cast(float, forcing.paused_at) > limit:
        return [Abort(REASON_PAUSE_OVERRUN)], dataclasses.replace(forcing, aborted=True)
    return [], forcing


def pause_limit_seconds(predicted_ms: t.Optional[int], terms: ForcingTerms) -> float:
    """Return how long the guest may be paused before the move is aborted: three times as long as predicted, or what the terms permit."""
    return max(3 * (predicted_ms or 0) / 1000, terms.pause_max_seconds)


def latest_rung(before: t.Optional[str], now: t.Optional[str]) -> t.Optional[str]:
    """Return the rung that a record has to name: a rung that pauses the guest stays reached while another watcher measures the link again."""
    if before not in PAUSING_RUNGS:
        return now
    return now if now in PAUSING_RUNGS[PAUSING_RUNGS.index(before) :] else before


def _continue_unpaused(forcing: ForcingState) -> ForcingState:
    """Return the progress of a guest that runs: an act that may not have been done is due again, each of them is safe to repeat."""
    rung = _RUNG_BEFORE.get(forcing.rung or "") if forcing.in_doubt else forcing.rung
    return dataclasses.replace(forcing, rung=rung, paused_at=None, in_doubt=False)


def _measure_rate(seen: ForcingPoll, terms: ForcingTerms, forcing: ForcingState) -> ForcingState:
    """Keep the link's rate: the known one, else the best that was measured since the cap was lifted."""
    if terms.link_rate_bytes:
        return dataclasses.replace(forcing, rate_bytes=terms.link_rate_bytes, steady=True)
    processed, seconds = seen.stats.memory_processed_bytes, seen.elapsed - forcing.seen_at
    rate = seen.stats.bandwidth_bytes
    if forcing.processed_bytes is not None and seconds > 0:
        # The reported rate is that of an earlier tenth of a second.
        rate = max(rate, int((processed - forcing.processed_bytes) / seconds))
    forcing = dataclasses.replace(forcing, processed_bytes=processed, seen_at=seen.elapsed)
    steady = bool(forcing.rate_bytes) and rate >= forcing.rate_bytes * _STEADY and rate * _STEADY <= forcing.rate_bytes
    return dataclasses.replace(forcing, rate_bytes=max(rate, forcing.rate_bytes), steady=steady)


def _is_measured(seen: ForcingPoll, terms: ForcingTerms, forcing: ForcingState) -> bool:
    waited = seen.elapsed - (forcing.rung_at if forcing.rung else forcing.began_at)
    return not terms.capped or waited >= MEASURE_SECONDS or (forcing.steady and waited >= MEASURE_SECONDS / 2)


def _enter_rung(forcing: ForcingState, rung: str, seen: ForcingPoll) -> ForcingState:
    if forcing.rung == rung:
        return forcing
    return dataclasses.replace(forcing, rung=rung, rung_at=seen.elapsed, rung_processed_bytes=seen.stats.memory_processed_bytes)


def _count_pending(seen: ForcingPoll) -> int:
    return pending_bytes(seen.stats.memory_remaining_bytes, seen.stats.dirty_rate_bytes, seen.since_sync_seconds, seen.dirty_set_bytes)


def _predict_pause(seen: ForcingPoll, forcing: ForcingState, self_converging: bool = False) -> ForcingState:
    pending = _count_pending(seen)
    if self_converging:
        predicted = converged_pause_ms(pending, seen.stats.dirty_rate_bytes, forcing.rate_bytes, seen.allowed_ms)
        predicted = min(predicted, seen.allowed_ms + SWITCHOVER_MS)
    else:
        predicted = pause_ms(pending, forcing.rate_bytes)
    return dataclasses.replace(forcing, predicted_ms=predicted)


def _predict_suspended_pause(seen: ForcingPoll, terms: ForcingTerms, forcing: ForcingState) -> ForcingState:
    sent = suspended_bytes(seen.stats.memory_remaining_bytes, seen.stats.dirty_rate_bytes, seen.since_sync_seconds, seen.dirty_set_bytes)
    rate = forcing.rate_bytes if terms.link_rate_bytes else _mean_rate(seen, forcing)
    return dataclasses.replace(forcing, predicted_ms=pause_ms(sent, rate))


def _mean_rate(seen: ForcingPoll, forcing: ForcingState) -> int:
    """Return the rate since the last measure, in bytes a second. The best rate of single polls can be that of filling a buffer."""
    seconds = seen.elapsed - forcing.rung_at
    if forcing.rung_processed_bytes is None or seconds < MEASURE_SECONDS:
        return forcing.rate_bytes
    return int((seen.stats.memory_processed_bytes - forcing.rung_processed_bytes) / seconds) or forcing.rate_bytes


def _allowance_ms(seen: ForcingPoll, terms: ForcingTerms, forcing: ForcingState) -> int:
    """Return the downtime to allow: twice what the remaining memory needs at the hypervisor's own rate, because the guest continues to write."""
    rate = seen.stats.bandwidth_bytes or forcing.rate_bytes
    return min(_MAX_DOWNTIME_MS, max(terms.downtime_ms, 2 * pause_ms(_count_pending(seen), rate)))
