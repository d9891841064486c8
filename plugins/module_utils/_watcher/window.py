# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The sliding window over the moves of one run: how many at once, and none new when the run has gone."""

from __future__ import annotations

import typing as t

from .._records import statuses as s
from .heartbeat import Heartbeat
from .mover import Mover
from .turns import Turns

TICK_SECONDS = 0.1
# A libvirt daemon has twenty workers, and each migrate call holds one to its very end; some are left for questions and aborts.
MAX_CALLS = 16


class Window:
    """Starts movers in their order; those that wait for their turn when they have it. A move that runs is always watched to its end.

    :arg parallel: as many guests are under way at most. One that runs at its destination makes room for the next, while libvirt ends its source;
      of both together there are no more than C(MAX_CALLS), unless C(parallel) itself is more.
    :arg pause: sleeps so many seconds, or less where something has changed.
    """

    def __init__(self, movers: t.Sequence[Mover], parallel: int, heartbeat: Heartbeat, turns: Turns, pause: t.Callable[[float], None]) -> None:
        self._waiting = list(movers)
        self._running: t.List[Mover] = []
        self._parallel = parallel
        self._heartbeat = heartbeat
        self._turns = turns
        self._pause = pause

    def run(self) -> None:
        """Return when every move has ended, or was cancelled before it began."""
        while self._waiting or self._running:
            self._running = [mover for mover in self._running if mover.is_alive()]
            if self._waiting and not self._heartbeat.is_fresh():
                self._cancel_waiting()
            self._waiting = [mover for mover in self._waiting if not mover.heed_while_waiting()]
            self._hear_turns()
            self._start()
            self._pause(TICK_SECONDS)
        self._heartbeat.remove()
        self._turns.remove()

    def _hear_turns(self) -> None:
        """Let those begin that have their turn, before all others since a place in the fleet is kept for them; end those that were given up."""
        waiting = [mover for mover in self._waiting if mover.waits]
        if not waiting:
            return
        self._turns.read()
        for mover in waiting:
            why, too_late = self._turns.given(mover.order.record["id"]), self._turns.ended(mover.order.record["id"])
            if why is not None:
                mover.let(why)
                self._waiting.remove(mover)
                self._waiting.insert(0, mover)
            elif too_late is not None:
                mover.cancel(s.REASON_QUEUE_TIMEOUT, too_late)
                self._waiting.remove(mover)

    def _start(self) -> None:
        for mover in [mover for mover in self._waiting if not mover.waits]:
            if not self._has_room():
                return
            self._waiting.remove(mover)
            mover.start()
            self._running.append(mover)

    def _has_room(self) -> bool:
        under_way = sum(not mover.has_arrived for mover in self._running)
        return under_way < self._parallel and len(self._running) < max(self._parallel, MAX_CALLS)

    def _cancel_waiting(self) -> None:
        for mover in self._waiting:
            if not mover.is_adopted:
                mover.cancel(s.REASON_CONTROLLER_LOST, "The run that owns this move was not heard from for 60 s. Nothing was started.")
        self._waiting = [mover for mover in self._waiting if mover.is_adopted]
