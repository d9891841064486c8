# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How long, and how often, a host that does not answer is asked where a guest is. It may be slow, busy, or restarting its daemon."""

from __future__ import annotations

import typing as t

from .._errors import KvmfleetError
from .._migration import outcome
from .._migration.hypervisor import GuestView
from .._records import statuses as s
from .._records.clock import utc_now
from .journal import Journal

# Where only the answer tells on which host the guest is, or whether it may run on.
ANSWER_SECONDS = 600.0
# Where the guest runs on the source as before the move: only the record waits for the answer.
SAFE_ANSWER_SECONDS = 180.0
# Where no job was begun: the guest has not left the source.
NOT_BEGUN_SECONDS = 45.0
# Where an earlier watcher has given up: this time somebody waits for the answer, and the task can be run again.
AGAIN_SECONDS = 90.0
# A host that needs longer to accept a connection gets longer at each try.
FIRST_OPEN_SECONDS = 20.0
LONGEST_OPEN_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 10.0

SOURCE, DESTINATION = "source", "destination"


class Unanswered:
    """The wait for hosts that do not answer while a move is settled. It is told in the state file, from which progress lines are made.

    :arg before_seconds: how long a host was waited for before.
    """

    def __init__(self, journal: Journal, clock: t.Callable[[], float], sleep: t.Callable[[float], None], before_seconds: float = 0.0) -> None:
        self._journal = journal
        self._clock = clock
        self._sleep = sleep
        self._begun_at = clock() - before_seconds
        self._was_given_up = journal.record["status"] == s.ERROR
        self._limit = ANSWER_SECONDS
        self._pause = _FIRST_PAUSE_SECONDS
        self._since = ""
        self._open_seconds = {SOURCE: FIRST_OPEN_SECONDS, DESTINATION: FIRST_OPEN_SECONDS}
        self._causes: t.Dict[str, str] = {}

    def open_seconds(self, side: str) -> float:
        """Return how long connecting to the host may take now: no longer than it is waited for at all."""
        left = self._begun_at + self._limit - self._clock()
        return max(min(self._open_seconds[side], left), FIRST_OPEN_SECONDS)

    def failed(self, side: str, error: KvmfleetError) -> None:
        """Keep why a host did not answer."""
        self._causes[side] = error.message
        self._open_seconds[side] = min(2 * self._open_seconds[side], LONGEST_OPEN_SECONDS)

    def wait(self, source: GuestView, destination: GuestView, move: outcome.Move) -> bool:
        """Wait before the next question; return false where it was waited for long enough."""
        self._limit = AGAIN_SECONDS if self._was_given_up else _limit(source, move)
        if self._clock() - self._begun_at >= self._limit:
            return False
        self._since = self._since or utc_now()
        self._journal.wait_for(
            f"is being settled: {self._silent(source, destination)} does not answer since {self._since}; asked again for up to {self._limit:.0f} s"
        )
        self._sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        return True

    def ended(self) -> None:
        """Both hosts have answered, or are not asked any more."""
        self._pause, self._since = _FIRST_PAUSE_SECONDS, ""
        self._journal.wait_for(None)

    def explain(self, source: GuestView, destination: GuestView) -> str:
        """Return what is not known, why, and what to do; empty where both hosts have answered."""
        if source.answered and destination.answered:
            return ""
        waited = self._clock() - self._begun_at
        causes = " ".join(self._causes.get(side, "") for side, view in ((SOURCE, source), (DESTINATION, destination)) if not view.answered).strip()
        return (
            f" For {waited:.0f} s {self._silent(source, destination)} did not answer ({causes or 'no cause is known'}). Start the guest nowhere before that is "
            "known. When the host answers, run the same task again: it asks both hosts and closes the record."
        )

    def _silent(self, source: GuestView, destination: GuestView) -> str:
        sides = [side for side, view in ((SOURCE, source), (DESTINATION, destination)) if not view.answered]
        return " and ".join(f"the {side} {self._journal.record[side].get('host') or ''}".strip() for side in sides)


def _limit(source: GuestView, move: outcome.Move) -> float:
    if not move.job_started:
        return NOT_BEGUN_SECONDS
    return SAFE_ANSWER_SECONDS if outcome.runs_as_before(source, move) else ANSWER_SECONDS
