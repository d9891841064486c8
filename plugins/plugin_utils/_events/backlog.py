# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The events that wait for the rulebook: so many and no more, and what matters least goes first."""

from __future__ import annotations

import asyncio
import collections
import typing as t

from .words import HOST_BACK, HOST_GONE, MIGRATION_ITERATION, POST_COPY_FAILED, Event, events_lost

_LEAST = frozenset({MIGRATION_ITERATION})
_MOST = frozenset({HOST_GONE, HOST_BACK, POST_COPY_FAILED})


class Backlog:
    """A queue of one reader in one event loop; putting never waits.

    :arg size: how many events wait at most.
    :arg clock: returns the time of day as text.
    """

    def __init__(self, size: int, clock: t.Callable[[], str]) -> None:
        self._size = size
        self._clock = clock
        self._waiting: collections.deque[Event] = collections.deque()
        self._lost = 0
        self._there = asyncio.Event()

    def put(self, event: Event) -> None:
        """Take an event; where there is no room one goes that matters least, the oldest of those."""
        self._waiting.append(event)
        if len(self._waiting) > self._size:
            del self._waiting[self._least()]
            self._lost += 1
        self._there.set()

    async def get(self) -> Event:
        """Return the next event, and before it how many were lost; wait where there is none."""
        await self._there.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return events_lost(lost, self._clock())
        event = self._waiting.popleft()
        if not self._waiting:
            self._there.clear()
        return event

    def _least(self) -> int:
        ranks = [0 if event["event"] in _LEAST else 2 if event["event"] in _MOST else 1 for event in self._waiting]
        return ranks.index(min(ranks))
