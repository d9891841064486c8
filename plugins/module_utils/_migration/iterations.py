# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How often a move has gone over the guest's memory, and whether that gets it any nearer to its end: by one reading of the job after another."""

from __future__ import annotations

import dataclasses
import typing as t

from .hypervisor import JobStats

# An iteration in which nearly as much was written as was sent hardly brings the move nearer to its end: at this ratio it takes fourteen to come to a tenth.
SHRINKING = 0.85


@dataclasses.dataclass(frozen=True)
class Iterations:
    """What the last reading of a running job says of its iterations. All sizes are bytes of guest memory.

    The hypervisor counts what the guest has written only between two iterations (libvirt.md, section 8.1), and nobody reads the job at that very moment:
    C(began_with) is reckoned back from the reading after it; where it may be as little as C(at_least), that is not null. C(sent) and C(rewritten) are about
    the iteration that ended last, null where it was not seen.
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
    def shrinks(self) -> bool:
        """Whether the last iteration left less to be sent than it had itself; true where that is not known yet."""
        if not self.sent or self.rewritten is None:
            return True
        return self.rewritten <= SHRINKING * self.sent

    @property
    def ends_in_seconds(self) -> t.Optional[float]:
        """How long the current iteration takes from the reading on, where the guest's pages are not empty; null where no rate is known."""
        return max(0, self.remaining - self.ended_below) / self.rate if self.rate else None


def read(stats: JobStats, allowed_ms: int, before: Iterations) -> Iterations:
    """Return what is known after one more reading.

    :arg allowed_ms: the pause that is allowed: below what is sent in that time at the present rate an iteration ends.
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
    return _told(stats, now) if stats.iteration == before.number else _next(now, before)


def _told(stats: JobStats, now: Iterations) -> Iterations:
    """Return C(now) with what the hypervisor itself says of the beginning: the time it needs at this rate, once it has measured how fast the guest writes."""
    if now.at_least is None or now.began_with is None or not stats.dirty_rate_bytes:
        return now
    began_with = (stats.downtime_ms or 0) * now.rate // 1000
    if not now.at_least <= began_with <= now.began_with:
        # It still is about the iteration before.
        return now
    return dataclasses.replace(now, began_with=began_with, at_least=None, rewritten=began_with)


def _next(now: Iterations, before: Iterations) -> Iterations:
    """Return C(now) with the ends of the iteration that is over and the beginning of the one that has taken its place."""
    if before.number == 0 or now.number != before.number + 1:
        # It was never seen, or there were several since the last reading.
        return dataclasses.replace(now, began_with=None, at_least=None, sent=None, rewritten=None)
    # Between the two readings first the rest of the old iteration was sent, and then the first of the new one. Where that rest was more than all that was
    # sent, most of it was empty pages, which cost nothing, and the turn counts as come at once: it is wrong by what one look to the next sends.
    at_turn = before.processed + max(0, before.remaining - before.ended_below)
    is_known = at_turn <= now.processed
    at_turn = at_turn if is_known else before.processed
    began_with = now.remaining + now.processed - at_turn
    now = dataclasses.replace(now, began_with=began_with, at_least=None if is_known else now.remaining)
    if before.began_with is None:
        # Of the first iteration only what was sent counts: pages that hold nothing cost nothing.
        return dataclasses.replace(now, sent=at_turn, rewritten=began_with)
    # What an iteration leaves over is sent in the next one, and was not written again.
    left_over = before.ended_below
    return dataclasses.replace(now, sent=max(0, before.began_with - left_over), rewritten=max(0, began_with - left_over))
