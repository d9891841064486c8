# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The wait for hosts that do not answer while a move is settled: how long, how often, and what a person is told."""

from __future__ import annotations

import typing as t

from .._migration import outcome
from .._model import statuses as s
from .._model.clock import utc_now
from .._model.domain_states import DomainView
from .._model.errors import KvmfleetError
from .journal import Journal

# If only the silent host knows where the guest is, or whether it may continue.
ANSWER_SECONDS = 600.0
# If the guest runs on the source as before the move: only the record waits for the answer.
SAFE_ANSWER_SECONDS = 180.0
# If no job was started: the guest has not left the source.
NOT_BEGUN_SECONDS = 45.0
# When an earlier watcher has given up: this time a task waits for the answer, and it can be run again.
AGAIN_SECONDS = 90.0
# Each attempt to connect may take twice as long as the one before.
FIRST_OPEN_SECONDS = 20.0
LONGEST_OPEN_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 0.25
# What a move waits for while it is settled begins with this.
SETTLING = "is being settled"
_LONGEST_PAUSE_SECONDS = 10.0
SOURCE, DESTINATION = "source", "destination"


class SilentHosts:
    """The wait for silent hosts while a move is settled. The state file names them, and progress lines are made from it.

    :arg before_seconds: for how long a host was silent before that.
    """

    def __init__(self, journal: Journal, clock: t.Callable[[], float], sleep: t.Callable[[float], None], before_seconds: float = 0.0) -> None:
        self._journal = journal
        self._clock = clock
        self._sleep = sleep
        self._begun_at = clock() - before_seconds
        self._was_given_up = journal.record.status == s.ERROR
        self._limit = ANSWER_SECONDS
        self._pause = _FIRST_PAUSE_SECONDS
        self._since = ""
        self._open_seconds = {SOURCE: FIRST_OPEN_SECONDS, DESTINATION: FIRST_OPEN_SECONDS}
        self._causes: t.Dict[str, str] = {}

    def open_seconds(self, side: str) -> float:
        """Return how long connecting to the host may take now: no longer than the rest of the wait, but at least C(FIRST_OPEN_SECONDS)."""
        left = self._begun_at + self._limit - self._clock()
        return max(min(self._open_seconds[side], left), FIRST_OPEN_SECONDS)

    def note_failure(self, side: str, error: KvmfleetError) -> None:
        """Keep why a host did not answer."""
        self._causes[side] = error.message
        self._open_seconds[side] = min(2 * self._open_seconds[side], LONGEST_OPEN_SECONDS)

    def wait_for_answer(self, source: DomainView, destination: DomainView, move: outcome.MoveState) -> bool:
        """Wait before the next question; return false when the limit of the wait is reached."""
        self._limit = AGAIN_SECONDS if self._was_given_up else _limit_seconds(source, move)
        if self._clock() - self._begun_at >= self._limit:
            return False
        self._since = self._since or utc_now()
        self._journal.wait_for(
            f"{SETTLING}: no answer from {self._name_silent(source, destination)} since {self._since}; queries continue for up to {self._limit:.0f} s"
        )
        self._sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        return True

    def end_wait(self) -> None:
        """End the wait: both hosts have answered, or are no longer queried."""
        self._pause, self._since = _FIRST_PAUSE_SECONDS, ""
        self._journal.wait_for(None)

    def explain_silence(self, source: DomainView, destination: DomainView) -> str:
        """Return which host is silent, why, and what to do; empty when both hosts have answered."""
        if source.answered and destination.answered:
            return ""
        waited, silent = self._clock() - self._begun_at, self._name_silent(source, destination)
        causes = " ".join(self._causes.get(side, "") for side, view in ((SOURCE, source), (DESTINATION, destination)) if not view.answered).strip()
        return (
            f" {silent[0].upper()}{silent[1:]} did not answer for {waited:.0f} s ({causes or 'cause unknown'}). Do not start the guest on any host "
            "until its location is known. When the host answers, run the same task again: it queries both hosts and closes the record."
        )

    def _name_silent(self, source: DomainView, destination: DomainView) -> str:
        sides = [side for side, view in ((SOURCE, source), (DESTINATION, destination)) if not view.answered]
        ends = {SOURCE: self._journal.record.source, DESTINATION: self._journal.record.destination}
        return " and ".join(f"the {side} {ends[side].host or ''}".strip() for side in sides)


def _limit_seconds(source: DomainView, move: outcome.MoveState) -> float:
    if not move.job_started:
        return NOT_BEGUN_SECONDS
    return SAFE_ANSWER_SECONDS if outcome.is_running_as_before(source, move) else ANSWER_SECONDS
