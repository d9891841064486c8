# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The work of balance_plan: makes and saves the plan, or checks a saved plan; and determines what each host carries out in each stage."""

from __future__ import annotations

import datetime
import itertools
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe, SignedInt, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import PredictedMove
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._drain.answers import TaskResult, check_rights, readable_facts
from .._drain.inputs import DrainOptions
from .._drain.plan_request import PlanRequest, read_inputs, real_path
from .._drain.records import read_completed
from .._drain.saved_plan import DrainPlan, read_plan
from .._drain.shares import build_moves, read_prediction
from .._drain.verify_request import DomainsResult
from .._ledger.ledger import Ledger
from .._settings.variables import Settings, age_seconds, read_facts
from .drift import apply_saved_balance
from .inputs import CLOCK_TOLERANCE_SECONDS, BalanceInputs, find_last_moves
from .options import BalanceOptions
from .plan import describe_options, make_balance_plan
from .result import BalanceResult, judge_balance


@dataclass(frozen=True)
class StageShare:
    """What one host carries out in one stage.

    :arg moves: for C(live_migrate).
    :arg predicted: what the plan predicts for them, by UUID of the domain.
    """

    moves: tuple[JsonObject, ...]
    predicted: Mapping[str, PredictedMove]


def build_stages(plan: DrainPlan) -> list[dict[str, StageShare]]:
    """Return the stages of the plan, each by source."""
    stages = []
    for _stage, members in itertools.groupby(plan.moves, key=lambda move: move.stage):
        moves = list(members)
        by_source = {source: [move for move in moves if move.source == source] for source in dict.fromkeys(move.source for move in moves)}
        stages.append(
            {
                source: StageShare(
                    tuple(build_moves({move.uuid: move.destination for move in own}, plan.options.moves)),
                    {move.uuid: predicted for move in own if (predicted := read_prediction(move))},
                )
                for source, own in by_source.items()
            }
        )
    return stages


def build_settling(arrivals: Iterable[MoveRecord], plan: DrainPlan) -> list[dict[str, StageShare]]:
    """Return a stage before those of the plan, in which C(live_migrate) settles these records; none if there are none. Those that the plan moves are left out.

    :arg arrivals: of domains that have arrived, see L(find_arrivals).
    """
    planned = {move.uuid for move in plan.moves}
    destinations: dict[str, dict[str, str]] = {}
    for record in arrivals:
        if record.domain.uuid not in planned:
            destinations.setdefault(record.source.host or "", {})[record.domain.uuid] = record.destination.host or ""
    return [{source: StageShare(tuple(build_moves(moves)), {}) for source, moves in destinations.items()}] if destinations else []


def list_ends(plan: DrainPlan) -> list[str]:
    """Return the hosts between which domains move."""
    return sorted({host for move in plan.moves for host in (move.source, move.destination)})


@dataclass(frozen=True)
class BalanceWork:
    """The results of earlier tasks of the role.

    :arg asked: C(host_facts) by host; after the moves once more.
    :arg moved: C(live_migrate) by host, one result for each stage that was begun.
    """

    asked: Maybe[Mapping[str, t.Optional[TaskResult]]] = ABSENT
    moved: Maybe[Mapping[str, tuple[DomainsResult, ...]]] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    @property
    def silence(self) -> dict[str, str]:
        """Why hosts did not answer, by name."""
        return {host: one.message or "It did not answer." for host, one in (self.asked or {}).items() if one and one.has_failed}


@dataclass(frozen=True)
class BalanceTask:
    """The options of C(balance_plan)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    step: str
    hosts: tuple[str, ...]
    goal: str
    max_moves: Json
    weights: Json
    tolerated_pressure: Json
    tolerated_unevenness: Json
    min_gain: Json
    horizon_seconds: Json
    cooldown_seconds: Json
    max_age_seconds: Json
    maintenance_allowed: Json
    take_over: t.Optional[bool]
    run: t.Optional[str]
    options: t.Optional[JsonObject]
    parallel: Json
    empty: SignedInt
    check_saved: t.Optional[bool]
    plan: Json
    file: t.Optional[str]
    only: t.Optional[bool]
    publish_as: t.Optional[str]
    ledger: t.Optional[str]
    work: t.Optional[BalanceWork]

    def read_options(self) -> BalanceOptions:
        """Return the options of the balance. Raises L(InvalidArgument) for the first one that is out of range."""
        given = {name: getattr(self, name) for name in vars(BalanceOptions()) if name != "moves"}
        return BalanceOptions(**given, moves=DrainOptions.from_values(self.parallel, options=self.options))


def list_options(options: BalanceOptions) -> dict[str, Json]:
    """Return the options that are not as they are by default, in the form of a plan."""
    plain, usual = (t.cast("dict[str, Json]", {**encode(one.moves.for_plan()), **encode(describe_options(one))}) for one in (options, BalanceOptions()))
    return {name: value for name, value in plain.items() if value != usual.get(name)}


@dataclass(frozen=True)
class BalanceRequest:
    """The request for the plan of a balance.

    :arg hosts: the inventory names of the fleet.
    :arg plan: what it has in common with every request for a plan.
    :arg empty: see L(make_balance_plan).
    """

    hosts: tuple[str, ...]
    options: BalanceOptions
    plan: PlanRequest
    empty: int = 0

    @classmethod
    def from_task(cls, task: BalanceTask) -> BalanceRequest:
        """Return the request of a task with these options. Raises L(InvalidArgument) for invalid ones."""
        hosts, work = tuple(dict.fromkeys(task.hosts)), task.work or BalanceWork()
        plan = PlanRequest(
            sources=(),
            candidates=hosts,
            given={},
            saved=task.plan or None,
            path=real_path(task.file),
            only=bool(task.only),
            check_saved=bool(task.check_saved),
            silence=work.silence,
            role="balance",
            made_by="balance_mode=plan",
        )
        return cls(hosts, task.read_options(), plan, task.empty)

    def read_inputs(self, settings: Settings, ledger: Ledger | None) -> BalanceInputs:
        """Return what the plan is made from: the facts, the ledger, and the variables of the hosts."""
        drain = read_inputs(self.plan, settings, ledger)
        ages = {host: age_seconds(facts) for host, facts in drain.facts.items()}
        last_moves = find_last_moves(read_completed(ledger, self.options.cooldown_seconds + CLOCK_TOLERANCE_SECONDS), drain)
        return BalanceInputs(drain, datetime.datetime.now(datetime.UTC), ages, last_moves)

    def resolve_plan(self, inputs: BalanceInputs) -> DrainPlan:
        """Return the plan: a new one, or the saved one if it still applies. Raises what L(make_balance_plan) and L(apply_saved_balance) raise."""
        with readable_facts():
            if not self.plan.only:
                check_rights(self._answered(inputs), inputs.drain.hosts)
            if self.plan.check_saved:
                return apply_saved_balance(self.plan.read_saved(), inputs, self.hosts, list_options(self.options))
            return make_balance_plan(inputs, self.hosts, self.options, self.empty)

    def _answered(self, inputs: BalanceInputs) -> Sequence[str]:
        return [host for host in self.hosts if host in inputs.drain.facts and host not in self.plan.silence]


def read_result(task: BalanceTask, settings: Settings, check_mode: bool) -> BalanceResult:
    """Return what became of the moves of a plan, by the facts that were gathered after them. Raises L(InvalidArgument) for an incomplete plan."""
    plan, work = read_plan(task.plan), task.work or BalanceWork()
    silent = work.silence
    facts = {host: read_facts(known) for host in list_ends(plan) if host not in silent and (known := settings.facts(host))}
    return judge_balance(plan, work.moved or {}, facts, check_mode or bool(task.only))
