# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The result of each domain that may have been on a dead host (evacuate_verify), and the lines of plan and result for a terminal."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef

from .._drain.answers import TaskResult
from .job import ListedDomain


@dataclass(frozen=True)
class HostLabel:
    """A host in a result."""

    host: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class UncoveredDomain:
    """A domain that no survivor can start.

    :arg reasons: by host; C(reason) is all of them.
    :arg record: the ID of the record of the refusal.
    """

    uuid: str
    name: t.Optional[str]
    reasons: Mapping[str, str]
    reason: str
    record: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class EvacuationPlan:
    """What C(evacuate_plan) returns. An assessment has no shares yet, and no evidence.

    :arg domains: that are to be started; C(refused) are not.
    :arg since: when the evidence was taken.
    :arg missing_records: what hosts remember of moves and the ledger lacks.
    :arg ages: in seconds, of what was saved of the domains, by name.
    :arg shares: the UUIDs that each survivor starts; C(uncovered) are domains that no survivor can start.
    :arg excluded: hosts that answered and start no domain, with the reason.
    """

    source: HostLabel
    not_selected: tuple[ListedDomain, ...]
    lost_until_return: tuple[ListedDomain, ...]
    unaccounted: tuple[ListedDomain, ...]
    domains: tuple[ListedDomain, ...]
    refused: Maybe[tuple[ListedDomain, ...]] = ABSENT
    uncovered: Maybe[tuple[UncoveredDomain, ...]] = ABSENT
    shares: Maybe[Mapping[str, tuple[str, ...]]] = ABSENT
    excluded: Maybe[Mapping[str, str]] = ABSENT
    evidence: Maybe[tuple[JsonObject, ...]] = ABSENT
    since: Maybe[JsonObject] = ABSENT
    missing_records: Maybe[tuple[JsonObject, ...]] = ABSENT
    ages: Maybe[Mapping[str, t.Optional[int]]] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    def domain_names(self) -> dict[str, str]:
        """Return the names of the domains that are to be started, by UUID."""
        return {one.uuid: str(one.name) for one in self.domains}


@dataclass(frozen=True)
class EvacuatedDomain:
    """A domain that was started, with its host, its state, and the ID of its record."""

    uuid: str
    name: t.Optional[str]
    host: t.Optional[str]
    state: t.Optional[str]
    record: t.Optional[str]


@dataclass(frozen=True)
class FailedDomain:
    """A domain that was not started, and why; C(reasons) by survivor, if none can start it."""

    uuid: str
    name: t.Optional[str]
    reason: str
    reasons: t.Union[Mapping[str, str], Absent] = ABSENT


@dataclass(frozen=True)
class EvacuationResult:
    """The results of the domains that may have been on a dead host.

    :arg unaccounted: domains that should be on hosts that answer, and are on none.
    """

    evacuated: tuple[EvacuatedDomain, ...]
    failed: tuple[FailedDomain, ...]
    not_selected: tuple[ListedDomain, ...]
    lost_until_return: tuple[ListedDomain, ...]
    unaccounted: tuple[ListedDomain, ...]
    evidence: tuple[JsonObject, ...]


@dataclass(frozen=True)
class _EvacuationRecord:
    """The part of a record that is judged."""

    id: t.Optional[str]
    status: str
    domain: DomainRef
    destination: HostLabel
    wanted_state: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _Failure:
    uuid: str
    domain: t.Optional[str]
    msg: str
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _StartTask(TaskResult):
    """What C(evacuate) has returned on one survivor."""

    evacuations: Maybe[tuple[_EvacuationRecord, ...]] = ABSENT
    failures: Maybe[tuple[_Failure, ...]] = ABSENT


@dataclass(frozen=True)
class _VerifyWork:
    """What C(evacuate) has returned, by survivor."""

    started: Maybe[Mapping[str, t.Optional[_StartTask]]] = ABSENT


@dataclass(frozen=True)
class VerifyTask:
    """The options of C(evacuate_verify)."""

    KEYS: t.ClassVar[Mapping[str, str]] = {"work": "_work"}

    plan: EvacuationPlan
    publish_as: t.Optional[str]
    work: t.Optional[_VerifyWork]
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class VerifyRequest:
    """The input of the verdicts.

    :arg host: the name of the dead host in the ledger.
    :arg started: what C(evacuate) has returned on each survivor; empty if it was not run.
    """

    host: str
    plan: EvacuationPlan
    started: tuple[_StartTask, ...]
    check_mode: bool

    @classmethod
    def from_task(cls, task: VerifyTask, check_mode: bool) -> VerifyRequest:
        """Return the request of a task with these options. Raises L(InvalidArgument) for a plan without a source."""
        if not task.plan.source.host:
            raise InvalidArgument("The plan has no source.", "Give the result of evacuate_plan.")
        results = (task.work.started if task.work else None) or {}
        return cls(task.plan.source.host, task.plan, tuple(result or _StartTask() for result in results.values()), check_mode)

    @property
    def problems(self) -> str:
        """The failures that survivors reported."""
        return " ".join(result.message for result in self.started if result.message)


def judge_domains(request: VerifyRequest) -> EvacuationResult:
    """Return the results of the domains."""
    plan, evacuated = request.plan, _list_evacuated(request)
    refused = [FailedDomain(one.uuid, one.name, one.reason or "") for one in plan.refused or ()]
    uncovered = [FailedDomain(one.uuid, one.name, one.reason, one.reasons) for one in plan.uncovered or ()]
    failed = [*refused, *uncovered, *_list_failures(request)]
    judged = {entry.uuid for entry in evacuated} | {entry.uuid for entry in failed}
    return EvacuationResult(
        evacuated=tuple(evacuated),
        failed=(*failed, *_list_missed(request, judged)),
        not_selected=plan.not_selected,
        lost_until_return=plan.lost_until_return,
        unaccounted=plan.unaccounted,
        evidence=plan.evidence or (),
    )


def _list_evacuated(request: VerifyRequest) -> list[EvacuatedDomain]:
    """Return the domains that were started according to their records, or would be in check mode."""
    wanted = (s.ACCEPTED,) if request.check_mode else (s.DONE, s.COMPLETED)
    records = [record for result in request.started for record in result.evacuations or () if record.status in wanted]
    return [EvacuatedDomain(one.domain.uuid, one.domain.name, one.destination.host or None, one.wanted_state or None, one.id) for one in records]


def _list_failures(request: VerifyRequest) -> list[FailedDomain]:
    return [FailedDomain(failure.uuid, failure.domain, failure.msg) for result in request.started for failure in result.failures or ()]


def _list_missed(request: VerifyRequest, judged: Collection[str]) -> list[FailedDomain]:
    """Return the domains of survivors that failed as a whole."""
    names = request.plan.domain_names()
    missed = dict.fromkeys(uuid for uuids in (request.plan.shares or {}).values() for uuid in uuids if uuid not in judged)
    return [FailedDomain(uuid, names[uuid], request.problems) for uuid in missed]


def plan_lines(plan: EvacuationPlan) -> list[str]:
    """Return the shares of the survivors, the hosts that have none, and the domains that cannot be started before the dead host returns."""
    names = plan.domain_names()
    lines = [f"{host}: {', '.join(names[uuid] for uuid in uuids)}" for host, uuids in (plan.shares or {}).items() if uuids]
    lines += [f"{host} starts no domain: {why}" for host, why in (plan.excluded or {}).items()]
    lines += [f"{one.name} is lost until {plan.source.host} returns: {'; '.join(one.reasons or ())}" for one in plan.lost_until_return]
    return [printable_line(line) for line in lines]


def result_lines(result: Mapping[str, EvacuationResult], check_mode: bool) -> list[str]:
    """Return the domains that were started, with their hosts, and those that were not."""
    done = "WOULD BE EVACUATED" if check_mode else "EVACUATED"
    lines: list[str] = []
    for own in result.values():
        lines += [f"{done} {one.name} -> {one.host}" for one in own.evacuated]
        lines += [f"FAILED {one.name}: {one.reason}" for one in own.failed]
        lines += [f"LOST UNTIL IT RETURNS {one.name}" for one in own.lost_until_return]
        lines += [f"NOT SELECTED {one.name}{f' (missing from its host since {one.missing_since})' if one.missing_since else ''}" for one in own.not_selected]
        lines += [f"UNACCOUNTED FOR {one.name} ({one.uuid}): it should be on {_join_hosts(one)}, and no host that answers has it" for one in own.unaccounted]
    return [printable_line(line) for line in lines]


def _join_hosts(domain: ListedDomain) -> str:
    return " or ".join(str(host) for host in domain.hosts or ()) or "a host that is not known"


def describe_problem(result: Mapping[str, EvacuationResult]) -> str:
    """Return why the evacuation has failed: which domains were not started, and why. Empty if all were started."""
    sentences = []
    for host, own in result.items():
        names = dict.fromkeys([*(str(one.name) for one in own.failed), *(str(one.name) for one in own.lost_until_return)])
        if names:
            why = " ".join(one.reason for one in own.failed)
            sentences.append(f"Of the domains that may have been on {host} these were not started: {', '.join(names)}. {why}".strip())
    return printable_line(" ".join(sentences))
