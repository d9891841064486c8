# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The work of recover_plan: checks whether a host may be recovered, and decides which domains are started on it and which move back to it."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import OFFLINE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED

from .._drain.answers import FactsOf, active_uuids, collect_facts, read_answers, readable_facts
from .._drain.records import read_unsettled
from .._drain.shares import build_moves
from .._ledger.changes import LedgerDomains
from .._ledger.documents import Document, DomainEntry, HostEntry
from .._ledger.host_decisions import check_not_discarded
from .._ledger.host_entries import list_entries, read_hosts
from .._ledger.ledger import Ledger
from .._ledger.leftovers import list_begun
from .._ledger.retries import retry_write
from .._ledger.rules import map_holders
from .._observe.fleet_scan import list_contradicting, scan_fleet
from .._settings.variables import read_facts
from .displaced import DisplacedDomain
from .recorded import find_recorded, make_arrivals, with_recorded
from .release import NotedDomain
from .starts import AUTOSTART, NO_START, Facts, StartInputs, list_silent_hosts, read_start_mode, sort_starts
from .task_results import DomainVerdict, MoveBack, RecoverTask, RecoverWork, ReturnPlan, StartPlan

# A document before, and the entry that is to replace it.
DocumentChange = tuple[t.Optional[Document], DomainEntry]


def sort_moves_back(host: str, displaced: Iterable[DisplacedDomain], facts: Facts) -> ReturnPlan:
    """Return the displaced domains that can be moved back from their current host, and the reasons why others cannot; without shares.

    :arg facts: as of L(StartInputs).
    """
    moves: list[MoveBack] = []
    skipped: list[DomainVerdict] = []
    for domain in displaced:
        known = {name: found for name, host_facts in facts.items() if host_facts and (found := host_facts.find_domain(domain.uuid))}
        active = sorted(name for name, found in known.items() if found.active)
        if len(active) == 1 and active != [host]:
            moves.append(MoveBack(domain.uuid, domain.name, active[0]))
        elif len(active) > 1:
            skipped.append(DomainVerdict(domain.uuid, domain.name, f"It is active on {' and '.join(active)}."))
        elif not active and len(known) == 1 and host not in known and all(facts.values()):
            moves.append(MoveBack(domain.uuid, domain.name, next(iter(known)), OFFLINE))
        elif not active:
            places = ", ".join(sorted(known)) or ", ".join(map(str, domain.possible_hosts or ())) or "no host"
            only = "An active domain moves, or a definition that is certainly the only one"
            reason = f"It is active on no host that answers. {only}. It was left on {places}."
            skipped.append(DomainVerdict(domain.uuid, domain.name, reason))
    return ReturnPlan(tuple(moves), {}, tuple(skipped))


@dataclass(frozen=True)
class RecoverRequest:
    """The request for one host.

    :arg host: its inventory name.
    :arg name: its name in the ledger.
    :arg facts: C(kvmfleet_host) of every host of the fleet by name; None for a host that did not answer.
    :arg to_start: domains that are to be started on the host again.
    :arg accept_silent: hosts that need not answer, as confirmed by a person.
    :arg displaced: domains that were displaced from the host.
    :arg options: of C(live_migrate) for each move back.
    :arg state: the state of the host in the ledger, in check mode as predicted.
    :arg start: which domains are started.
    :arg boot_id: the present boot of the host; null if it is not known.
    :arg may_ask_again: whether hosts that contradict each other can be asked again.
    :arg noted_on: as of L(StartInputs).
    """

    host: str
    name: str
    facts: Facts
    to_start: tuple[NotedDomain, ...] = ()
    accept_silent: frozenset[str] = frozenset()
    displaced: tuple[DisplacedDomain, ...] = ()
    options: JsonObject | None = None
    state: str = ENABLED
    start: str = AUTOSTART
    boot_id: str | None = None
    may_ask_again: bool = False
    noted_on: Mapping[str, Collection[str]] = field(default_factory=dict)

    @classmethod
    def from_task(cls, host: str, task: RecoverTask, facts_of: FactsOf) -> RecoverRequest:
        """Return the request of a task with these options."""
        work = task.work or RecoverWork()
        fleet = list(dict.fromkeys([*task.fleet, host]))
        known = collect_facts(fleet, facts_of, read_answers(work.asked or ()))
        return cls(
            host=host,
            name=task.name or host,
            facts={name: read_facts(known[name]) if name in known else None for name in fleet},
            to_start=task.to_start,
            accept_silent=frozenset(task.accept_silent),
            displaced=task.displaced,
            options=task.options,
            state=work.state or ENABLED,
            start=read_start_mode(task.start),
            boot_id=work.boot_id or None,
            may_ask_again=bool(work.may_ask_again),
            noted_on={name: {domain.uuid for domain in noted} for name, noted in (work.noted or {}).items()},
        )


def find_host(request: RecoverRequest, ledger: Ledger | None) -> tuple[Ledger, Document]:
    """Return the ledger and its entry of the host. Raises L(NotFound) for a host that it does not know, L(Unsafe) for a discarded one."""
    found = ledger.find_host(name=request.name) if ledger else None
    if ledger is None or found is None or not found.host.host_id:
        raise NotFound(
            f"The ledger does not know {request.host}, so the domains that belong there are not known.",
            "If it is a new host, protect it (protect_host). If not, use the ledger with which it was drained or evacuated. Nothing was changed.",
        )
    check_not_discarded(found.host)
    return ledger, found


def check_nothing_twice(request: RecoverRequest) -> tuple[str, ...]:
    """Return the hosts by whose facts a domain or an image of this host is in use twice, to be asked again. Raises L(Unsafe) if they cannot be."""
    with readable_facts():
        facts = request.facts[request.host]
        defined = {domain.uuid for domain in facts.domains or ()} if facts else set()
        findings = [one for one in scan_fleet(request.facts).findings if request.host in one.hosts or one.domains[0] in defined]
    if findings and not request.may_ask_again:
        raise Unsafe(" ".join(one.msg for one in findings), f"Nothing was cleaned, released or started on {request.host}.")
    return list_contradicting(findings)


def list_begun_hosts(ledger: Ledger, host: HostEntry, facts: Facts) -> list[str]:
    """Return the hosts of the fleet on which starts of evacuations from this host may have begun, and nobody has settled them."""
    begun = [record.destination for record in list_begun(ledger, host.host_id)]
    known = {entry.name for entry in list_entries(ledger) for where in begun if entry.host_ref.is_same(where)}
    return sorted(known & facts.keys())


def reserve_starts(request: RecoverRequest, ledger: Ledger | None) -> tuple[StartPlan, bool]:
    """Return which domains are started, and whether the ledger was changed. Raises L(Conflict) if other processes keep changing documents of these domains.

    A domain that another host may have too is placed on this host before it is started: the recovery of the other host may be at the same step.
    """

    def plan_and_reserve() -> tuple[StartPlan, bool]:
        plan, entries = _plan_starts(request, ledger)
        for document, entry in entries:
            t.cast("Ledger", ledger).put_domain(entry, document.version if document else None)
        return plan, bool(entries)

    return retry_write(plan_and_reserve)


def plan_starts(request: RecoverRequest, ledger: Ledger | None) -> StartPlan:
    """Return which domains are started: those that are on this host alone, according to the ledger and all hosts. Others that ran are listed."""
    return _plan_starts(request, ledger)[0]


def _plan_starts(request: RecoverRequest, ledger: Ledger | None) -> tuple[StartPlan, list[DocumentChange]]:
    found_domains = ledger.read_domains() if ledger else LedgerDomains([], [], [])
    domains = sorted((document.domain for document in found_domains.documents), key=lambda domain: str(domain.name))
    hosts, held = read_hosts(ledger), map_holders(read_unsettled(ledger))
    entries = hosts.entries
    noted = request.to_start if request.start != NO_START else ()
    with readable_facts():
        inputs = StartInputs(
            host=request.host,
            facts=request.facts,
            domains={domain.uuid: domain for domain in domains},
            held=held,
            silent=list_silent_hosts(request.facts, entries, request.accept_silent, hosts.unreadable),
            boot_id=request.boot_id,
            damaged=found_domains.damaged,
            newer=found_domains.newer,
            noted_on=request.noted_on,
        )
        own = next((entry for entry in entries if entry.name == request.name), None)
        is_protected = bool(own and own.protected)
        found = find_recorded(request.host, request.facts, domains, request.boot_id, make_arrivals(ledger), is_protected)
        # A noted domain that the host has lost is named as well: it keeps no note.
        recorded = [one for one in found if not one.is_defined or one.uuid not in {domain.uuid for domain in noted}]
        verdicts = sort_starts([one.as_noted for one in recorded if one.is_defined], inputs)
        plan = sort_starts(noted, inputs) if request.start != NO_START else _forget_active(request)
        whole = with_recorded(plan, verdicts, recorded, request.host, request.start)
        return whole, _list_reservations(request, whole, found_domains.documents, own) if own else []


def _list_reservations(request: RecoverRequest, plan: StartPlan, documents: Iterable[Document], own: HostEntry) -> list[DocumentChange]:
    """Return the documents of the domains to start that the ledger places on no host, and that another host has too, or may have: with this host."""
    known = {document.domain.uuid: document for document in documents}
    others = [facts for name, facts in request.facts.items() if name != request.host]
    changes = []
    for one in plan.start:
        document = known.get(one.uuid)
        if not (document and document.domain.possible_hosts) and any(facts is None or facts.find_domain(one.uuid) for facts in others):
            entry = document.domain if document else DomainEntry(one.uuid, one.name, ())
            changes.append((document, replace(entry, possible_hosts=(own.host_ref,), updated_at=utc_now())))
    return changes


def _forget_active(request: RecoverRequest) -> StartPlan:
    """Return a plan that starts nothing, and by which domains that are active are not started by a later recovery either."""
    host_facts = request.facts[request.host]
    active = active_uuids(host_facts) if host_facts else set()
    forget = (DomainVerdict(noted.uuid, noted.name or noted.uuid, "It is active already.") for noted in request.to_start if noted.uuid in active)
    return StartPlan((), tuple(forget), (), ())


def plan_return(request: RecoverRequest, can_check: bool) -> ReturnPlan:
    """Return which displaced domains can move back: those that are active on exactly one other host, and those that are off and only defined on one.

    :arg can_check: whether the host accepts domains now. If that is only predicted, no move can be checked, and there are no shares.
    """
    if request.state != ENABLED:
        reason = f"{request.host} is in maintenance, so nothing moves there."
        return ReturnPlan((), {}, tuple(_skip_domain(domain, reason) for domain in request.displaced))
    with readable_facts():
        plan = sort_moves_back(request.host, request.displaced, request.facts)
    if not can_check:
        return plan
    live, off = [move for move in plan.moves if not move.method], [move for move in plan.moves if move.method]
    cold = {source: [_move_definition(move, request.host) for move in off if move.source == source] for source in dict.fromkeys(move.source for move in off)}
    return replace(plan, shares=_build_shares(request, live), cold_shares=cold)


def _move_definition(move: MoveBack, host: str) -> JsonObject:
    return {"uuid": move.uuid, "destination": host, "method": OFFLINE}


def _build_shares(request: RecoverRequest, moves: Sequence[MoveBack]) -> dict[str, Sequence[JsonObject]]:
    """Return the live moves by the host on which they begin. Raises L(InvalidArgument) for an option that the role decides."""
    sources = dict.fromkeys(move.source for move in moves)
    return {source: build_moves({move.uuid: request.host for move in moves if move.source == source}, request.options) for source in sources}


def _skip_domain(domain: DisplacedDomain, reason: str) -> DomainVerdict:
    return decode(DomainVerdict, {**encode(domain), "reason": reason})
