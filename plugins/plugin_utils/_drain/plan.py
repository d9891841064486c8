# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The plan of a drain: the destination of every active domain of every host that is drained, or why it has none.

The plan also states whether the remaining hosts could lose one of them (N+1).
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, SignedInt
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import MAINTENANCE

from .._ledger.documents import pause_collector
from .._scheduler.fleet import Fleet
from .._scheduler.loss_rules import LOSS_FILTERS
from .._scheduler.planner import Placement, plan_placements
from .._scheduler.repair import Board, assign_first_fit, build_units, repair_assignment
from .._scheduler.request import Request
from .._scheduler.verdicts import Verdict, best_verdict, check_host
from .._settings.scheduler import SchedulerSettings
from .inputs import DrainInputs, DrainOptions
from .order import order_moves
from .prediction import SourcePrediction, find_capacity, predict_alone, predict_source, stream_rate
from .saved_plan import PLAN_SCHEMA, DrainPlan, NPlusOne, PlannedMove, Rejection, UnplacedDomain, to_plain_object
from .sorting import SortedDomains, sort_domains
from .tables import summarize_rejections

# The number of tries for the loss of one host before its domains count as not placed.
MAX_NODES = 3000


class RemainingHosts:
    """Computes, for one fleet, the loss of each host after a plan.

    :arg hosts: the candidates of the drain. One that did not answer can neither be lost nor accept domains.
    :arg leavers: the domains that the plan places.
    """

    def __init__(self, inputs: DrainInputs, hosts: Sequence[str], leavers: Iterable[Request]) -> None:
        self.hosts = [host for host in hosts if inputs.facts.get(host) and host not in inputs.unreachable]
        self.refs = {host: inputs.host_ref(host) for host in self.hosts}
        self.leavers = {request.uuid: request for request in leavers}
        self.there = {host: self._list_requests(inputs, host) for host in self.hosts}
        self._answers: dict[frozenset[tuple[str, str]], dict[str, list[Request]]] = {}

    def find_losses(self, fleet: Fleet, assignment: Mapping[str, str]) -> dict[str, list[Request]]:
        """Return the domains that could not be placed, by the host that is lost.

        :arg fleet: with the plan carried out.
        :arg assignment: each domain of the plan to its host.
        """
        key = frozenset(assignment.items())
        if key not in self._answers:
            others = sorted(self.hosts, key=lambda host: (-fleet.states[host].free_mib(), host))
            self._answers[key] = {host: self._find_unplaced(host, fleet, assignment, others) for host in self.hosts}
        return self._answers[key]

    def _find_unplaced(self, lost: str, fleet: Fleet, assignment: Mapping[str, str], hosts: Sequence[str]) -> list[Request]:
        source_id, source_uuid = self.refs[lost].host_id or "", self.refs[lost].host_uuid or ""
        gone = [self.leavers[uuid] for uuid, host in assignment.items() if host == lost]
        renamed = [fleet.request_at(leaver, fleet.states[lost]) for leaver in gone]
        arrived = [replace(leaver, source=lost, source_id=source_id, source_uuid=source_uuid, at_source=None, unnamed=()) for leaver in renamed]
        fleet = fleet.with_saved_names()
        units = build_units([*self.there[lost], *arrived])
        for request in (request for unit in units for request in unit.requests):
            fleet = fleet.without_domain(request.uuid, lost)
        board = Board(fleet, {unit.uuid: unit for unit in units}, [host for host in hosts if host != lost], LOSS_FILTERS, MAX_NODES)
        placed = assign_first_fit(board, units)
        placed = placed if len(placed) == len(units) else repair_assignment(board, placed)
        return [request for unit in units if unit.uuid not in placed for request in unit.requests]

    def unplaced_mib(self, fleet: Fleet, assignment: Mapping[str, str]) -> float:
        """Return the MiB of memory that could not be placed, as the sum over the losses of all hosts."""
        return float(sum(request.memory_mib for requests in self.find_losses(fleet, assignment).values() for request in requests))

    def judge_losses(self, fleet: Fleet, assignment: Mapping[str, str]) -> NPlusOne:
        """Return the loss that is the worst, and all hosts whose loss is not absorbed."""
        lost = self.find_losses(fleet, assignment)
        missing = {host: sum(request.memory_mib for request in requests) for host, requests in lost.items() if requests}
        if not missing:
            return NPlusOne(True, None, 0, (), ())
        worst = min(missing, key=lambda host: (-missing[host], host))
        return NPlusOne(False, worst, missing[worst], tuple(sorted(request.name for request in lost[worst])), tuple(sorted(missing)))

    def _list_requests(self, inputs: DrainInputs, host: str) -> list[Request]:
        """Return the active domains of the host. A domain without a usable request counts with its memory alone."""
        active = [domain for domain in inputs.list_domains(host) if domain.active and domain.uuid not in self.leavers]
        return [_make_request(domain, self.refs[host]) for domain in active]


def _make_request(domain: DomainFacts, source: HostRef) -> Request:
    try:
        return Request.from_needs(domain.request or {}, domain.uuid, domain.name, source.host or "", source.host_uuid or "", source_id=source.host_id)
    except KvmfleetError:
        needs = {"memory_mib": max(1, domain.memory_mib or 0), "vcpus": max(1, domain.vcpus or 0)}
        return Request.from_needs(needs, domain.uuid, domain.name, source.host or "", source.host_uuid or "", source_id=source.host_id)


ON_ITS_WAY = "The domain is already moving there."


def describe_move(order: int, placement: Placement) -> PlannedMove:
    """Return the move of a domain that has a destination, without a prediction.

    :arg order: its position among the moves of the plan, from 1.
    """
    request = placement.request
    chosen = next((verdict for verdict in placement.verdicts if verdict.host == placement.destination), None)
    return PlannedMove(
        order=order,
        name=request.name,
        uuid=request.uuid,
        source=request.source,
        destination=placement.destination or "",
        memory_mib=request.memory_mib,
        priority=SignedInt(request.priority),
        predicted_seconds=0.0,
        predicted_downtime_ms=None,
        reason=_reason_chosen(placement, chosen) if chosen else ON_ITS_WAY,
        warnings=tuple(chosen.warnings) if chosen else (),
        rejected=_list_rejected(placement, chosen),
        request=to_plain_object(request.as_json()),
    )


def describe_unplaced(placement: Placement) -> UnplacedDomain:
    """Return the entry of a domain that no host can accept."""
    request = placement.request
    rejected = _list_rejected(placement, None)
    whys = "; ".join(f"{hosts}: {reason.rstrip('.')}" for hosts, reason in summarize_rejections(rejected))
    reason = f"No host can accept it{_group_text(placement)}. {whys}." if rejected else "There is no other host."
    return UnplacedDomain(request.name, request.uuid, request.source, request.memory_mib, reason, rejected)


def _reason_chosen(placement: Placement, chosen: Verdict) -> str:
    passed = [verdict for verdict in placement.verdicts if verdict.passed]
    first = best_verdict(passed)
    group = f" It moves together with its affinity group: {', '.join(placement.together)}." if placement.together else ""
    if len(passed) == 1:
        return f"It is the only host that passes all filters.{group}"
    if first is None or first.host == chosen.host:
        return f"It has the highest weight, {chosen.weight:.2f}, of the {len(passed)} hosts that pass all filters.{group}"
    higher = f"{first.host} has a higher weight ({first.weight:.2f}, not {chosen.weight:.2f})"
    return f"It passes all filters; {higher}, but this makes the plan as a whole better.{group}"


def _list_rejected(placement: Placement, chosen: t.Optional[Verdict]) -> tuple[Rejection, ...]:
    others = [verdict for verdict in placement.verdicts if verdict.host not in (placement.destination, placement.request.source)]
    return tuple(Rejection(verdict.host, _reason_rejected(verdict, placement, chosen)) for verdict in others)


def _reason_rejected(verdict: Verdict, placement: Placement, chosen: t.Optional[Verdict]) -> str:
    if not verdict.passed:
        return verdict.reason
    if chosen is None:
        return f"It could accept the domain alone, but not{_group_text(placement)}."
    words = "has a lower weight" if verdict.weight < chosen.weight else "has the same weight" if verdict.weight == chosen.weight else "has a higher weight"
    return f"It could accept the domain too, and {words}, {verdict.weight:.2f}."


def _group_text(placement: Placement) -> str:
    return f" together with its affinity group ({', '.join(placement.together)})" if placement.together else ""


@pause_collector()
def make_plan(inputs: DrainInputs, sources: Sequence[str], candidates: Sequence[str], options: t.Optional[DrainOptions] = None) -> DrainPlan:
    """Return the plan.

    Raises L(InvalidArgument) for a source without facts, and for invalid settings. A host that is drained is not a destination, whatever its state in the
    ledger.
    """
    wanted = options or DrainOptions()
    check_sources(inputs, sources)
    found = sort_domains(inputs, sources, wanted)
    fleet = build_fleet(inputs, sources, candidates, found)
    requests = [leaver.request for leaver in found.leavers.values()]
    survivors = RemainingHosts(inputs, sorted({*candidates} - {*sources}), requests) if wanted.n_plus_one else None
    hosts = {*candidates, *sources}
    placements = plan_placements(requests, fleet, find_pinned_hosts(found, fleet, hosts), cost=survivors.unplaced_mib if survivors else None, hosts=hosts)
    placed = [placement for placement in placements if placement.destination]
    predicted = predict_in_order([describe_move(order, one) for order, one in enumerate(placed, 1)], found, inputs, wanted, sources)
    moves = sorted((move for one in predicted.values() for move in one.moves), key=lambda move: move.order)
    return DrainPlan(
        schema=PLAN_SCHEMA,
        digest="",
        created_at=utc_now(),
        sources=tuple(sources),
        candidates=tuple(sorted({*candidates} - {*sources})),
        options=wanted.for_plan(),
        settings=read_scheduler_settings(inputs, sources, candidates),
        moves=tuple(moves),
        shutdowns=tuple(found.shutdowns),
        unplaced=(*found.stuck, *(describe_unplaced(placement) for placement in placements if not placement.destination)),
        skipped=tuple(found.skipped),
        n_plus_one=survivors.judge_losses(_fleet_after(fleet, placements), {move.uuid: move.destination for move in moves}) if survivors else None,
        predicted_seconds={source: one.seconds for source, one in predicted.items()},
        predicted_ranges={source: (one.low, one.high) for source, one in predicted.items()},
    ).seal()


def predict_in_order(
    moves: Sequence[PlannedMove], found: SortedDomains, inputs: DrainInputs, wanted: DrainOptions, sources: Sequence[str]
) -> dict[str, SourcePrediction]:
    """Return the moves of each source in the order in which they start, with their predictions."""
    of_source = {source: [move for move in moves if move.source == source] for source in sources}
    rates = {source: stream_rate(find_capacity(source, own, inputs, wanted), len(own), wanted.bandwidth_mib) for source, own in of_source.items()}
    alone = [replace(move, predicted_seconds=predict_alone(found.leavers[move.uuid], rates[move.source])) for move in moves]
    ordered = order_moves(alone, found.leavers, rates)
    return {source: predict_source(source, [move for move in ordered if move.source == source], found.leavers, inputs, wanted) for source in sources}


def check_sources(inputs: DrainInputs, sources: Sequence[str]) -> None:
    """Raise L(InvalidArgument) if a source has no facts."""
    missing = [source for source in sources if not inputs.facts.get(source)]
    if missing:
        raise InvalidArgument(f"There are no facts for {', '.join(missing)}.", "Run kvmfleet.migration.host_facts there first.")


def build_fleet(inputs: DrainInputs, sources: Sequence[str], candidates: Sequence[str], found: SortedDomains) -> Fleet:
    """Return the fleet for the plan: drained hosts accept no domain, and domains that leave or are shut down are not members of groups on their host.

    Hosts that are neither sources nor candidates are included for their members of groups.
    """
    states = {host: inputs.host_state(host) for host in sorted({*candidates, *sources, *inputs.facts})}
    drained = {source: replace(states[source], state=MAINTENANCE, state_reason="it is being drained") for source in sources}
    leaving = frozenset(found.leavers) | {entry.uuid for entry in found.shutdowns}
    return Fleet({**states, **drained}, leaving)


def find_pinned_hosts(found: SortedDomains, fleet: Fleet, hosts: Collection[str]) -> dict[str, str]:
    """Return the destinations of domains that are already moving. A reservation of a move that has not begun counts while its host still passes."""
    pinned_hosts = {}
    for uuid, leaver in found.leavers.items():
        destination = leaver.destination
        if destination and leaver.reserved:
            destination = destination if destination in hosts and check_host(leaver.request, fleet.states[destination], fleet).passed else None
        if destination:
            pinned_hosts[uuid] = destination
    return pinned_hosts


def read_scheduler_settings(inputs: DrainInputs, sources: Sequence[str], candidates: Sequence[str]) -> dict[str, JsonObject]:
    """Return C(kvmfleet_scheduler) of the hosts that have one."""
    given = [host for host in sorted({*sources, *candidates}) if inputs.scheduler.get(host)]
    return {host: to_plain_object(SchedulerSettings.from_variable(inputs.scheduler[host], host).as_json()) for host in given}


def _fleet_after(fleet: Fleet, placements: Sequence[Placement]) -> Fleet:
    for placement in placements:
        if placement.destination and placement.destination in fleet.states:
            fleet = fleet.with_domain(placement.request, placement.destination)
    return fleet
