# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The queue of events that wait for a busy rulebook: the least important ones are dropped first, and their number is reported."""

from __future__ import annotations

import asyncio
import collections
import typing as t

from .libvirt_events import HOST_BACK, HOST_GONE, HOST_ISOLATED, MIGRATION_ITERATION, POST_COPY_FAILED, Event, events_lost

_LEAST_IMPORTANT = frozenset({MIGRATION_ITERATION})
_MOST_IMPORTANT = frozenset({HOST_ISOLATED, HOST_GONE, HOST_BACK, POST_COPY_FAILED})


class Backlog:
    """A queue with one reader in one event loop; adding an event never waits.

    :arg size: the maximum number of waiting events.
    :arg clock: returns the time of day as text.
    """

    def __init__(self, size: int, clock: t.Callable[[], str]) -> None:
        self._size = size
        self._clock = clock
        self._waiting: collections.deque[Event] = collections.deque()
        self._lost = 0
        self._there = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add an event; in a full queue, the oldest of the least important ones is dropped."""
        self._waiting.append(event)
        if len(self._waiting) > self._size:
            del self._waiting[self._find_least_important()]
            self._lost += 1
        self._there.set()

    async def get(self) -> Event:
        """Return the next event; after a loss, first the number of lost events. Wait for an event if necessary."""
        await self._there.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return events_lost(lost, self._clock())
        event = self._waiting.popleft()
        if not self._waiting:
            self._there.clear()
        return event

    def _find_least_important(self) -> int:
        ranks = [0 if event["event"] in _LEAST_IMPORTANT else 2 if event["event"] in _MOST_IMPORTANT else 1 for event in self._waiting]
        return ranks.index(min(ranks))
