# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Decides about one request after both hosts and the ledger have answered. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import outcome
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    Internal,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotFound,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey, SurveyedDomain, Watcher, read_state, read_watcher
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_decisions import settling_step
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import host_ref_from_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest

from .destination_problems import find_destination_problem


def group_reasons(reasons: Mapping[str, str]) -> str:
    """Return all reasons with their hosts; hosts with the same reason share it. E.g. C(kvm2, kvm3: It is in maintenance.)."""
    hosts: dict[str, list[str]] = {}
    for host, reason in reasons.items():
        hosts.setdefault(reason, []).append(host)
    return " ".join(f"{', '.join(sorted(names))}: {reason}" for reason, names in hosts.items())


@dataclass
class AlreadyThere:
    """The domain runs at a wanted destination under the same UUID."""

    uuid: str
    host: str


@dataclass
class Observe:
    """The record's move is watched: follow it."""

    stored: Stored
    destination: str
    watcher: Watcher | None


@dataclass
class Conclude:
    """The record's move has ended, and its state file has the result; only the ledger does not have it yet."""

    stored: Stored
    record: MoveRecord


@dataclass
class Adopt:
    """The record's move has no watcher: start one, which follows the job or finds out how it ended.

    :arg aborted_by: the person who aborts the move.
    """

    stored: Stored
    aborted_by: str | None = None


@dataclass
class AdoptForeign:
    """A foreign job moves the domain: the ledger has no record of it."""

    host: str


@dataclass
class Start:
    """Move the domain to one of these candidates; C(refused) has the reason for each that was excluded before the scheduler judged."""

    candidates: list[str]
    refused: dict[str, str] = field(default_factory=dict)


@dataclass
class Refuse:
    """No wanted destination can receive the domain, before the scheduler has judged one: C(host) is the first of them, and C(error) has all reasons.

    The refusal leaves a record, unlike invalid input, which is raised.
    """

    host: str
    error: KvmfleetError


@dataclass(frozen=True)
class Watch:
    """The report of the source host about a domain's last move.

    :arg record: as the state file has it; None if that holds none.
    :arg is_alive: whether the watcher lives.
    """

    record: MoveRecord | None
    watcher: Watcher | None
    is_alive: bool

    @property
    def is_moving(self) -> bool:
        """Whether the move continues. A watcher with several moves continues when one of them has ended."""
        return self.is_alive and not (self.record and self.record.status in s.FINAL)

    @property
    def record_id(self) -> str | None:
        """The ID of the record; None if that cannot be read."""
        return self.record.id if self.record else None


def read_watch(domain: SurveyedDomain) -> Watch | None:
    """Return the watch of a surveyed domain.

    :arg domain: the survey's part about it.
    """
    found = domain.watch
    return Watch(_read_record(found.record), read_watcher(found.record.get("watcher")), found.alive) if found else None


def _read_record(state: JsonObject) -> MoveRecord | None:
    try:
        return read_state(state).record
    except Internal:
        return None


Decision = AlreadyThere | Observe | Conclude | Adopt | AdoptForeign | Start | Refuse


def decide_move(request: MoveRequest, source: str, survey: Survey, domain: SurveyedDomain, stored: Stored | None, by: str) -> Decision:
    """Return the decision. Raises the error with which the task fails, before anything has moved, unless it is the refusal of a destination.

    :arg source: inventory name of the source host.
    :arg survey: what C(prepare) found on both sides.
    :arg domain: the part of it about this domain.
    :arg stored: the unsettled record that holds the domain.
    :arg by: who acts, for the history of a record that is concluded.
    """
    if stored is not None:
        return decide_held(request, source, survey, domain, stored, by)
    info = domain.at_source
    if info is None:
        return _decide_absent(request, source, domain)
    watch = read_watch(domain)
    if watch and watch.is_moving:
        raise Conflict(
            f"Domain {request.label} is being moved on {source} for record {watch.record_id}, which this ledger does not have.",
            "Another ledger owns that move. Use the one it was started with. If it is lost, wait for the end of the move, or abort it (migration_abort).",
        )
    if info.view.job == domain_states.JOB_OUTGOING:
        return _decide_foreign(request, source, domain)
    arrived = None if info.view.active else _find_active_host(request, domain)
    if arrived is not None:
        return AlreadyThere(info.uuid, arrived)
    _check_movable(request, source, domain, info.view)
    return _decide_start(request, source, survey, domain)


def decide_held(request: MoveRequest, source: str, survey: Survey, domain: SurveyedDomain, stored: Stored, by: str) -> Observe | Conclude | Adopt:
    """Return the decision about a domain that an unsettled record holds; it never starts a move. Raises and takes the same as L(decide_move)."""
    record, watch = stored.record, read_watch(domain)
    if record.type != s.LIVE_MIGRATION or not _is_source(record, source, survey, domain, watch):
        raise Conflict(
            f"Domain {request.label} is held by {record.type} record {record.id} ({record.status}) from {record.source.host} to {record.destination.label}.",
            f"Settle that record first. {settling_step(record)}",
        )
    if record.is_foreign:
        return _conclude_foreign(request, source, survey, domain, stored, by)
    # The move of this earlier record has ended: its watcher lives because it watches other domains.
    alive = watch if watch is not None and (watch.is_moving or (watch.is_alive and watch.record_id == record.id)) else None
    if alive and alive.record_id != record.id:
        raise Conflict(f"Domain {request.label} is being moved on {source} for record {alive.record_id}, but the ledger has {record.id}.")
    in_flight = alive or (domain.at_source and domain.at_source.view.job == domain_states.JOB_OUTGOING)
    wanted = request.destination
    if in_flight and wanted not in (None, record.destination.host):
        raise Conflict(
            f"Domain {request.label} is on its way from {source} to {record.destination.host} (record {record.id}), not to {wanted}.",
            "Wait for that move, or abort it first.",
        )
    if alive:
        return Observe(stored, str(record.destination.host), alive.watcher)
    known = newest_record(record, watch)
    return Conclude(stored, known) if known.status in s.CLOSED else Adopt(stored)


_FOREIGN_ENDS = {outcome.COMPLETED: s.COMPLETED, outcome.NOT_MOVED: s.FAILED, outcome.ERROR: s.ERROR}


def _conclude_foreign(request: MoveRequest, source: str, survey: Survey, domain: SurveyedDomain, stored: Stored, by: str) -> Conclude:
    """Conclude the record of a job of another tool, in which a person has intervened, from what its source and the queried hosts have of the domain now."""
    record, info = stored.record, domain.at_source
    view = info.view if info else domain_states.NOT_THERE
    arrived = [host for host, uri in request.uris.items() if domain.runs_at(uri)]
    verdict = outcome.judge_foreign_job(view, bool(arrived), any(map(domain.is_active_at, request.uris.values())))
    if verdict.act == outcome.WAIT:
        raise Conflict(
            f"Domain {request.label} is being moved away from {source} by another tool, and record {record.id} holds it: {record.last_writer} has intervened.",
            "Wait for the end of that move, or abort it with migration_abort. Nothing was changed.",
        )
    if verdict.act == outcome.COMPLETED and len(arrived) == 1:
        record = replace(record, destination=replace(survey.destinations[request.uris[arrived[0]]].host, host=arrived[0]))
    there = f"active on {', '.join(arrived)}" if arrived else "not active on any other host that answered"
    detail, reason = f"The guest is {view.describe()} on the source, and {there}.", verdict.reason
    status = _FOREIGN_ENDS[verdict.act]
    if status == s.FAILED and record.is_aborting:
        status, reason = s.CANCELLED, s.REASON_OPERATOR
    return Conclude(stored, record.advance(status, by, detail, reason))


def _is_source(record: MoveRecord, source: str, survey: Survey, domain: SurveyedDomain, watch: Watch | None) -> bool:
    """Whether this host is the one that the record moves the domain away from.

    A record without a host ID can name the host by an earlier libvirt UUID: then the domain, or the state file of that record, has to be on this host.
    """
    source_ref, end = host_ref_from_facts(None, source, encode(survey.source.host)), record.source
    if end.is_same(source_ref) or not (end.host_id or end.host_uuid):
        return True
    is_here = domain.found or (watch is not None and watch.record_id == record.id)
    return bool(is_here) and end.may_be(source_ref)


def newest_record(record: MoveRecord, watch: Watch | None) -> MoveRecord:
    """Return the record as its state file has it, if that is the same record and not an older generation; else the given one."""
    if watch is None or watch.record is None or watch.record.id != record.id or watch.record.generation < record.generation:
        return record
    return watch.record


def _decide_absent(request: MoveRequest, source: str, domain: SurveyedDomain) -> Decision:
    host = _find_active_host(request, domain)
    if host is not None:
        return AlreadyThere(domain.there[request.uris[host]].uuid, host)
    raise NotFound(
        f"There is no domain {request.label!r} on {source}, and none that is known by that name runs at {_describe_destination(request)}.",
        "Check the name and the host (virsh list --all). Nothing was moved.",
    )


def _decide_foreign(request: MoveRequest, source: str, domain: SurveyedDomain) -> Decision:
    receiving = [host for host, uri in request.uris.items() if domain.is_active_at(uri)]
    if not receiving:
        raise Conflict(
            f"Domain {request.label} is being moved away from {source} by another tool, and not to {_describe_destination(request)}.",
            "Wait for that move, or abort it first.",
        )
    return AdoptForeign(receiving[0])


def find_job(domain: SurveyedDomain) -> str:
    """Return the job that occupies the domain on its source, e.g. C(a backup); empty for none."""
    job = domain.source_info.view.job
    return domain.busy_with or (job if job != domain_states.JOB_NONE else "")


def _check_movable(request: MoveRequest, source: str, domain: SurveyedDomain, view: domain_states.DomainView) -> None:
    seen = view.describe()
    job = find_job(domain)
    if job and not (request.busy_wait_seconds and view.job in (domain_states.JOB_NONE, domain_states.JOB_OTHER)):
        raise InvalidState(
            f"Domain {request.label} on {source} is {seen} and has a job in progress ({job}).",
            "Wait for its end, or let the move wait for it (busy_wait_seconds). Nothing was moved.",
        )
    if not view.active:
        raise InvalidState(
            f"Domain {request.label} on {source} is {seen}: only a running domain can be moved live.",
            "If it runs on no other host, start it, or move it as it is (cold_migrate with the method offline). Nothing was moved.",
        )
    if view.state not in (domain_states.RUNNING, domain_states.PAUSED):
        raise InvalidState(f"Domain {request.label} on {source} is {seen}: it cannot be moved live.", "Nothing was moved.")
    twin = _find_active_host(request, domain)
    if twin:
        raise InvalidState(
            f"Domain {request.label} is active on {source} and under the same UUID on {twin}.",
            "Find out immediately which copy is correct; nothing was touched.",
        )


def _decide_start(request: MoveRequest, source: str, survey: Survey, domain: SurveyedDomain) -> Start | Refuse:
    """Exclude the candidates that cannot receive the domain whatever the scheduler decides. Raises L(InvalidArgument) if all are the source itself."""
    problems = {host: find_destination_problem(request, source, survey, domain, host) for host in request.uris}
    return exclude_hosts(request, Start(list(request.uris)), {host: problem for host, problem in problems.items() if problem is not None})


def exclude_hosts(request: MoveRequest, start: Start, problems: Mapping[str, KvmfleetError]) -> Start | Refuse:
    """Return the start without the candidates that have a problem; if none is left, the refusal, with the error of a single candidate or one that names all.

    Raises L(InvalidArgument) if that is the problem of every candidate.
    """
    candidates = [host for host in start.candidates if host not in problems]
    refused = {**start.refused, **{host: problem.message for host, problem in problems.items()}}
    if candidates:
        return Start(candidates, refused)
    error = _sum_up_problems(request, start, problems)
    if isinstance(error, InvalidArgument):
        raise error
    return Refuse(next(host for host in start.candidates if not isinstance(problems[host], InvalidArgument)), error)


def _sum_up_problems(request: MoveRequest, start: Start, problems: Mapping[str, KvmfleetError]) -> KvmfleetError:
    first, *others = problems.values()
    reasons = {**start.refused, **{host: problem.message for host, problem in problems.items()}}
    if all(reason == first.message for reason in reasons.values()):
        return first
    error = type(first) if not start.refused and all(isinstance(other, type(first)) for other in others) else Conflict
    return error(f"No host of the group kvmfleet_hosts can receive domain {request.label}. {group_reasons(reasons)}", "Nothing was moved.")


def _find_active_host(request: MoveRequest, domain: SurveyedDomain) -> str | None:
    return next((host for host, uri in request.uris.items() if domain.is_active_at(uri)), None)


def _describe_destination(request: MoveRequest) -> str:
    return request.destination or "any host of the group kvmfleet_hosts"
