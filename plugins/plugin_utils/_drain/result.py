# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The result of a drain for each host, from the answers of hosts and ledger afterwards (drain_verify); and whether a host is safe to reboot."""

from __future__ import annotations

import datetime
import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import OFFLINE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COMPLETED, CONFLICT, DONE, ERROR

from .plan_entries import PlannedColdMove, PlannedMove, PlannedShutdown, UnplacedDomain
from .saved_plan import DrainPlan
from .tables import DomainOutcome, HostDrain, HostShare, LeftDomain, result_lines
from .verify_request import VerifyRequest

NOT_STARTED = "Its move was not started."
NOT_STOPPED = "It was not stopped: other domains of this host cannot be placed, so it cannot be drained."
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
    :arg records: as for L(find_reboot_blockers).
    :arg refusals: why a move or a shutdown failed, by the domain's UUID, for moves that may have no record.
    :arg problems: what else failed on this host, e.g. the message of a task.
    :arg check_mode: nothing was moved: a planned move is neither moved nor failed.
    """
    share = _find_share(source, plan)
    whys = refusals or {}
    # A task that loses its host returns no records.
    unsettled = [record for record in records if record.is_unsettled and record.source.host == source and record.domain.uuid not in whys]
    by_uuid = {record.domain.uuid: record for record in (*unsettled, *outcomes)}
    judged, left = _part_left(_judge_moves(share, facts, by_uuid, whys, check_mode) + _judge_cold_moves(share, facts, by_uuid, whys, check_mode))
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
        skipped=(*(LeftDomain(entry.name, entry.uuid, entry.reason) for entry in share.skipped), *left),
        safe_to_reboot=not blockers,
        blockers=tuple(blockers),
        problems=tuple(problems),
        predicted_seconds=share.predicted_seconds,
        predicted_range=share.predicted_range,
        actual_seconds=_span_seconds([by_uuid[entry.uuid] for entry in judged if entry.uuid in by_uuid]),
        empty=is_empty(facts.get(source)),
        verified_at=utc_now(),
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
        cold_moves=tuple(entry for entry in plan.cold_moves or () if entry.source == source),
    )


def is_empty(facts: t.Optional[HostFacts]) -> bool:
    """Return whether the host has answered, and has no domain at all."""
    return facts is not None and not facts.domains


def find_reboot_blockers(host: str, facts: Mapping[str, HostFacts], records: Sequence[MoveRecord]) -> list[str]:
    """Return why the host may not be rebooted: a domain that is active there in any state, or has arrived since the host was queried; a definition there that
    would start a domain which is active elsewhere; or an unsettled record that names the host.

    :arg records: of the fleet, read after the facts: the unsettled ones, and those of guests that have arrived anywhere since the plan was made.
    """
    host_facts = facts.get(host)
    if not host_facts:
        return [f"{host} does not answer."]
    blockers = [f"{domain.name} is {_state_text(domain)} here." for domain in host_facts.domains or () if domain.active]
    for domain in host_facts.domains or ():
        elsewhere = [] if domain.active or domain.autostart is False else _active_elsewhere(domain.uuid, host, facts)
        if elsewhere:
            blockers.append(f"{domain.name} would start here automatically, and is active on {', '.join(elsewhere)}.")
    blockers += [f"Record {record.id} of {record.domain.name} is unsettled ({record.status})." for record in records if _names_host(record, host, host_facts)]
    return blockers + [
        f"{record.domain.name} arrived here after the host was queried (record {record.id})." for record in _list_unseen(records, host, host_facts)
    ]


def _list_unseen(records: Sequence[MoveRecord], host: str, facts: HostFacts) -> list[MoveRecord]:
    """Return the newest record of each domain that has come to this host, if its facts do not have the domain yet."""
    arrived = sorted((record for record in records if record.status in (COMPLETED, DONE)), key=lambda record: record.generation)
    newest = {record.domain.uuid: record for record in arrived}
    seen = {domain.uuid for domain in facts.domains or ()}
    return [record for uuid, record in newest.items() if uuid not in seen and _is_host(record.destination, host, facts)]


def _judge_moves(
    share: HostShare, facts: Mapping[str, HostFacts], records: Mapping[str, MoveRecord], whys: Mapping[str, str], check_mode: bool
) -> list[DomainOutcome]:
    """Return the results of the moves; in check mode only those that were refused.

    :arg records: by the UUID of the domain.
    """
    if check_mode:
        return [_left_behind(move, whys[move.uuid], "refused") for move in share.moves if move.uuid in whys]
    return [judge_move(move, facts, records.get(move.uuid), whys.get(move.uuid)) for move in share.moves]


def judge_move(move: PlannedMove, facts: Mapping[str, HostFacts], record: t.Optional[MoveRecord], why: t.Optional[str]) -> DomainOutcome:
    """Return the result of a move: moved if its record says so and both hosts agree.

    :arg why: what the task says about a move that failed, with the next step.
    """
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
    reason = why or (_record_text(record) if record else NOT_STARTED)
    return replace(outcome, error=f"{problem} {reason}".strip()) if problem else replace(outcome, status=COMPLETED)


# The statuses of a move of which nothing was done.
_NOTHING_DONE = ("not started", "refused", CONFLICT)


def _part_left(judged: Iterable[DomainOutcome]) -> tuple[list[DomainOutcome], list[LeftDomain]]:
    """Return the outcomes, and apart from them the domains that are off and whose move was refused: they stay, and do not make the drain fail."""
    outcomes, left = [], []
    for outcome in judged:
        if outcome.method == OFFLINE and outcome.error and outcome.status in _NOTHING_DONE:
            left.append(LeftDomain(outcome.name, outcome.uuid, outcome.error))
        else:
            outcomes.append(outcome)
    return outcomes, left


def _judge_cold_moves(
    share: HostShare, facts: Mapping[str, HostFacts], records: Mapping[str, MoveRecord], whys: Mapping[str, str], check_mode: bool
) -> list[DomainOutcome]:
    """Return the results of the moves that are not live; in check mode only those that were refused."""
    moves = share.cold_moves or ()
    if check_mode:
        return [replace(_left_behind(move, whys[move.uuid], "refused"), method=move.method) for move in moves if move.uuid in whys]
    held_back = NOT_STOPPED if share.unplaced else NOT_STARTED
    return [_judge_cold_move(move, facts, records.get(move.uuid), whys.get(move.uuid, held_back if move.stops_guest else NOT_STARTED)) for move in moves]


def _judge_cold_move(move: PlannedColdMove, facts: Mapping[str, HostFacts], record: t.Optional[MoveRecord], why: str) -> DomainOutcome:
    """Return the result of such a move: done if the domain is on its destination and on no other host."""
    outcome = DomainOutcome(
        name=move.name,
        uuid=move.uuid,
        status=record.status if record else "not started",
        destination=move.destination,
        actual_seconds=_elapsed_seconds(record),
        downtime_ms=record.result.downtime_ms if record else None,
        method=move.method,
    )
    problem = _find_cold_disagreement(move, facts, record)
    return replace(outcome, error=f"{problem} {_record_text(record) if record else why}".strip()) if problem else replace(outcome, status=COMPLETED)


def _find_cold_disagreement(move: PlannedColdMove, facts: Mapping[str, HostFacts], record: t.Optional[MoveRecord]) -> t.Optional[str]:
    """Return why the move cannot have been completed, or None."""
    silent = [host for host in (move.source, move.destination) if not facts.get(host)]
    if silent:
        return f"{' and '.join(silent)} did not answer, so the move is not verified."
    there = facts[move.destination].find_domain(move.uuid)
    others = [f"{_state_text(found)} on {host}" for host, one in sorted(facts.items()) if host != move.destination and (found := one.find_domain(move.uuid))]
    if others:
        return f"It is {' and '.join(others)}{f', and {_state_text(there)} on {move.destination}' if there else ''}."
    if not there:
        return f"It is not defined on {move.destination}."
    if move.start and not there.active:
        return f"It is {_state_text(there)} on {move.destination}."
    if record is not None and record.status != COMPLETED:
        return f"It is {_state_text(there)} on {move.destination}, but its record is not settled."
    return None


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


def _left_behind(domain: PlannedMove | PlannedColdMove | PlannedShutdown | UnplacedDomain | DomainFacts, error: str, status: str = "unplaced") -> DomainOutcome:
    return DomainOutcome(domain.name, domain.uuid, status, destination=None, error=error)


def _record_text(record: MoveRecord) -> str:
    if record.is_unsettled and record.status != ERROR:
        return f"Its move has not ended: the ledger has it as {record.status} ({record.id})."
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
    first = min(datetime.datetime.fromisoformat(record.created_at) for record in records)
    last = max(datetime.datetime.fromisoformat(record.updated_at) for record in records)
    return max(0.0, round((last - first).total_seconds(), 1))


def _state_text(domain: DomainFacts) -> str:
    return f"{domain.state} ({domain.reason})" if domain.reason else str(domain.state or "active")


def _active_elsewhere(uuid: str, host: str, facts: Mapping[str, HostFacts]) -> list[str]:
    return sorted(name for name, other in facts.items() if name != host and (found := other.find_domain(uuid)) and found.active)


def _names_host(record: MoveRecord, host: str, facts: HostFacts) -> bool:
    return record.is_unsettled and any(_is_host(end, host, facts) for end in record.ends)


def _is_host(end: HostRef, host: str, facts: HostFacts) -> bool:
    return end.host == host or end.is_same(facts.host)


def judge_hosts(request: VerifyRequest, facts: Mapping[str, HostFacts], records: Sequence[MoveRecord]) -> dict[str, HostDrain]:
    """Return the result of the plan on each of its hosts.

    :arg facts: of the hosts in C(request.hosts) that answered.
    :arg records: as for L(find_reboot_blockers).
    """
    plan, found = request.plan, {}
    for host, tasks in request.tasks.items():
        refusals = tasks.list_refusals(entry for entry in plan.shutdowns if entry.source == host)
        found[host] = build_host_result(host, plan, facts, tasks.migrations, records, tasks.problems, refusals, check_mode=request.nothing_done)
    return found


def describe_problems(result: Mapping[str, HostDrain], nothing_done: bool) -> dict[str, str]:
    """Return why the drain has failed, by host: a domain is left on it, or it is not safe to reboot. If nothing was done, the plan has failed."""
    if nothing_done:
        return {host: _describe_plan_problem(host, own) for host, own in result.items() if own.failed or own.problems}
    failed = {host: own for host, own in result.items() if own.failed or own.problems or not own.safe_to_reboot}
    return {host: " ".join(_matching_lines(f"FAILED |{re.escape(host)}:", host, own)) for host, own in failed.items()}


def _describe_plan_problem(host: str, own: HostDrain) -> str:
    return " ".join([f"{host} cannot be drained. Only the plan was made: it changed nothing on any host.", *_matching_lines("FAILED ", host, own)])


def _matching_lines(pattern: str, host: str, own: HostDrain) -> list[str]:
    return [line for line in result_lines({host: own}) if re.match(pattern, line)]
