# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The work of recover_plan: checks whether a host may be recovered, and decides which domains are started on it and which move back to it."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.boot_guard import NOTED_BY_DRAIN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import OFFLINE, SHUTDOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import RAN, EarlierState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COMPLETED, DONE, ENABLED, EVACUATION, FENCED

from .._drain.preparation import FactsOf, active_uuids, collect_facts, read_answers, read_unsettled, readable_facts
from .._drain.shares import build_moves
from .._ledger.documents import Document, DomainEntry, HostEntry
from .._ledger.host_decisions import check_not_discarded
from .._ledger.host_entries import list_entries
from .._ledger.ledger import Ledger
from .._ledger.leftovers import list_begun
from .._ledger.rules import map_holders
from .._observe.fleet_scan import ImageUsers, list_contradicting, list_written, scan_fleet
from .._settings.variables import read_facts
from .displaced import DisplacedDomain
from .release import NotedDomain
from .task_results import DomainVerdict, MoveBack, RecoverTask, RecoverWork, ReturnPlan, StartPlan

Facts = Mapping[str, HostFacts | None]

# Which domains are started on a host: those that its boot would have started, also those that ran before the host went down, or none.
AUTOSTART, AS_RECORDED, NO_START = "autostart", "as_recorded", "none"


def read_start_mode(value: Json) -> str:
    """Return which domains are started. C(true) and C(false) are AUTOSTART and NO_START. Raises L(InvalidArgument) for any other value."""
    if isinstance(value, str) and value in (AUTOSTART, AS_RECORDED, NO_START):
        return value
    try:
        return AUTOSTART if boolean(value) else NO_START
    except TypeError as error:
        what = f"{value!r} does not say which domains to start."
        raise InvalidArgument(what, "Set recover_host_start to autostart, as_recorded or none. Nothing was changed.") from error


def sort_starts(
    host: str,
    to_start: Iterable[NotedDomain],
    facts: Facts,
    domains: Iterable[DomainEntry],
    records: Iterable[MoveRecord],
    entries: Iterable[HostEntry],
    accepted: Collection[str],
    boot_id: t.Optional[str] = None,
) -> StartPlan:
    """Return the decision about each of the domains.

    :arg facts: C(kvmfleet_host) by name of all hosts of the fleet; None for one that does not answer.
    :arg domains: all domains of the ledger.
    :arg entries: the ledger's hosts. One that is fenced need not answer.
    :arg accepted: silent hosts for which a person confirms that none of these domains runs there.
    :arg boot_id: the present boot of the host; null if it is not known.
    """
    host_facts = facts[host]
    silent = list_silent_hosts(facts, entries, accepted)
    by_uuid = {domain.uuid: domain for domain in domains}
    held, users = map_holders(records), ImageUsers(facts)
    result: dict[str, list[DomainVerdict]] = {"start": [], "forget": [], "refuse": []}
    for noted in to_start:
        if host_facts is None:
            raise InvalidArgument(f"There are no facts of {host}.", "Run kvmfleet.migration.host_facts there first. Nothing was started.")
        stopped = _judge_stop(noted, host_facts, boot_id)
        verdict, reason = stopped or _judge_start(noted, host, host_facts, facts, by_uuid.get(noted.uuid), held.get(noted.uuid), silent)
        used = _find_other_user(noted.uuid, host, host_facts, users) if verdict == "start" else ""
        if used:
            verdict, reason = "refuse", f"{used} If that domain has replaced it, undefine it on {host}. If not, stop that domain, and recover {host} again."
        result[verdict].append(DomainVerdict(noted.uuid, noted.name or noted.uuid, reason))
    return StartPlan(**{verdict: tuple(domains) for verdict, domains in result.items()}, stayed_off=())


def list_silent_hosts(facts: Facts, entries: Iterable[HostEntry], accepted: Collection[str]) -> list[str]:
    """Return the hosts, of the fleet or only in the ledger, that did not answer and are not off according to the ledger or a person."""
    states = {entry.name: entry.state for entry in entries}
    answering = {known.host_id for known in facts.values() if known and known.host_id}
    renamed = {entry.name for entry in entries if entry.host_id in answering}
    unheard = {name for name in [*facts, *states] if not facts.get(name)} - renamed
    return sorted(name for name in unheard if states.get(name) != FENCED and name not in accepted)


def _judge_stop(noted: NotedDomain, host_facts: HostFacts, boot_id: t.Optional[str]) -> t.Optional[tuple[str, str]]:
    """Return the verdict on a domain that somebody has started and stopped since it was noted; None if that is not proved.

    libvirt forgets why a domain is off when its host goes down. In the boot of a drain, it is off because of the drain.
    """
    domain = host_facts.find_domain(noted.uuid)
    if domain is None or domain.active or domain.reason not in domain_states.STOPPED_REASONS:
        return None
    is_of_earlier_boot = bool(boot_id and noted.boot_id) and noted.boot_id != boot_id
    return ("forget", f"It was started and stopped again ({domain.reason}).") if is_of_earlier_boot or NOTED_BY_DRAIN not in noted.why else None


def _judge_start(
    noted: NotedDomain, host: str, host_facts: HostFacts, facts: Facts, entry: t.Optional[DomainEntry], record: t.Optional[MoveRecord], silent: Sequence[str]
) -> tuple[str, str]:
    domain = host_facts.find_domain(noted.uuid)
    if domain is None:
        return "forget", "It is no longer defined here."
    if domain.active:
        return "start", "It is active already."
    elsewhere = sorted(name for name, known in facts.items() if name != host and known and (found := known.find_domain(noted.uuid)) and found.active)
    if elsewhere:
        return "forget", f"It is active on {', '.join(elsewhere)}."
    if record is not None:
        return "refuse", f"Its record {record.id} is not settled ('{record.status}')."
    possible_hosts = entry.possible_hosts if entry else ()
    others = [place for place in possible_hosts if not place.is_same(replace(host_facts.host, host=host))]
    names = ", ".join(str(place.host) for place in others)
    if others and len(others) == len(possible_hosts):
        if all(_lacks_domain(place, noted.uuid, facts) for place in others):
            return "refuse", (
                f"According to the ledger, it is on {names}, which answers and does not have it. "
                f"If it runs nowhere and its definition on {host} is the right one, start it with kvmfleet.migration.domain_start there. "
                "Otherwise undefine it there."
            )
        return "forget", f"According to the ledger, it is on {names}."
    if others:
        return "refuse", f"According to the ledger, it may be on {names} too."
    if silent:
        return "refuse", f"It may run on {', '.join(silent)}, which did not answer. Fence them, or accept them by name (recover_host_accept_silent)."
    return "start", f"It is to be started again ({', '.join(noted.why)})."


def _find_other_user(uuid: str, host: str, host_facts: HostFacts, users: ImageUsers) -> str:
    """Return, as a sentence, which image of a domain that is off here a running one uses, under another UUID; empty for none."""
    domain = host_facts.find_domain(uuid)
    used = "" if domain is None or domain.active else users.find_other(uuid, host, list_written(domain.needs))
    return f"{used[0].upper()}{used[1:]}." if used else ""


def _lacks_domain(place: HostRef, uuid: str, facts: Facts) -> bool:
    """Whether the host answers, and does not have the domain."""
    return any(known and place.is_same(replace(known.host, host=name)) and not known.find_domain(uuid) for name, known in facts.items())


@dataclass(frozen=True)
class RecordedDomain:
    """A domain that ran on a host before the host went down, and is off.

    :arg before: its state then.
    :arg is_defined: whether the host still has its definition.
    """

    uuid: str
    name: str
    before: EarlierState
    is_defined: bool

    @property
    def as_noted(self) -> NotedDomain:
        """The domain as one that is to be started."""
        return NotedDomain(self.uuid, self.name, ("recorded",))

    def describe(self, what: str) -> DomainVerdict:
        """Return the entry of a result: the earlier state, and this."""
        at = f" (saved at {self.before.at})" if self.before.at else ""
        return DomainVerdict(self.uuid, self.name, f"It was {self.before.state} before the host went down{at}, and is off. {what}")


FindArrival = Callable[[DomainEntry, HostRef], t.Optional[EarlierState]]


def find_recorded(host: str, facts: Facts, domains: Iterable[DomainEntry], boot_id: t.Optional[str], find_arrival: FindArrival) -> list[RecordedDomain]:
    """Return the domains of the host that ran before it went down, according to the ledger, and that are off.

    Omitted are domains that are active, that were stopped since the boot, and those without definition here that another host may have, or that were
    missing before the host went down.

    :arg boot_id: the present boot of the host; null if it is not known.
    :arg find_arrival: returns the state in which a domain came to the host after it was saved on another one.
    """
    host_facts = facts[host]
    if host_facts is None:
        return []
    own_ref = replace(host_facts.host, host=host)
    result: list[RecordedDomain] = []
    for entry in domains:
        if not entry.includes_host(own_ref):
            continue
        found = host_facts.find_domain(entry.uuid)
        if found and (found.active or found.reason in domain_states.STOPPED_REASONS):
            continue
        if found is None and (not entry.is_only_on(own_ref) or any(known and known.find_domain(entry.uuid) for known in facts.values())):
            continue
        if found is None and entry.missing and entry.is_missing and entry.missing.boot_id != boot_id:
            continue
        saved = entry.saved
        is_saved_here = bool(saved and saved.host and saved.host.is_same(own_ref))
        before = saved.state_before(boot_id) if saved and is_saved_here else find_arrival(entry, own_ref)
        if before:
            result.append(RecordedDomain(entry.uuid, str((found.name if found else entry.name) or entry.uuid), before, found is not None))
    return result


def with_recorded(plan: StartPlan, verdicts: StartPlan, recorded: Iterable[RecordedDomain], host: str, mode: str) -> StartPlan:
    """Return the plan with the domains that ran before the host went down: they are started, or listed with how to start them.

    :arg verdicts: the decisions about those of them that are defined. One that is elsewhere now is omitted.
    """
    by_uuid = {domain.uuid: domain for domain in recorded}
    gone = [domain.describe(_undefined_text(domain, host)) for domain in by_uuid.values() if not domain.is_defined]
    if mode == AS_RECORDED:
        start = [replace(one, paused=True) if by_uuid[one.uuid].before.state == domain_states.PAUSED else one for one in verdicts.start]
        return StartPlan((*plan.start, *start), plan.forget, (*plan.refuse, *verdicts.refuse), tuple(gone))
    how = f"To start it, recover {host} again with recover_host_start=as_recorded, or run kvmfleet.migration.domain_start there."
    off = [by_uuid[one.uuid].describe(how) for one in verdicts.start]
    off += [by_uuid[one.uuid].describe(f"It cannot be started now: {one.reason}") for one in verdicts.refuse]
    return replace(plan, stayed_off=tuple(sorted([*off, *gone], key=lambda one: (str(one.name), one.uuid))))


def _undefined_text(domain: RecordedDomain, host: str) -> str:
    return (
        f"{host} has no definition of it any more, so recover cannot start it. If it ran nowhere else, define it there from its document in the ledger "
        f"(domains/{domain.uuid}.json, protected.definition), and start it."
    )


def sort_moves_back(host: str, displaced: Iterable[DisplacedDomain], facts: Facts) -> ReturnPlan:
    """Return the displaced domains that can be moved back from their current host, and the reasons why others cannot; without shares.

    :arg facts: as of L(sort_starts).
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


def plan_starts(request: RecoverRequest, ledger: Ledger | None) -> StartPlan:
    """Return which domains are started: those that are on this host alone, according to the ledger and all hosts. Others that ran are listed."""
    domains = [document.domain for document in ledger.list_domains()] if ledger else []
    entries, unsettled = list_entries(ledger), read_unsettled(ledger)
    noted = request.to_start if request.start != NO_START else ()

    def sort(wanted: Iterable[NotedDomain]) -> StartPlan:
        return sort_starts(request.host, wanted, request.facts, domains, unsettled, entries, request.accept_silent, request.boot_id)

    with readable_facts():
        find_arrival = _make_arrivals(ledger, next((entry for entry in entries if entry.name == request.name), None))
        found = find_recorded(request.host, request.facts, domains, request.boot_id, find_arrival)
        # A noted domain that the host has lost is named as well: it keeps no note.
        recorded = [one for one in found if not one.is_defined or one.uuid not in {domain.uuid for domain in noted}]
        verdicts = sort([one.as_noted for one in recorded if one.is_defined])
        plan = sort(noted) if request.start != NO_START else _forget_active(request)
        return with_recorded(plan, verdicts, recorded, request.host, request.start)


def _forget_active(request: RecoverRequest) -> StartPlan:
    """Return a plan that starts nothing, and by which domains that are active are not started by a later recovery either."""
    host_facts = request.facts[request.host]
    active = active_uuids(host_facts) if host_facts else set()
    forget = (DomainVerdict(noted.uuid, noted.name or noted.uuid, "It is active already.") for noted in request.to_start if noted.uuid in active)
    return StartPlan((), tuple(forget), (), ())


def _make_arrivals(ledger: Ledger | None, own: HostEntry | None) -> FindArrival:
    """Return a function that reads from the ledger in which state a domain came to a host.

    It finds nothing for a host that is not protected: nothing would ever have saved that such a domain was stopped there.
    """
    if ledger is None or own is None or not own.protected:
        return lambda _entry, _host: None
    done = sorted(ledger.list_records(types=[EVACUATION], statuses=[DONE]), key=lambda record: record.updated_at)
    newest = {record.domain.uuid.lower(): record for record in done}

    def find_arrival(entry: DomainEntry, host: HostRef) -> EarlierState | None:
        records = [newest[entry.uuid]] if entry.uuid in newest else []
        if entry.last_record:
            with contextlib.suppress(KvmfleetError):
                records.append(ledger.read_record(entry.last_record).record)
        record = next((one for one in records if one.status in (COMPLETED, DONE) and one.destination.is_same(host)), None)
        state = (record.wanted_state or state_after_move(record)) if record else None
        return EarlierState(state, record.updated_at) if record and state in RAN else None

    return find_arrival


def state_after_move(record: MoveRecord) -> str:
    """Return the state in which the move of a record has left its domain."""
    if record.cold and record.method == SHUTDOWN:
        return domain_states.RUNNING if record.cold.start else domain_states.SHUTOFF
    return record.before.state or domain_states.RUNNING


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
