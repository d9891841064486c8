# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Sending notices beside the task's work: one thread, one notice after another, the task's own ones first."""

from __future__ import annotations

import collections
import itertools
import random
import threading
from collections.abc import Callable, Iterator

from .._ledger.store import Body
from .post import Answer
from .spool import Kept

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


class Sender:
    """:arg post: sends an event once.

    :arg drop: is called with each notice that needs no further try.
    :arg left: yields notices of processes that have ended; asked in the thread, when there is nothing of our own to send.
    """

    def __init__(self, post: Callable[[Body], Answer], retries: int, drop: Callable[[Kept], None], left: Callable[[], Iterator[Kept]]) -> None:
        self.refused: list[str] = []
        self.failure = ""
        self._post = post
        self._retries = retries
        self._drop = drop
        self._left = left
        self._waiting: collections.deque[Kept] = collections.deque()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._unsent = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin with what others left."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kvmfleet notices", daemon=True)
            self._thread.start()

    def add(self, kept: Kept) -> None:
        """Send this notice as soon as can be; returns at once."""
        with self._changed:
            self._waiting.append(kept)
            self._unsent += 1
            self._changed.notify_all()
        self.start()

    def finish(self, wait_seconds: float) -> int:
        """Wait for the notices that were added, but not longer than that, and stop; return how many were not sent."""
        with self._changed:
            if self._waiting or self._unsent:
                self._changed.wait_for(lambda: not self._waiting and not self._busy, wait_seconds)
            self._stopped.set()
            self._changed.notify_all()
            return self._unsent

    _busy = False

    def _run(self) -> None:
        left: Iterator[Kept] | None = None
        while not self._stopped.is_set():
            own = self._next_own()
            if own is not None:
                self._send_own(own)
                continue
            left = self._left() if left is None else left
            kept = next(left, None)
            if kept is None:
                self._wait_for_own()
            else:
                self._send(kept)

    def _next_own(self) -> Kept | None:
        with self._changed:
            self._busy = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None

    def _wait_for_own(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._stopped.is_set())

    def _send_own(self, kept: Kept) -> None:
        is_over = self._send(kept)
        with self._changed:
            self._unsent -= is_over
            self._busy = False
            self._changed.notify_all()

    def _send(self, kept: Kept) -> bool:
        """Send it, trying again where that may help; return whether it needs no further try."""
        for tried in itertools.count():
            answer = self._post(kept.event)
            if not answer.again:
                self._drop(kept)
                if not answer.sent:
                    self.refused.append(answer.said)
                return True
            self.failure = answer.said
            if tried >= self._retries or self._stopped.wait(max(_pause(tried), answer.pause_seconds)):
                return False
        raise AssertionError("unreachable")


def _pause(tried: int) -> float:
    """Return the seconds before the next try: twice as long each time, and not the same for all that wait for one receiver."""
    longest = min(_FIRST_PAUSE_SECONDS * 2.0**tried, _LONGEST_PAUSE_SECONDS)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads those that wait
