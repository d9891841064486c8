# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What drain_verify receives: the plan, and the results of the tasks of a drain."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .answers import HostQuery, TaskResult, read_answers
from .plan_entries import PlannedShutdown
from .saved_plan import DrainPlan, read_plan


@dataclass(frozen=True)
class DomainFailure:
    """A domain for which a task failed, and why."""

    uuid: t.Optional[str]
    msg: str
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class DomainsResult(TaskResult):
    """What a task about several domains has returned.

    :arg migrations: of C(live_migrate), the records; those that were only predicted have no ID.
    :arg seen: of C(live_migrate), what a watcher has seen of hosts at its end.
    """

    KEYS: t.ClassVar[Mapping[str, str]] = {"seen": "_seen"}

    failures: Maybe[tuple[DomainFailure, ...]] = ABSENT
    migrations: Maybe[tuple[MoveRecord, ...]] = ABSENT
    seen: Maybe[Mapping[str, t.Optional[JsonObject]]] = ABSENT
    error_code: Maybe[str] = ABSENT

    @property
    def has_failed(self) -> bool:
        """Whether the task failed, also if the role reports that later (C(failed_when)), or did not reach its host."""
        return super().has_failed or bool(self.error_code)

    @property
    def reasons(self) -> dict[str, str]:
        """Why the task failed, by the UUID of the domain."""
        return {failure.uuid: failure.msg for failure in self.failures or () if failure.uuid}


@dataclass(frozen=True)
class HostTasks:
    """What the tasks of a drain have returned on one host; empty for a task that was not run.

    :arg moved: of C(live_migrate).
    :arg stopped: of C(domain_shutdown).
    :arg cold: of C(cold_migrate).
    """

    moved: DomainsResult
    stopped: DomainsResult
    cold: DomainsResult = field(default_factory=DomainsResult)

    @property
    def problems(self) -> list[str]:
        """The failures that are not of a single domain."""
        if self.moved.unreachable or self.cold.unreachable:
            return [f"It could not be reached: {self.moved.message or self.cold.message or 'no answer'}"]
        return [one.message or "The moves could not be run." for one in (self.moved, self.cold) if one.has_failed and not one.failures]

    @property
    def migrations(self) -> list[MoveRecord]:
        """The records of all moves."""
        return [record for one in (self.moved, self.cold) for record in one.migrations or ()]

    def list_refusals(self, shutdowns: Iterable[PlannedShutdown]) -> dict[str, str]:
        """Return why moves and shutdowns failed, by the UUID of the domain.

        :arg shutdowns: of the plan, on this host.
        """
        unstopped = self.stopped.reasons
        if not unstopped and self.stopped.has_failed:
            unstopped = {entry.uuid: self.stopped.message or "Its result is not known." for entry in shutdowns}
        return {**self.moved.reasons, **self.cold.reasons, **unstopped}


@dataclass(frozen=True)
class _VerifyWork:
    """The results of the tasks of the role.

    :arg answered: the facts of the hosts that were queried for the plan; C(asked) is the loop that queried them again afterwards.
    :arg moved: C(live_migrate) by host; C(stopped) is C(domain_shutdown), and C(cold) is C(cold_migrate).
    """

    answered: Maybe[Mapping[str, t.Optional[JsonObject]]] = ABSENT
    moved: Maybe[Mapping[str, t.Optional[DomainsResult]]] = ABSENT
    stopped: Maybe[Mapping[str, t.Optional[DomainsResult]]] = ABSENT
    cold: Maybe[Mapping[str, t.Optional[DomainsResult]]] = ABSENT
    asked: Maybe[tuple[HostQuery, ...]] = ABSENT


@dataclass(frozen=True)
class VerifyTask:
    """The options of C(drain_verify)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    plan: Json
    only: t.Optional[bool]
    publish_as: t.Optional[str]
    ledger: t.Optional[str]
    work: t.Optional[_VerifyWork]


@dataclass(frozen=True)
class VerifyRequest:
    """The input of the verdicts.

    :arg tasks: by host of the plan.
    :arg answers: the facts of hosts that were queried for this drain, the latest answer of each; None of a host that did not answer.
    :arg nothing_done: nothing was carried out, so that planned moves are neither moved nor failed.
    """

    plan: DrainPlan
    tasks: Mapping[str, HostTasks]
    answers: Mapping[str, JsonObject | None]
    nothing_done: bool

    @classmethod
    def from_task(cls, task: VerifyTask, check_mode: bool) -> VerifyRequest:
        """Return the request of a task with these options. Raises L(InvalidArgument) for an incomplete plan."""
        plan, work = read_plan(task.plan), task.work or _VerifyWork()
        results = [results or {} for results in (work.moved, work.stopped, work.cold)]
        tasks = {host: HostTasks(*(by_host.get(host) or DomainsResult() for by_host in results)) for host in plan.sources}
        answers = {**(work.answered or {}), **read_answers(work.asked or ())}
        for one in tasks.values():
            answers |= one.moved.seen or {}
        return cls(plan, tasks, answers, check_mode or bool(task.only))

    @property
    def hosts(self) -> list[str]:
        """The hosts that have a part in the drain."""
        names = [*self.plan.sources, *self.plan.candidates, *(move.destination for move in self.plan.all_moves)]
        return list(dict.fromkeys(names))
