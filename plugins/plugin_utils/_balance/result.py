# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The result of a balance: which domains have moved, and what failed, from the answers of the hosts after the moves."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts

from .._drain.result import judge_move
from .._drain.saved_plan import DrainPlan
from .._drain.tables import DomainOutcome
from .._drain.verify_request import DomainsResult, HostTasks

_NOTHING_RUN: t.Final = DomainsResult()


@dataclass(frozen=True)
class BalanceResult:
    """The result of a balance. All parts are by the host that domains have left or were to leave.

    :arg problems: failures that are not about one domain.
    :arg score_before: of the plan; C(score_after) is what the plan predicts for after all of its moves.
    """

    moved: Mapping[str, tuple[DomainOutcome, ...]]
    failed: Mapping[str, tuple[DomainOutcome, ...]]
    problems: Mapping[str, tuple[str, ...]]
    score_before: float
    score_after: float

    def by_source(self) -> dict[str, tuple[DomainOutcome, ...]]:
        """Return the results of all domains."""
        return {source: (*moved, *self.failed.get(source, ())) for source, moved in self.moved.items()}

    @property
    def failures(self) -> int:
        """How many domains and hosts failed."""
        return sum(map(len, self.failed.values())) + sum(map(len, self.problems.values()))


def judge_balance(plan: DrainPlan, tasks: Mapping[str, Sequence[DomainsResult]], facts: Mapping[str, HostFacts], nothing_done: bool) -> BalanceResult:
    """Return the result of a plan.

    :arg tasks: what C(live_migrate) has returned, by host, for each stage that was begun.
    :arg facts: of the hosts that answered after the moves.
    :arg nothing_done: nothing was carried out, so that planned moves are neither moved nor failed.
    """
    judged = {source: [] if nothing_done else _judge_source(source, plan, tasks.get(source, ()), facts) for source in plan.sources}
    problems = {source: tuple(_list_problems(plan, tasks.get(source, ()))) for source in dict.fromkeys([*plan.sources, *tasks])}
    return BalanceResult(
        moved={source: tuple(entry for entry in entries if entry.error is ABSENT) for source, entries in judged.items()},
        failed={source: tuple(entry for entry in entries if entry.error is not ABSENT) for source, entries in judged.items()},
        problems={source: lines for source, lines in problems.items() if lines},
        score_before=plan.balance.score_before if plan.balance else 0.0,
        score_after=plan.balance.score_after if plan.balance else 0.0,
    )


def _list_problems(plan: DrainPlan, tasks: Sequence[DomainsResult]) -> Iterator[str]:
    """Yield the failures that are not about a move of the plan. The records of an earlier run may have been settled first."""
    planned = {move.uuid for move in plan.moves}
    for one in tasks:
        yield from HostTasks(one, _NOTHING_RUN).problems
        others = (failure for failure in one.failures or () if failure.uuid and failure.uuid not in planned)
        yield from (f"The move of an earlier run is not settled: {failure.msg}" for failure in others)


def _judge_source(source: str, plan: DrainPlan, tasks: Sequence[DomainsResult], facts: Mapping[str, HostFacts]) -> list[DomainOutcome]:
    records = {record.domain.uuid: record for one in tasks for record in one.migrations or ()}
    reasons = {uuid: why for one in tasks for uuid, why in one.reasons.items()}
    return [judge_move(move, facts, records.get(move.uuid), reasons.get(move.uuid)) for move in plan.moves if move.source == source]
