# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Knocking at a dead host beside other work, so that nobody waits for its silence longer than need be."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable

# A silence that is older is proved again before anything is begun on it.
FRESH_SECONDS = 5.0

Taking = concurrent.futures.Future[None]


class Renewal:
    """:arg take: proves the silence; raises what speaks against a start. It is called beside the task's own thread, never twice at once.

    :arg taken_at: when that was done last, by the clock.
    """

    def __init__(self, take: Callable[[], object], taken_at: float = float("-inf"), clock: Callable[[], float] = time.monotonic) -> None:
        self._take = take
        self._taken_at = taken_at
        self._clock = clock
        self._taking: Taking | None = None
        self._at_once = threading.Event()
        self._dropped = False

    def begin(self, delay_seconds: float) -> None:
        """Prove the silence after so many seconds, or when L(insist) wants it earlier."""
        self.drop()
        self._dropped = False
        self._at_once.clear()
        pool = concurrent.futures.ThreadPoolExecutor(1, "silence")
        self._taking = pool.submit(self._run, delay_seconds)
        pool.shutdown(wait=False)

    def insist(self) -> None:
        """Return once the silence was proved, L(FRESH_SECONDS) ago at most. Raises what spoke against it."""
        self._join()
        if self._clock() - self._taken_at > FRESH_SECONDS:
            self.begin(0)
            self._join()

    def drop(self) -> None:
        """Do not begin any more; wait for what was begun."""
        self._dropped = True
        self._at_once.set()
        if self._taking is not None:
            concurrent.futures.wait([self._taking])
            self._taking = None

    def _join(self) -> None:
        taking, self._taking = self._taking, None
        self._at_once.set()
        if taking is not None:
            taking.result()

    def _run(self, delay_seconds: float) -> None:
        self._at_once.wait(delay_seconds)
        if not self._dropped:
            self._take()
            self._taken_at = self._clock()
