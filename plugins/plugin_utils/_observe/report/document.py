# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A report as one document, from which every format is written: the records that it is about, and a verdict on each host."""

from __future__ import annotations

import datetime
import itertools
import typing as t
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import format_time, parse_timestamp
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import STOPPED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import FENCING_IMPOSSIBLE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from ..._ledger.documents import DomainEntry, HostEntry
from ..._ledger.ledger import Ledger
from ..._ledger.query import Conditions, check_conditions, find_archived, matches_host, read_records
from ..._ledger.unreadable_hosts import STATE_UNKNOWN, LedgerHosts, UnreadableHost
from ..checked_fleet import CheckedFleet, attention_line, read_check
from ..damaged import damaged_lines
from ..unstarted import UnstartedDomain, list_unstarted, unstarted_lines, was_off
from .balances import ReportedBalance, describe_balance, select_balances
from .moves import (
    COMPLETED,
    EVACUATED,
    NOT_MOVED,
    OUTCOMES,
    UNCERTAIN,
    UNDER_WAY,
    Downtimes,
    ReportedMove,
    count_outcomes,
    describe_move,
    end_time,
    summarize_downtimes,
)
from .runs import ReportedRun, describe_run, select_runs

_TERMS = ("migrations", "evacuations")


@dataclass(frozen=True)
class Scope:
    """The records of a report: those of C(ids), else those that meet all other conditions; without conditions, all."""

    since: t.Optional[str] = None
    until: t.Optional[str] = None
    host: t.Optional[str] = None
    domain: t.Optional[str] = None
    ids: t.Optional[Sequence[str]] = None

    def check(self) -> None:
        """Raise L(InvalidArgument) for an invalid time, and for ids together with a condition."""
        others = [name for name in ("since", "until", "host", "domain") if getattr(self, name) is not None]
        if self.ids is not None and others:
            raise InvalidArgument(f"ids is given together with {' and '.join(others)}.", "Give either. No report was written.")
        check_conditions(_TERMS, self.wanted)

    @property
    def wanted(self) -> Conditions:
        """The conditions in the form for readers of the ledger."""
        return Conditions(since=self.since, until=self.until, host=self.host, domain=self.domain)

    @property
    def is_about_domains(self) -> bool:
        """Whether the report is about single domains or records, and not about hosts with all that was there."""
        return self.domain is not None or self.ids is not None


@dataclass(frozen=True)
class ReportData:
    """The data from the ledger: records in the order in which they were opened; hosts and domains without definitions.

    :arg hosts: with a stand-in for each of C(unreadable), those whose document cannot be read.
    :arg has_unnamed: whether the ledger has such a document of which no name is known: any host without an entry may be that host.
    :arg problems: a line on each document that was set aside and not replaced since, only in a report about the whole fleet; or that there is no ledger.
    :arg arrivals: the last move of each domain that was moved or evacuated since the plan of the first drain, whatever the report is about.
    :arg unstarted: the domains of the report that run on no host since the evacuation of theirs.
    :arg run_findings: a line on each of its maintenance runs that need a person.
    :arg is_archive: whether the data are of an archive, which has nothing but records of live migrations.
    :arg archived: a sentence if records of the report may be in archives of the ledger.
    """

    records: Sequence[MoveRecord] = ()
    unsettled: Sequence[MoveRecord] = ()
    arrivals: Sequence[MoveRecord] = ()
    unstarted: Sequence[UnstartedDomain] = ()
    hosts: Sequence[HostEntry] = ()
    unreadable: Sequence[UnreadableHost] = ()
    has_unnamed: bool = False
    problems: Sequence[str] = ()
    domains: Sequence[DomainEntry] = ()
    drains: Mapping[str, JsonObject] = field(default_factory=dict)
    check: t.Optional[CheckedFleet] = None
    runs: Sequence[MaintenanceRun] = ()
    run_findings: Sequence[str] = ()
    balances: Sequence[BalanceRun] = ()
    is_archive: bool = False
    archived: t.Optional[str] = None


def gather_records(ledger: t.Optional[Ledger], scope: Scope, drains: t.Optional[JsonObject] = None) -> ReportData:
    """Return the data of the report; empty if the ledger does not exist yet. Raises L(NotFound) for an ID that is not in the ledger."""
    drain_results = {str(host): _read_drain(str(host), result) for host, result in (drains or {}).items()}
    if ledger is None:
        return ReportData(drains=drain_results)
    found, records = ledger.read_hosts(), _read_records(ledger, scope)
    # The domains are read after the unsettled records: the domain of a record that is closed meanwhile is excluded, or is where the record left it.
    unsettled = list(ledger.list_records(unsettled_only=True))
    found_domains = ledger.read_domains()
    domains = [document.domain for document in found_domains.documents]
    stand_ins = _name_stand_ins(found, [*records, *unsettled], domains)
    unreadable = [(one, entry) for one, entry in stand_ins if matches_host(entry, scope.host)]
    hosts = [*(entry for entry in found.entries if matches_host(entry, scope.host)), *(entry for _one, entry in unreadable)]
    if scope.host is not None:
        drain_results = {host: drain_results[host] for host in (scope.host, *(entry.name for entry in hosts)) if host in drain_results}
    data = ReportData(
        records=sorted(records, key=lambda record: (record.created_at, record.record_id)),
        unsettled=unsettled,
        arrivals=_read_arrivals(ledger, drain_results),
        unstarted=list_unstarted(ledger, hosts, _select_domains(domains, scope, records), {record.domain.uuid for record in unsettled}),
        hosts=hosts,
        unreadable=[one for one, _entry in unreadable],
        has_unnamed=any(entry.name == one.host_key for one, entry in stand_ins),
        domains=domains,
        drains=drain_results,
        is_archive=ledger.identity.archive_of is not None,
        archived=find_archived(ledger, _TERMS, scope.wanted) if scope.ids is None else None,
    )
    return data if scope.is_about_domains else _add_fleet(data, ledger, scope, found_domains.damaged)


def _read_records(ledger: Ledger, scope: Scope) -> list[MoveRecord]:
    if scope.ids is None:
        return [record for term in _TERMS for record in read_records(ledger, term, scope.wanted)]
    return [ledger.read_record(record_id).record for record_id in dict.fromkeys(scope.ids)]


def _select_domains(domains: Iterable[DomainEntry], scope: Scope, records: Iterable[MoveRecord]) -> list[DomainEntry]:
    reported = {record.domain.uuid for record in records}
    return [one for one in domains if not scope.is_about_domains or scope.domain in (one.uuid, one.name) or one.uuid in reported]


def _add_fleet(data: ReportData, ledger: Ledger, scope: Scope, damaged: Iterable[str]) -> ReportData:
    """Add what is not about single domains.

    :arg damaged: UUIDs of the domains whose document was damaged.
    """
    runs = select_runs(ledger, scope.since, scope.until, scope.host)
    data = replace(data, runs=runs, balances=select_balances(ledger, scope.since, scope.until, scope.host))
    if scope.host is not None or data.is_archive:
        return data
    return replace(data, check=read_check(ledger.ledger_id), problems=tuple(damaged_lines(ledger, damaged)))


def _name_stand_ins(hosts: LedgerHosts, records: Sequence[MoveRecord], domains: Iterable[DomainEntry]) -> list[tuple[UnreadableHost, HostEntry]]:
    """Return the hosts whose document cannot be read, each with the entry that stands in for it.

    It has the name of the host as far as other documents show it, else the key of its document. A machine that was replaced has left its name to another.
    """
    if not hosts.unreadable:
        return []
    taken = {entry.name for entry in hosts.entries}
    named = itertools.chain((end for record in records for end in record.ends), (host for domain in domains for host in domain.possible_hosts))
    names = {key: host.host for host in named if host.host and host.host not in taken for key in (host.host_id, host.host_uuid) if key}
    return [(one, replace(one.stand_in, name=_written_name(one, taken) or names.get(one.host_key, one.host_key))) for one in hosts.unreadable]


def _written_name(one: UnreadableHost, taken: Container[str]) -> t.Optional[str]:
    """Return the name in a document of a later version."""
    written = (one.newer or {}).get("name")
    return written if isinstance(written, str) and written not in taken else None


def _read_drain(host: str, result: Json) -> JsonObject:
    """Return the result of a drain for a host. Raises L(InvalidArgument) for any other value."""
    where = f"drain_host_result.{host}"
    if not isinstance(result, Mapping):
        raise InvalidArgument(f"'{where}' must be a dictionary.", "Give drain_host_result as the role returned it. No report was written.")
    if not isinstance(result.get("blockers") or [], (list, tuple)):
        raise InvalidArgument(f"'{where}.blockers' must be a list.", "Give drain_host_result as the role returned it. No report was written.")
    return dict(result)


def _planned_at(drain: JsonObject) -> t.Optional[datetime.datetime]:
    """Return when the plan of a drain was made; None if its result does not have that."""
    plan = drain.get("plan")
    return parse_timestamp(plan.get("created_at")) if isinstance(plan, Mapping) else None


def _read_arrivals(ledger: Ledger, drains: Mapping[str, JsonObject]) -> list[MoveRecord]:
    since = min(filter(None, map(_planned_at, drains.values())), default=None)
    if since is None:
        return []
    ended = ledger.list_records(statuses=[s.COMPLETED, s.DONE], since=format_time(since))
    return list({record.domain.uuid: record for record in sorted(ended, key=lambda record: record.generation)}.values())


ARRIVED_OUTCOMES = (COMPLETED, EVACUATED)
# The number of domains that are named before the rest is counted.
_MOST_NAMES = 6


@dataclass(frozen=True)
class RebootVerdict:
    """Whether a host may be rebooted.

    :arg safe_to_reboot: null if only the host itself can determine it.
    :arg judged_by: C(drain) or C(ledger).
    """

    safe_to_reboot: t.Optional[bool]
    judged_by: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class ReportedHost:
    """A host: its state in the ledger, how many moves it had, and whether it may be rebooted; see L(RebootVerdict)."""

    name: str
    host_id: t.Optional[str]
    state: t.Optional[str]
    reason: t.Optional[str]
    since: t.Optional[str]
    left: int
    arrived: int
    not_moved: int
    under_way: int
    safe_to_reboot: t.Optional[bool]
    judged_by: str
    reasons: tuple[str, ...]


def describe_hosts(moves: Sequence[ReportedMove], found: ReportData) -> tuple[ReportedHost, ...]:
    """Return the hosts by name: those of moves, of the ledger, and of drains."""
    by_name = {entry.name: entry for entry in found.hosts}
    named = {end for move in moves for end in (move.source, move.destination) if end is not None}
    return tuple(_describe_host(name, by_name.get(name), moves, found) for name in sorted({*named, *by_name, *found.drains}))


def _describe_host(name: str, entry: t.Optional[HostEntry], moves: Sequence[ReportedMove], found: ReportData) -> ReportedHost:
    away = [move.outcome for move in moves if move.source == name]
    verdict = judge_reboot(name, entry, found)
    return ReportedHost(
        name=name,
        host_id=entry.host_id if entry else None,
        state=entry.state if entry else None,
        reason=_reason_of(entry) if entry else None,
        since=(entry.since or None) if entry else None,
        left=sum(outcome in ARRIVED_OUTCOMES for outcome in away),
        arrived=sum(move.destination == name and move.outcome in ARRIVED_OUTCOMES for move in moves),
        not_moved=sum(outcome in NOT_MOVED for outcome in away),
        under_way=sum(name in (move.source, move.destination) and move.outcome == UNDER_WAY for move in moves),
        safe_to_reboot=verdict.safe_to_reboot,
        judged_by=verdict.judged_by,
        reasons=verdict.reasons,
    )


def _reason_of(entry: HostEntry) -> t.Optional[str]:
    """Return why the host is in its state, and whether it could not be fenced."""
    impossible = f"{FENCING_IMPOSSIBLE}, since {entry.fencing.since}" if entry.fencing and entry.fencing.is_impossible else ""
    return "; ".join(part for part in (entry.reason or "", impossible) if part) or None


_WAS_IN_SERVICE: t.Final = "It was drained, and has been in service since: the verdict of its drain is out of date."
# Why the verdict of a drain does not count for a host in that state.
_OUTDATED: t.Final = {
    s.ENABLED: "It was drained, and is in service again: the verdict of its drain is out of date.",
    STATE_UNKNOWN: "It was drained, and its state is not known: it may be in service again.",
}


def judge_reboot(name: str, entry: t.Optional[HostEntry], found: ReportData) -> RebootVerdict:
    """Return whether the host may be rebooted. Only a drain has queried the host; the ledger alone can forbid a reboot, but never permits it.

    Guests may start at any time on a host that is in service, so that it loses the permission of an earlier drain; so does one whose state is not known.
    """
    host = entry.host_ref if entry else HostRef(name, None, None)
    holding = [record for record in found.unsettled if any(end.is_same(host) for end in record.ends)]
    drain = found.drains.get(name)
    is_permitted = drain is not None and drain.get("safe_to_reboot") is True
    state = entry.state if entry else STATE_UNKNOWN if found.has_unnamed else None
    why_outdated = _OUTDATED.get(state or "") or (_WAS_IN_SERVICE if entry and drain and _was_in_service(entry, drain) else None)
    outdated = (why_outdated,) if is_permitted and why_outdated else ()
    if drain is not None and not outdated:
        return _judge_drained(drain, holding, sorted(set(_list_arrived(host, drain, found))))
    staying = sorted(domain.name or domain.uuid for domain in found.domains if _may_run(domain, host))
    reasons = [*map(_unsettled_text, holding), *([_staying_text(staying)] if staying else [])]
    if reasons:
        return RebootVerdict(False, "ledger", (*outdated, *reasons))
    return RebootVerdict(None, "ledger", (*outdated, "The ledger has no obstacle. Only the host can confirm this: a drain queries it."))


def _was_in_service(entry: HostEntry, drain: JsonObject) -> bool:
    """Whether the host was in service after its drain: it is out of service since a later time. The result of an earlier version does not have its time."""
    drained_at, since = parse_timestamp(drain.get("verified_at")), parse_timestamp(entry.since or None)
    return drained_at is not None and since is not None and since > drained_at


def _judge_drained(drain: JsonObject, holding: Sequence[MoveRecord], arrived: Sequence[str]) -> RebootVerdict:
    blockers = [str(reason) for reason in t.cast("Sequence[Json]", drain.get("blockers") or ())]
    since = [_unsettled_text(record) for record in holding if not any(record.record_id in reason for reason in blockers)]
    since += [f"{name} has arrived here since the drain." for name in arrived if not any(name in reason for reason in blockers)]
    return RebootVerdict(drain.get("safe_to_reboot") is True and not holding and not arrived, "drain", (*blockers, *since))


def _list_arrived(host: HostRef, drain: JsonObject, found: ReportData) -> Iterator[str]:
    """Yield the domains that have come to the host, or were started on it by others, since the plan of its drain was made."""
    since = _planned_at(drain)
    if since is None:
        return
    for record in found.arrivals:
        if record.destination.is_same(host) and _is_since(end_time(record), since):
            yield record.domain.name or record.domain.uuid
    for domain in found.domains:
        last = (domain.foreign_acts or (None,))[-1]
        if last and last.act != STOPPED and last.host.is_same(host) and domain.includes_host(host) and _is_since(last.at, since):
            yield domain.name or domain.uuid


def _is_since(at: str, since: datetime.datetime) -> bool:
    moment = parse_timestamp(at)
    return moment is None or moment >= since


def _unsettled_text(record: MoveRecord) -> str:
    return f"{record.domain.name or record.domain.uuid} has an unsettled record, its status is '{record.status}'."


def _staying_text(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"According to the ledger, {len(names)} {'domain' if len(names) == 1 else 'domains'} may run here: {', '.join(names[:_MOST_NAMES])}{more}."


def _may_run(domain: DomainEntry, host: HostRef) -> bool:
    return domain.is_expected_on(host) and not was_off(domain)


SCHEMA = 1
DEFAULT_TITLE = "Migration report"
_ARCHIVE_COVERAGE = "This is a report of an archive: it has live migrations only, and no verdicts about hosts."


@dataclass(frozen=True)
class Report:
    """A report.

    :arg scope: the conditions for its records; null for those that were not set.
    :arg counts: see L(count_outcomes).
    :arg attention: what needs a person now, each with what to do; absent if there is nothing.
    :arg fleet_check: the last fleet check on this control node; absent in a report about a part of the fleet.
    :arg maintenance_runs: absent if there are none; so are C(balance_runs).
    :arg coverage: a sentence on what the report lacks because of archives.
    """

    schema: int
    title: str
    made_at: str
    scope: JsonObject
    first_at: t.Optional[str]
    last_at: t.Optional[str]
    counts: Mapping[str, int]
    downtimes: Downtimes
    hosts: tuple[ReportedHost, ...]
    moves: tuple[ReportedMove, ...]
    attention: t.Union[tuple[str, ...], Absent] = ABSENT
    fleet_check: t.Union[CheckedFleet, Absent] = ABSENT
    maintenance_runs: t.Union[tuple[ReportedRun, ...], Absent] = ABSENT
    balance_runs: t.Union[tuple[ReportedBalance, ...], Absent] = ABSENT
    coverage: t.Union[str, Absent] = ABSENT

    def as_json(self) -> dict[str, Json]:
        """Return it as JSON."""
        optional = ("attention", "fleet_check", "maintenance_runs", "balance_runs", "coverage")
        plain = {key: value for key, value in vars(self).items() if key not in optional}
        more = {key: encode(value) for key in optional if (value := getattr(self, key))}
        return {**plain, "downtimes": encode(self.downtimes), "hosts": encode(self.hosts), "moves": [move.as_json() for move in self.moves], **more}


def build_document(found: ReportData, scope: Scope, made_at: str, title: t.Optional[str] = None) -> Report:
    """Return the report.

    :arg made_at: RFC 3339, UTC.
    """
    moves = tuple(map(describe_move, found.records))
    return Report(
        schema=SCHEMA,
        title=title or DEFAULT_TITLE,
        made_at=made_at,
        scope={"since": scope.since, "until": scope.until, "host": scope.host, "domain": scope.domain, "ids": list(scope.ids or []) or None},
        first_at=min((move.created_at for move in moves), default=None),
        last_at=max((move.updated_at for move in moves), default=None),
        counts=count_outcomes(moves),
        downtimes=summarize_downtimes(moves),
        hosts=() if found.is_archive else describe_hosts(moves, found),
        moves=moves,
        attention=tuple(map(printable_line, _find_attention(found))) or ABSENT,
        fleet_check=found.check or ABSENT,
        maintenance_runs=tuple(map(describe_run, found.runs)) or ABSENT,
        balance_runs=tuple(map(describe_balance, found.balances)) or ABSENT,
        coverage=_ARCHIVE_COVERAGE if found.is_archive else found.archived or ABSENT,
    )


def _find_attention(found: ReportData) -> Iterator[str]:
    yield from (one.problem for one in found.unreadable)
    yield from found.problems
    yield from unstarted_lines(found.unstarted)
    yield from found.run_findings
    if found.check and (line := attention_line(found.check)):
        yield line


def summary_text(report: Report) -> str:
    """Return the report in a sentence or two."""
    counts = report.counts
    if not counts["records"]:
        return "No move is recorded here."
    parts = [f"{counts[outcome.replace(' ', '_')]} {outcome}" for outcome in OUTCOMES if counts[outcome.replace(" ", "_")]]
    text = f"{counts['records']} {'move' if counts['records'] == 1 else 'moves'}: {', '.join(parts)}."
    return f"{text} Uncertain moves need a person's decision." if counts[UNCERTAIN] else text
