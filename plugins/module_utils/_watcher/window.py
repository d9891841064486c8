# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The sliding window over the moves of one run: how many at once, and none new when the run has gone."""

from __future__ import annotations

import time
import typing as t

from .._records import statuses as s
from .heartbeat import Heartbeat
from .mover import Mover

TICK_SECONDS = 0.1


class Window:
    """Starts movers in their order, at most C(parallel) at a time. A move that runs is always watched to its end."""

    def __init__(self, movers: t.Sequence[Mover], parallel: int, heartbeat: Heartbeat, sleep: t.Callable[[float], None] = time.sleep) -> None:
        self._waiting = list(movers)
        self._running: t.List[Mover] = []
        self._parallel = parallel
        self._heartbeat = heartbeat
        self._sleep = sleep

    def run(self) -> None:
        """Return when every move has ended, or was cancelled before it began."""
        while self._waiting or self._running:
            self._running = [mover for mover in self._running if mover.is_alive()]
            if self._waiting and not self._heartbeat.is_fresh():
                self._cancel_waiting()
            self._waiting = [mover for mover in self._waiting if not mover.heed_while_waiting()]
            while self._waiting and len(self._running) < self._parallel:
                mover = self._waiting.pop(0)
                mover.start()
                self._running.append(mover)
            self._sleep(TICK_SECONDS)
        self._heartbeat.remove()

    def _cancel_waiting(self) -> None:
        for mover in self._waiting:
            if not mover.is_adopted:
                mover.cancel(s.REASON_CONTROLLER_LOST, "The run that owns this move was not heard from for 60 s. Nothing was started.")
        self._waiting = [mover for mover in self._waiting if mover.is_adopted]
