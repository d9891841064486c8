# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Balances whose process is killed between any two steps. The next run finishes the saved plan, or plans anew and settles what has arrived,
and no domain moves twice."""

from __future__ import annotations

import copy
import datetime
import itertools
import pathlib
import typing as t
from collections import Counter
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.drift import apply_saved_balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.inputs import BalanceInputs, find_last_moves
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan import make_balance_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan_request import build_settling
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.runs import (
    close_run,
    complete_runs,
    find_arrivals,
    list_runs,
    open_run,
    plan_run,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_entries import PlannedMove
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.records import read_completed, read_unsettled
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.balanced import holder, host_ref
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import Document
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.test_decision import draw_fleet

OPTIONS = BalanceOptions(goal="even", min_gain=0.0, max_moves=4)
# The moves of these fleets are independent, in two stages, in two stages of which the second is the longer one, and those of a group that moves together.
SEEDS = (5, 12, 100, 181)

ARRIVING = {"job": "incoming migration", "state": "paused", "reason": "migration"}


def take_turns(moves: list[Iterator[str]]) -> Iterator[str]:
    """Take a step of each move in turn, as they do that run at the same time."""
    while moves:
        for move in list(moves):
            if step := next(move, ""):
                yield step
            else:
                moves.remove(move)


class World:
    """A fleet and its ledger, which survive the processes that work on them."""

    def __init__(self, folder: pathlib.Path, facts: dict[str, Document]) -> None:
        self.facts = copy.deepcopy(facts)
        self.ledger = open_ledger(str(folder / "ledger"))

    def read_inputs(self) -> BalanceInputs:
        """What a run that begins now knows."""
        now = utc_now()
        drain = DrainInputs({name: {**one, "gathered_at": now} for name, one in self.facts.items()}, records=read_unsettled(self.ledger))
        last_moves = find_last_moves(read_completed(self.ledger, OPTIONS.cooldown_seconds), drain)
        return BalanceInputs(drain, datetime.datetime.fromisoformat(now), dict.fromkeys(self.facts, 0.0), last_moves)

    def make_plan(self) -> DrainPlan:
        return make_balance_plan(self.read_inputs(), [*self.facts], OPTIONS)

    def hosts_of(self, uuid: str) -> list[str]:
        return [name for name, one in self.facts.items() if any(domain["uuid"] == uuid for domain in one["domains"])]

    def carry_out(self, plan: DrainPlan, pid: int) -> Iterator[str]:
        """Do what the role does, and say after each step what has been done. Who stops asking has killed the process."""
        assert plan.balance
        drain = self.read_inputs().drain
        run = open_run(self.ledger, plan_run(plan, plan.balance), holder(pid), is_confirmed=True)
        yield "the run is open"
        for stage in build_settling(find_arrivals(self.ledger, drain), plan):
            for source, share in stage.items():
                for move in share.moves:
                    yield self._settle(str(move["uuid"]), source, str(move["destination"]))
        for _stage, moves in itertools.groupby(plan.moves, key=lambda move: move.stage):
            yield from take_turns([self._move(move) for move in moves])
        close_run(self.ledger, run.id, holder(pid))
        complete_runs(self.ledger)
        yield "the run is closed"

    def _settle(self, uuid: str, source: str, destination: str) -> str:
        """Do what C(live_migrate) does if the domain has arrived."""
        record = self.ledger.find_unsettled(uuid)
        assert record
        assert (self.hosts_of(uuid), record.record.source.host) == ([destination], source)
        self.ledger.update_record(record, record.record.advance(s.COMPLETED, "ann"))
        return f"{uuid} is settled"

    def _move(self, move: PlannedMove) -> Iterator[str]:
        """Do what C(live_migrate) does: begin a move, or go on where another process was killed."""
        record = self.ledger.find_unsettled(move.uuid)
        if record is None and self.hosts_of(move.uuid) == [move.destination]:
            return
        if record is None:
            ends = host_ref(move.source), host_ref(move.destination)
            record = self.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(move.uuid, move.name), *ends, {}, by="ann"))
            yield f"{move.name} is booked"
        if record.record.status == s.ACCEPTED:
            record = self.ledger.update_record(record, record.record.advance(s.RUNNING, "ann"))
            self._put(move, {move.source: {"job": "outgoing migration"}, move.destination: ARRIVING})
            yield f"{move.name} moves"
        if self.hosts_of(move.uuid) != [move.destination]:
            self._put(move, {move.destination: {"job": "none", "state": "running", "reason": "migrated"}})
            yield f"{move.name} has arrived"
        self.ledger.update_record(record, record.record.advance(s.COMPLETED, "ann"))
        yield f"{move.name} is settled"

    def _put(self, move: PlannedMove, where: t.Mapping[str, Document]) -> None:
        """Let a domain be on these hosts alone, with these changes there."""
        (domain,) = [domain for domain in self.facts[move.source]["domains"] if domain["uuid"] == move.uuid] or [
            domain for domain in self.facts[move.destination]["domains"] if domain["uuid"] == move.uuid
        ]
        for name in (move.source, move.destination):
            others = [other for other in self.facts[name]["domains"] if other["uuid"] != move.uuid]
            self.facts[name]["domains"] = [*others, *([{**domain, **where[name]}] if name in where else [])]

    def check_moved(self, plan: DrainPlan) -> None:
        """Check that each domain of a plan has moved once, and no other one."""
        assert {move.uuid: self.hosts_of(move.uuid) for move in plan.moves} == {move.uuid: [move.destination] for move in plan.moves}
        assert read_unsettled(self.ledger) == []
        moved = Counter(record.domain.uuid for record in self.ledger.list_records())
        assert moved == dict.fromkeys((move.uuid for move in plan.moves), 1)


@pytest.fixture(params=SEEDS)
def facts(request: pytest.FixtureRequest) -> dict[str, Document]:
    return draw_fleet(request.param)


def kill_everywhere(folder: pathlib.Path, facts: dict[str, Document]) -> Iterator[tuple[str, World, DrainPlan]]:
    """For each step of a balance: yield what it was, and the world after a process was killed right after it, with its plan."""
    step = 0
    while True:
        world = World(folder / str(step), facts)
        plan = world.make_plan()
        done = list(zip(range(step + 1), world.carry_out(plan, pid=1), strict=False))
        if len(done) <= step:
            return
        yield done[-1][1], world, plan
        step += 1


def test_the_next_run_finishes_the_saved_plan(tmp_path: pathlib.Path, facts: dict[str, Document]) -> None:
    steps = []
    for step, world, plan in kill_everywhere(tmp_path, facts):
        assert apply_saved_balance(encode(plan), world.read_inputs(), [*facts], {}) == plan, step
        assert [*world.carry_out(plan, pid=2)][-1] == "the run is closed"
        world.check_moved(plan)
        first, second = list_runs(world.ledger)
        assert (first.is_open, second.is_open) == (False, False)
        assert first.is_interrupted is (ABSENT if step == "the run is closed" else True)
        # Every move is in the run that began it.
        recorded = [move.domain.uuid for run in (first, second) for move in run.moves if move.record]
        assert sorted(recorded) == sorted(move.uuid for move in plan.moves), step
        steps.append(step)
    assert len(steps) == 2 + 4 * len(plan.moves)
    assert plan.moves


def test_a_new_plan_after_a_kill_leaves_what_has_moved_and_what_is_on_its_way(tmp_path: pathlib.Path, facts: dict[str, Document]) -> None:
    for step, world, plan in kill_everywhere(tmp_path, facts):
        begun = {record.domain.uuid for record in world.ledger.list_records()}
        new = world.make_plan()
        assert begun.isdisjoint(move.uuid for move in new.moves), step
        unsettled = {move.uuid: move for move in plan.moves if world.ledger.find_unsettled(move.uuid)}
        on_their_way = {uuid: move for uuid, move in unsettled.items() if world.hosts_of(uuid) != [move.destination]}
        list(world.carry_out(new, pid=2))
        # What had arrived is settled, and what was on its way still is.
        assert {record.domain.uuid for record in read_unsettled(world.ledger)} == {*on_their_way}
        for uuid, move in on_their_way.items():
            assert {*world.hosts_of(uuid)} <= {move.source, move.destination}
        runs = list_runs(world.ledger)
        assert not [run for run in runs if run.is_open]
        arrived = {*begun} - {*on_their_way}
        assert {move.domain.uuid for move in runs[0].moves if move.status == s.COMPLETED} == arrived, step
