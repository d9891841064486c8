# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The result of a drain for each host, from the answers of hosts and ledger afterwards (drain_verify); and whether a host is safe to reboot."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COMPLETED

from .preparation import HostQuery, TaskResult, parse_timestamp, read_answers
from .saved_plan import DrainPlan, PlannedMove, PlannedShutdown, UnplacedDomain, read_plan
from .tables import DomainOutcome, HostDrain, HostShare, LeftDomain, result_lines

NOT_STARTED = "Its move was not started."
NOT_ASKED = "It was not asked to shut down."
HELD_BACK = "It was not asked to shut down: other domains of this host cannot be placed, so it cannot be drained."


def build_host_result(
    source: str,
    plan: DrainPlan,
    facts: Mapping[str, HostFacts],
    outcomes: Sequence[MoveRecord],
    records: Sequence[MoveRecord],
    problems: Sequence[str] = (),
    refusals: t.Optional[Mapping[str, str]] = None,
    check_mode: bool = False,
) -> HostDrain:
    """Return what was done on one host that was drained.

    :arg facts: C(kvmfleet_host) by name, of this host and of those that took domains, read after the moves.
    :arg outcomes: the records that C(live_migrate) returned on this host.
    :arg records: unsettled records of the fleet, read after the moves.
    :arg refusals: why a move or a shutdown failed, by the domain's UUID, for moves that may have no record.
    :arg problems: what else failed on this host, e.g. the message of a task.
    :arg check_mode: nothing was moved: a planned move is neither moved nor failed.
    """
    share = _find_share(source, plan)
    by_uuid = {record.domain.uuid: record for record in outcomes}
    whys = refusals or {}
    judged = _judge_moves(share, facts, by_uuid, whys, check_mode)
    stops = _judge_shutdowns(source, share, facts, whys, check_mode)
    failed = [_left_behind(entry, entry.reason) for entry in share.unplaced] + [entry for entry in [*judged, *stops] if entry.error is not ABSENT]
    if not check_mode:
        failed += _list_late(source, share, facts)
    blockers = find_reboot_blockers(source, facts, records)
    return HostDrain(
        plan=share,
        moved=tuple(entry for entry in judged if entry.error is ABSENT),
        shut_down=tuple(entry for entry in stops if entry.error is ABSENT),
        failed=tuple(failed),
        skipped=tuple(LeftDomain(entry.name, entry.uuid, entry.reason) for entry in share.skipped),
        safe_to_reboot=not blockers,
        blockers=tuple(blockers),
        problems=tuple(problems),
        predicted_seconds=share.predicted_seconds,
        predicted_range=share.predicted_range,
        actual_seconds=_span_seconds([by_uuid[entry.uuid] for entry in judged if entry.uuid in by_uuid]),
    )


def _find_share(source: str, plan: DrainPlan) -> HostShare:
    return HostShare(
        moves=tuple(entry for entry in plan.moves if entry.source == source),
        shutdowns=tuple(entry for entry in plan.shutdowns if entry.source == source),
        unplaced=tuple(entry for entry in plan.unplaced if entry.source == source),
        skipped=tuple(entry for entry in plan.skipped if entry.source == source),
        created_at=plan.created_at,
        predicted_seconds=plan.predicted_seconds.get(source, 0),
        predicted_range=(plan.predicted_ranges or {}).get(source, ABSENT),
    )


def find_reboot_blockers(host: str, facts: Mapping[str, HostFacts], records: Iterable[MoveRecord]) -> list[str]:
    """Return why the host may not be rebooted: a domain active there in any state, a definition there that would start a domain which is
    active elsewhere, or an unsettled record that names it."""
    host_facts = facts.get(host)
    if not host_facts:
        return [f"{host} does not answer."]
    blockers = [f"{domain.name} is {_state_text(domain)} here." for domain in host_facts.domains or () if domain.active]
    for domain in host_facts.domains or ():
        elsewhere = [] if domain.active or domain.autostart is False else _active_elsewhere(domain.uuid, host, facts)
        if elsewhere:
            blockers.append(f"{domain.name} would start here automatically, and is active on {', '.join(elsewhere)}.")
    return blockers + [
        f"Record {record.id} of {record.domain.name} is unsettled ({record.status})." for record in records if _names_host(record, host, host_facts)
    ]


def _judge_moves(
    share: HostShare, facts: Mapping[str, HostFacts], records: Mapping[str, MoveRecord], whys: Mapping[str, str], check_mode: bool
) -> list[DomainOutcome]:
    """Return the results of the moves; in check mode only those that were refused.

    :arg records: by the UUID of the domain.
    """
    if check_mode:
        return [_left_behind(move, whys[move.uuid], "refused") for move in share.moves if move.uuid in whys]
    return [_judge_move(move, facts, records.get(move.uuid), whys.get(move.uuid, NOT_STARTED)) for move in share.moves]


def _judge_move(move: PlannedMove, facts: Mapping[str, HostFacts], record: t.Optional[MoveRecord], why: str) -> DomainOutcome:
    """Return the result of a move: moved if its record says so and both hosts agree."""
    destination = (record.destination.host if record else None) or move.destination
    outcome = DomainOutcome(
        name=move.name,
        uuid=move.uuid,
        status=record.status if record else "not started",
        destination=destination,
        predicted_seconds=move.predicted_seconds,
        predicted_range=move.predicted_range,
        actual_seconds=_elapsed_seconds(record),
        downtime_ms=record.result.downtime_ms if record else None,
    )
    problem = _find_disagreement(move, destination, facts, record)
    return replace(outcome, error=f"{problem} {_record_text(record) if record else why}".strip()) if problem else replace(outcome, status=COMPLETED)


def _judge_shutdowns(source: str, share: HostShare, facts: Mapping[str, HostFacts], whys: Mapping[str, str], check_mode: bool) -> list[DomainOutcome]:
    """Return the results of the domains that were to be shut down: off if their host says so. In check mode only those that were refused."""
    held_back = HELD_BACK if share.unplaced else NOT_ASKED
    if check_mode:
        return [_left_behind(entry, whys[entry.uuid], "refused") for entry in share.shutdowns if entry.uuid in whys]
    return [_judge_shutdown(entry, source, facts, whys.get(entry.uuid, held_back)) for entry in share.shutdowns]


def _judge_shutdown(entry: PlannedShutdown, source: str, facts: Mapping[str, HostFacts], why: str) -> DomainOutcome:
    """Return the result of one domain that was to be shut down."""
    if not facts.get(source):
        return _left_behind(entry, f"{source} did not answer, so it is not known whether it is off.", "unknown")
    domain = facts[source].find_domain(entry.uuid)
    elsewhere = _active_elsewhere(entry.uuid, source, facts)
    if domain and domain.active:
        return _left_behind(entry, f"It is still {_state_text(domain)}. {why}", "not shut down")
    if elsewhere:
        return _left_behind(entry, f"It is active on {', '.join(elsewhere)}. {why}", "not shut down")
    return DomainOutcome(entry.name, entry.uuid, "shut down")


def _find_disagreement(move: PlannedMove, destination: str, facts: Mapping[str, HostFacts], record: t.Optional[MoveRecord]) -> t.Optional[str]:
    """Return why the move cannot have been completed, or None."""
    silent = [host for host in (move.source, destination) if not facts.get(host)]
    if silent:
        return f"{' and '.join(silent)} did not answer, so the move is not verified."
    left, there = facts[move.source].find_domain(move.uuid), facts[destination].find_domain(move.uuid)
    if left and left.active:
        return f"It is still {_state_text(left)} on {move.source}."
    if not there or not there.active:
        return f"It is not active on {destination}."
    if record is not None and record.status != COMPLETED:
        return f"It is {_state_text(there)} on {destination}, but its record is not settled."
    return None


def _list_late(source: str, share: HostShare, facts: Mapping[str, HostFacts]) -> list[DomainOutcome]:
    domains = (facts[source].domains or ()) if source in facts else ()
    late = [domain for domain in domains if domain.active and domain.uuid not in share.active_uuids]
    return [_left_behind(domain, "It arrived after the plan was made.") for domain in late]


def _left_behind(domain: PlannedMove | PlannedShutdown | UnplacedDomain | DomainFacts, error: str, status: str = "unplaced") -> DomainOutcome:
    return DomainOutcome(domain.name, domain.uuid, status, destination=None, error=error)


def _record_text(record: MoveRecord) -> str:
    reason = f" ({record.reason})" if record.reason else ""
    detail = next((line.detail for line in reversed(record.history) if line.detail), "")
    return f"Its move ended {record.status}{reason}. {detail}".strip()


def _elapsed_seconds(record: t.Optional[MoveRecord]) -> t.Optional[float]:
    value = record.result.elapsed_ms if record else None
    return None if value is None else round(value / 1000, 1)


def _span_seconds(records: Sequence[MoveRecord]) -> float:
    """Return the seconds from the first record's beginning to the last one's end, by the control node's and the hosts' clocks."""
    if not records:
        return 0.0
    first = min(parse_timestamp(record.created_at) for record in records)
    last = max(parse_timestamp(record.updated_at) for record in records)
    return max(0.0, round((last - first).total_seconds(), 1))


def _state_text(domain: DomainFacts) -> str:
    return f"{domain.state} ({domain.reason})" if domain.reason else str(domain.state or "active")


def _active_elsewhere(uuid: str, host: str, facts: Mapping[str, HostFacts]) -> list[str]:
    return sorted(name for name, other in facts.items() if name != host and (found := other.find_domain(uuid)) and found.active)


def _names_host(record: MoveRecord, host: str, facts: HostFacts) -> bool:
    return record.is_unsettled and any(_is_host(end, host, facts) for end in record.ends)


def _is_host(end: HostRef, host: str, facts: HostFacts) -> bool:
    return end.host == host or end.is_same(facts.host)


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

    @property
    def reasons(self) -> dict[str, str]:
        """Why the task failed, by the UUID of the domain."""
        return {failure.uuid: failure.msg for failure in self.failures or () if failure.uuid}


@dataclass(frozen=True)
class HostTasks:
    """What the tasks of a drain have returned on one host; empty for a task that was not run.

    :arg moved: of C(live_migrate).
    :arg stopped: of C(domain_shutdown).
    """

    moved: DomainsResult
    stopped: DomainsResult

    @property
    def problems(self) -> list[str]:
        """The failures that are not of a single domain."""
        if self.moved.unreachable:
            return [f"It could not be reached: {self.moved.message or 'no answer'}"]
        return [self.moved.message or "The moves could not be run."] if self.moved.failed and not self.moved.failures else []

    def list_refusals(self, shutdowns: Iterable[PlannedShutdown]) -> dict[str, str]:
        """Return why moves and shutdowns failed, by the UUID of the domain.

        :arg shutdowns: of the plan, on this host.
        """
        unstopped = self.stopped.reasons
        if not unstopped and self.stopped.has_failed:
            unstopped = {entry.uuid: self.stopped.message or "Its result is not known." for entry in shutdowns}
        return {**self.moved.reasons, **unstopped}


@dataclass(frozen=True)
class _VerifyWork:
    """The results of the tasks of the role.

    :arg answered: the facts of the hosts that were queried for the plan; C(asked) is the loop that queried them again afterwards.
    :arg moved: C(live_migrate) by host; C(stopped) is C(domain_shutdown).
    """

    answered: Maybe[Mapping[str, t.Optional[JsonObject]]] = ABSENT
    moved: Maybe[Mapping[str, t.Optional[DomainsResult]]] = ABSENT
    stopped: Maybe[Mapping[str, t.Optional[DomainsResult]]] = ABSENT
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
        moved, stopped = work.moved or {}, work.stopped or {}
        tasks = {host: HostTasks(moved.get(host) or DomainsResult(), stopped.get(host) or DomainsResult()) for host in plan.sources}
        answers = {**(work.answered or {}), **read_answers(work.asked or ())}
        for one in tasks.values():
            answers |= one.moved.seen or {}
        return cls(plan, tasks, answers, check_mode or bool(task.only))

    @property
    def hosts(self) -> list[str]:
        """The hosts that have a part in the drain."""
        names = [*self.plan.sources, *self.plan.candidates, *(move.destination for move in self.plan.moves)]
        return list(dict.fromkeys(names))


def judge_hosts(request: VerifyRequest, facts: Mapping[str, HostFacts], records: Sequence[MoveRecord]) -> dict[str, HostDrain]:
    """Return the result of the plan on each of its hosts.

    :arg facts: of the hosts in C(request.hosts) that answered.
    :arg records: unsettled records, read after the moves.
    """
    plan, found = request.plan, {}
    for host, tasks in request.tasks.items():
        refusals = tasks.list_refusals(entry for entry in plan.shutdowns if entry.source == host)
        outcomes = tasks.moved.migrations or ()
        found[host] = build_host_result(host, plan, facts, outcomes, records, tasks.problems, refusals, check_mode=request.nothing_done)
    return found


def describe_problems(result: Mapping[str, HostDrain], nothing_done: bool) -> dict[str, str]:
    """Return why the drain has failed, by host: a domain is left on it, or it is not safe to reboot."""
    failed = {host: own for host, own in result.items() if own.failed or own.problems or not (nothing_done or own.safe_to_reboot)}
    return {host: " ".join(_failure_lines(host, own)) for host, own in failed.items()}


def _failure_lines(host: str, own: HostDrain) -> list[str]:
    problem_line = re.compile(f"FAILED |{re.escape(host)}:")
    return [line for line in result_lines({host: own}) if problem_line.match(line)]
