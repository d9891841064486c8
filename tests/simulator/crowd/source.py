# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host that a simulated task runs on: it answers surveys out of the world, and its watcher moves guests after the clock."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.survey import survey_hosts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import StateFile, Survey, SurveyQuestion, Watcher
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import PolledState
from ansible_collections.kvmfleet.migration.tests.simulator.crowd.world import SimulatedHost, World

# As long as a poll on a real host waits for news.
POLL_SECONDS = 0.5
_NOTHING: t.Final[dict[str, dict[str, str]]] = {"given": {}, "ended": {}}

State = dict[str, t.Any]


class SimulatedMove:
    """One move under its watcher."""

    def __init__(self, world: World, order: State, watcher: Watcher) -> None:
        self.record = read_record(order["record"])
        self.waits = bool(order["waits"])
        self._world = world
        self._watcher = watcher
        self._ends_at: t.Optional[float] = None

    @property
    def is_over(self) -> bool:
        return self.record.status in s.CLOSED

    @property
    def is_under_way(self) -> bool:
        return self._ends_at is not None and not self.is_over

    def hear(self, turns: dict[str, dict[str, str]]) -> None:
        key = self.record.record_id
        if self.waits and key in turns["given"]:
            self.waits = False
        elif self.waits and key in turns["ended"] and not self.is_over:
            self._advance(s.CANCELLED, s.REASON_QUEUE_TIMEOUT)

    def start(self) -> None:
        self._advance(s.PREPARING)
        self._advance(s.RUNNING)
        self._ends_at = time.monotonic() + self._world.size.move_seconds

    def carry_on(self) -> None:
        if self._ends_at is not None and not self.is_over and time.monotonic() >= self._ends_at:
            self._world.move(self._world.guest_of[self.record.domain.uuid], int(str(self.record.destination.host).removeprefix("kvm")) - 1)
            self._advance(s.COMPLETED)

    def state(self) -> PolledState:
        return PolledState(StateFile(self.record, self._watcher), self._watcher, not self.is_over)

    def _advance(self, status: str, reason: t.Optional[str] = None) -> None:
        self.record = self.record.advance(status, "watcher", reason=reason)


class SimulatedSource:
    """Stands in for C(SourceHost)."""

    def __init__(self, world: World, number: int) -> None:
        self.name = world.size.host(number)
        self.seen: t.Optional[State] = None
        self._world = world
        self._number = number
        self._parallel = 1
        self._moves: dict[str, SimulatedMove] = {}

    def prepare_moves(self, questions: t.Sequence[SurveyQuestion], run_id: str | None = None) -> Survey:
        """Survey the world."""
        here, at = t.cast(t.Any, SimulatedHost(self._world, self._number)), t.cast(t.Any, self._world.at)
        return survey_hosts(here, questions, at, lambda path: True, lambda host: host.describe())

    def poll_states(self, run_id: str, counter: int, watchers: t.Mapping[str, t.Any], turns: t.Optional[dict[str, dict[str, str]]]) -> dict[str, PolledState]:
        """Let time pass, and return the states of these domains' moves."""
        time.sleep(POLL_SECONDS)
        for move in self._moves.values():
            move.carry_on()
            move.hear(turns or _NOTHING)
        for move in self._moves.values():
            if sum(other.is_under_way for other in self._moves.values()) < self._parallel and not (move.waits or move.is_under_way or move.is_over):
                move.start()
        return {uuid: move.state() for uuid, move in self._moves.items() if uuid in watchers}

    def order_until(self) -> Absent:
        """Return that no order comes late."""
        return ABSENT

    def start_watcher(self, work: State) -> State:
        watcher = Watcher(1, 1, work["run_id"])
        self._parallel = work["parallel"]
        self._moves = {order["record"]["domain"]["uuid"]: SimulatedMove(self._world, order, watcher) for order in work["orders"]}
        return {"taken": {uuid: move.record.generation for uuid, move in self._moves.items()}, "refused": {}, "watcher": encode(watcher)}
