# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The downtime ramp of a move: the downtime that is allowed at a given time, in steps or by what the iterations show. Also predicts the downtime."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .._model.domain_states import JobStats
from .._model.policies import WEEK_SECONDS

GIB = 1024**3
FLOOR_GIB = 2.0

DowntimeStep = t.Tuple[float, int]


def size_gib(memory_bytes: int, copied_disks_bytes: t.Sequence[int] = ()) -> float:
    """Return the size that delays and timeouts are scaled with: memory plus each copied disk, none counted below 2 GiB."""
    return max(memory_bytes / GIB, FLOOR_GIB) + sum(max(disk / GIB, FLOOR_GIB) for disk in copied_disks_bytes)


def effective_timeout_seconds(timeout_seconds: t.Optional[int], seconds_per_gib: int, gib: float) -> int:
    """Return the limit of the whole move in seconds: the given one, else that of the guest's size, at most a week. 0 is no limit."""
    return min(WEEK_SECONDS, int(seconds_per_gib * gib)) if timeout_seconds is None else timeout_seconds


def downtime_steps(downtime_ms: int, steps: int, delay_seconds_per_gib: int, gib: float, timeout_seconds: t.Optional[int] = None) -> t.List[DowntimeStep]:
    """Return C((seconds since the start, downtime in ms)) pairs, N+1 of them; the last is always the full downtime.

    With a timeout the ramp takes at most half of it: a longer schedule is compressed evenly.
    """
    base = downtime_ms / steps
    offset = (downtime_ms - base) / steps
    delay: float = int(delay_seconds_per_gib * gib)
    if timeout_seconds and delay * steps > timeout_seconds / 2:
        delay = timeout_seconds / 2 / steps
    ramp: t.List[DowntimeStep] = [(delay * index, max(1, int(base + offset * index))) for index in range(steps)]
    return [*ramp, (delay * steps, downtime_ms)]


def downtime_at(steps: t.Sequence[DowntimeStep], elapsed_seconds: float) -> int:
    """Return the downtime in ms that the ramp allows after that many seconds."""
    allowed = steps[0][1]
    for seconds, milliseconds in steps:
        if elapsed_seconds >= seconds:
            allowed = milliseconds
    return allowed


# The time of the switch-over besides the pages: device state and the hand-over. Measured on idle machines 8 ms, on busy ones 20 to 30.
SWITCHOVER_MS = 12

_MAX_ROUNDS = 50


def pending_bytes(remaining_bytes: int, dirty_rate_bytes: int, since_sync_seconds: float, dirty_set_bytes: int) -> int:
    """Return how much would be sent if the guest stopped now.

    The hypervisor counts newly dirtied pages only at its next synchronization, so C(remaining_bytes) alone is too small.

    :arg since_sync_seconds: how long ago the current iteration began.
    :arg dirty_set_bytes: the most that was ever left at the start of an iteration after the first; 0 if none was seen.
    """
    guessed = remaining_bytes + int(dirty_rate_bytes * since_sync_seconds)
    return max(remaining_bytes, min(guessed, dirty_set_bytes)) if dirty_set_bytes else guessed


def suspended_bytes(remaining_bytes: int, dirty_rate_bytes: int, since_sync_seconds: float, dirty_set_bytes: int) -> int:
    """Return how much is sent after a guest was suspended in the middle of an iteration; arguments as for L(pending_bytes).

    The hypervisor first ends the iteration, then synchronizes, and sends all pages that were written since: a page may count twice.
    """
    guessed = int(dirty_rate_bytes * since_sync_seconds)
    return remaining_bytes + (min(guessed, dirty_set_bytes) if dirty_set_bytes else guessed)


def pause_ms(pending: int, rate_bytes: int) -> int:
    """Return the downtime in ms in which C(pending) bytes cross a link of that rate."""
    return SWITCHOVER_MS + int(pending * 1000 / rate_bytes) if rate_bytes else SWITCHOVER_MS


def converged_pause_ms(pending: int, dirty_rate_bytes: int, rate_bytes: int, allowed_ms: int) -> int:
    """Return the downtime if the hypervisor continues to copy until the remaining memory fits into the allowed downtime."""
    if not rate_bytes:
        return SWITCHOVER_MS
    left = pending
    for _round in range(_MAX_ROUNDS):
        if left * 1000 / rate_bytes <= allowed_ms:
            break
        following = min(pending, int(dirty_rate_bytes * left / rate_bytes))
        if following >= left:
            break
        left = following
    return pause_ms(left, rate_bytes)


# An iteration in which nearly as much was written as was sent hardly advances the move: at this ratio, it takes fourteen to reduce the rest to a tenth.
SHRINKING_RATIO = 0.85


@dataclass(frozen=True)
class Iterations:
    """The iterations of a running job, according to its last sample. All sizes are bytes of guest memory.

    The hypervisor counts what the guest has written only between two iterations (docs/libvirt.md, "Figures of a job"), and no poll is at exactly that moment:
    C(began_with) is computed from the next sample; if it may be as small as C(at_least), that is not null. C(sent) and C(rewritten) are about the iteration
    that ended last, null if it was not seen.
    """

    number: int = 0
    began_with: t.Optional[int] = None
    at_least: t.Optional[int] = None
    sent: t.Optional[int] = None
    rewritten: t.Optional[int] = None
    remaining: int = 0
    processed: int = 0
    rate: int = 0
    ended_below: int = 0

    @property
    def is_shrinking(self) -> bool:
        """Whether the last iteration left less to be sent than it had itself; true if that is not known yet."""
        if not self.sent or self.rewritten is None:
            return True
        return self.rewritten <= SHRINKING_RATIO * self.sent

    @property
    def ends_in_seconds(self) -> t.Optional[float]:
        """How long the current iteration continues after the sample, if the guest's pages are not empty; null if no rate is known."""
        return max(0, self.remaining - self.ended_below) / self.rate if self.rate else None


def read_iterations(stats: JobStats, allowed_ms: int, before: Iterations) -> Iterations:
    """Return the iterations after one more sample.

    :arg allowed_ms: the allowed downtime. An iteration ends when less remains than is sent in that time at the present rate.
    """
    rate = stats.bandwidth_bytes
    now = dataclasses.replace(
        before,
        number=stats.iteration,
        remaining=stats.memory_remaining_bytes,
        processed=stats.memory_processed_bytes,
        rate=rate,
        ended_below=rate * allowed_ms // 1000,
    )
    return _correct_beginning(stats, now) if stats.iteration == before.number else _begin_iteration(now, before)


def _correct_beginning(stats: JobStats, now: Iterations) -> Iterations:
    """Return C(now) with the beginning as the hypervisor reports it: the time it needs at this rate, once it has measured how fast the guest writes."""
    if now.at_least is None or now.began_with is None or not stats.dirty_rate_bytes:
        return now
    began_with = (stats.downtime_ms or 0) * now.rate // 1000
    if not now.at_least <= began_with <= now.began_with:
        # The figure still refers to the previous iteration.
        return now
    return dataclasses.replace(now, began_with=began_with, at_least=None, rewritten=began_with)


def _begin_iteration(now: Iterations, before: Iterations) -> Iterations:
    """Return C(now) with the figures of the iteration that has ended, and with the beginning of the next one."""
    if before.number == 0 or now.number != before.number + 1:
        # The iteration was not observed, or there were several since the last sample.
        return dataclasses.replace(now, began_with=None, at_least=None, sent=None, rewritten=None)
    # Between the two samples, the rest of the old iteration was sent, and then the beginning of the new one. If that rest was more than all that was
    # sent, most of it was empty pages, which cost nothing. The new iteration then counts as begun at once: the error is what is sent between two polls.
    at_turn = before.processed + max(0, before.remaining - before.ended_below)
    is_known = at_turn <= now.processed
    at_turn = at_turn if is_known else before.processed
    began_with = now.remaining + now.processed - at_turn
    now = dataclasses.replace(now, began_with=began_with, at_least=None if is_known else now.remaining)
    if before.began_with is None:
        # Of the first iteration only what was sent counts: empty pages cost nothing.
        return dataclasses.replace(now, sent=at_turn, rewritten=began_with)
    # What an iteration leaves over is sent in the next one, and was not written again.
    left_over = before.ended_below
    return dataclasses.replace(now, sent=max(0, before.began_with - left_over), rewritten=max(0, began_with - left_over))


@dataclass(frozen=True)
class ScheduleMoment:
    """The input of a schedule. C(allowed_ms) is the downtime that is allowed so far, null at the first sample.

    C(cap_bytes) is the bandwidth cap of the job itself, bytes a second; 0 if none is in force, or if the job has less because others share its link.
    """

    elapsed_seconds: float
    iterations: Iterations
    allowed_ms: t.Optional[int]
    cap_bytes: int = 0


@dataclass(frozen=True)
class Allowance:
    """The downtime that is allowed from now on; if the schedule has a reason for the operator, with the reason and the predicted downtime."""

    milliseconds: int
    predicted_ms: t.Optional[int] = None
    reason: str = ""


class DowntimeSchedule(t.Protocol):
    """How the allowed downtime grows. C(is_attentive) schedules require a poll at the end of each iteration, not only every quarter of a second."""

    @property
    def first_ms(self) -> int:
        """The downtime that is allowed from the start, in ms."""

    @property
    def longest_ms(self) -> int:
        """The longest downtime that the guest may have, in ms. It may be allowed at any rate."""

    @property
    def is_attentive(self) -> bool:
        """Whether to poll again as soon as the current iteration should be over."""

    def allowance_at(self, moment: ScheduleMoment) -> Allowance:
        """Return the downtime that is allowed at that moment."""


@dataclass(frozen=True)
class SteppedSchedule:
    """A ramp of steps, each at its time."""

    ramp: t.Tuple[DowntimeStep, ...]
    is_attentive: bool = False

    @property
    def first_ms(self) -> int:
        return self.ramp[0][1]

    @property
    def longest_ms(self) -> int:
        return self.ramp[-1][1]

    def allowance_at(self, moment: ScheduleMoment) -> Allowance:
        return Allowance(downtime_at(self.ramp, moment.elapsed_seconds))


MIB = 1024**2

# The hypervisor uses the rate of its last tenth of a second, which varies.
RATE_MARGIN = 1.25
# A change smaller than the variation of the rate is not applied.
_TOLERANCE = 1.1
# A rate below this part of the cap is limited by something else, which also limits the last pages.
_CAPPED_SHARE = 0.8
_MAX_DOWNTIME_MS = 2_000_000


@dataclass(frozen=True)
class AdaptiveSchedule:
    """Keeps C(first_ms) while iterations reduce the remaining memory. From the first one that does not, it allows the downtime that the rest needs.

    The hypervisor compares what remains with the allowed downtime at its present rate, which a cap may limit. It sends the last pages without the cap. So if
    the cap of the job is all that limits the rate, and the link is known, more than C(longest_ms) may be allowed, and the actual downtime stays within it.

    :arg longest_ms: the longest downtime that the guest may have.
    :arg full_from_seconds: from then on C(longest_ms) is allowed whatever the iterations do; 0 is never.
    :arg link_rate_bytes: what the link is known to carry, bytes a second; 0 if only the measured rate is known.
    :arg is_compressed: fewer bytes are sent than memory is moved, so the first iteration shows nothing.
    """

    first_ms: int
    longest_ms: int
    full_from_seconds: float = 0
    link_rate_bytes: int = 0
    is_compressed: bool = False
    is_attentive: bool = True

    def allowance_at(self, moment: ScheduleMoment) -> Allowance:
        seen, before = moment.iterations, moment.allowed_ms or self.first_ms
        last_rate = self._last_rate_bytes(moment)
        # The allowance with which the actual downtime is the longest that is permitted.
        most = min(_MAX_DOWNTIME_MS, self.longest_ms * last_rate // seen.rate) if seen.rate else self.longest_ms
        if self._is_due(seen):
            needed = min(most, int(RATE_MARGIN * pause_ms(seen.began_with or 0, seen.rate)))
            if needed > _TOLERANCE * before or before < self.longest_ms <= needed:
                return _raise_allowance(needed, seen, last_rate)
        if self.full_from_seconds and moment.elapsed_seconds >= self.full_from_seconds and before < self.longest_ms:
            return Allowance(self.longest_ms, reason="Half of the time is over: the longest pause that is permitted is allowed.")
        return Allowance(most if before > _TOLERANCE * most else before)

    def _is_due(self, seen: Iterations) -> bool:
        if not seen.rate or (self.is_compressed and seen.number <= 2):
            return False
        return not seen.is_shrinking

    def _last_rate_bytes(self, moment: ScheduleMoment) -> int:
        """Return the rate at which the last pages are sent, bytes a second: that of the link if only the cap of the job keeps the stream from it."""
        rate = moment.iterations.rate
        is_held_by_cap = moment.cap_bytes and rate >= _CAPPED_SHARE * moment.cap_bytes
        return max(rate, self.link_rate_bytes) if is_held_by_cap else rate


def _raise_allowance(allowed_ms: int, seen: Iterations, last_rate_bytes: int) -> Allowance:
    written, sent = (seen.rewritten or 0) // MIB, (seen.sent or 0) // MIB
    why = f"Of {sent} MiB that iteration {seen.number - 1} sent, the guest has rewritten {written} MiB: a downtime of {allowed_ms} ms is allowed."
    return Allowance(allowed_ms, pause_ms(seen.began_with or 0, last_rate_bytes), why)
