# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a host is there, by what is heard from it. Decisions alone: what is heard and when comes from outside."""

from __future__ import annotations

import typing as t

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class Presence:
    """A host that was heard from, is silent, or is gone; it is told once that it is gone, and once that it is back.

    All times are of one monotonic clock, in seconds.

    :arg gone_after_seconds: how long it must have been silent to be gone.
    :arg now: when the following began; until then it counts as heard from.
    """

    def __init__(self, gone_after_seconds: float, now: float) -> None:
        self._gone_after = gone_after_seconds
        self._heard_at = now
        self._there = False
        self._told = False
        self._why = "it was not heard from yet"
        self._tries = 0
        self._next_try = now

    def heard(self, now: float) -> t.Optional[float]:
        """The host answers; return for how many seconds it was silent where it was told that it is gone."""
        silent = now - self._heard_at
        told, self._told = self._told, False
        self._there, self._heard_at, self._tries = True, now, 0
        return silent if told else None

    def lost(self, now: float, why: str, silent_seconds: float = 0.0) -> None:
        """The connection is gone; the next try comes soon.

        :arg silent_seconds: for how long nothing had been heard by then.
        """
        self._there, self._heard_at, self._why = False, now - silent_seconds, why
        self._next_try = now + FIRST_PAUSE_SECONDS

    def failed(self, now: float, why: str, hanging: int = 0) -> None:
        """A try to connect has failed; tries grow rarer, and rarer still while earlier ones hang.

        :arg hanging: how many tries have never come back.
        """
        self._why = why
        pause = min(FIRST_PAUSE_SECONDS * 2**self._tries, LONGEST_PAUSE_SECONDS) * (1 + hanging)
        self._tries = min(self._tries + 1, 16)
        self._next_try = now + pause

    def wants_to_try(self, now: float) -> bool:
        """Whether it is time to connect."""
        return not self._there and now >= self._next_try

    def gone(self, now: float) -> t.Optional[tuple[str, float]]:
        """Return why and for how many seconds nothing was heard, when that is to be told now."""
        silent = now - self._heard_at
        if self._there or self._told or silent < self._gone_after:
            return None
        self._told = True
        return self._why, silent
