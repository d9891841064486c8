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

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import OFFLINE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NO_MAPS, NameChange, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import MAINTENANCE

from .._ledger.documents import pause_collector
from .._scheduler.fleet import Fleet
from .._scheduler.fleet_guests import request_on
from .._scheduler.loss_rules import LOSS_FILTERS
from .._scheduler.planner import Placement, plan_placements
from .._scheduler.repair import Board, assign_first_fit, build_units, repair_assignment
from .._scheduler.request import Request
from .._scheduler.verdicts import DEFAULT_FILTERS, check_host
from .._settings.scheduler import SchedulerSettings
from .descriptions import describe_cold_move, describe_move, describe_refusals, describe_unplaced
from .inputs import DrainInputs, DrainOptions
from .order import order_moves
from .plan_entries import NPlusOne, PlannedMove
from .prediction import SourcePrediction, find_capacity, predict_alone, predict_source, stream_rate
from .reserve import count_further_losses, plan_reserve
from .saved_plan import PLAN_SCHEMA, DrainPlan, to_plain_object
from .sorting import LeavingDomain, Refused, SortedDomains, make_remaining_request, skip_unplaced_definition, sort_domains

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
        arrived = [request_on(fleet, self.leavers[uuid], lost) for uuid, host in assignment.items() if host == lost]
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
        """Return what the active domains of the host need."""
        active = [domain for domain in inputs.list_domains(host) if domain.active and domain.uuid not in self.leavers]
        return [make_remaining_request(domain, self.refs[host]) for domain in active]


@dataclass(frozen=True)
class PlacedDomains:
    """What is to be done with each domain, and where those that leave go.

    :arg fleet: before the plan.
    :arg running: of the domains that run at their destination; C(definitions) of those that are only defined there.
    """

    found: SortedDomains
    fleet: Fleet
    survivors: RemainingHosts | None
    running: Sequence[Placement]
    definitions: Sequence[Placement]

    def list_placed(self, is_live: bool) -> list[tuple[Placement, LeavingDomain]]:
        """Return the domains that have a destination: those that move live, or the others."""
        leavers = self.found.all_leavers
        both = [(placement, leavers[placement.request.uuid]) for placement in (*self.running, *self.definitions)]
        return [(placement, leaver) for placement, leaver in both if placement.destination and bool(leaver.method) != is_live]

    def list_renamed(self, placement: Placement) -> tuple[NameChange, ...]:
        """Return what the names of the domain are at its destination."""
        return self.fleet.list_renamed(placement.request, placement.destination or "")

    def list_unplaced(self) -> list[tuple[Placement, LeavingDomain]]:
        """Return the domains that no host can accept."""
        leavers = self.found.all_leavers
        return [(placement, leavers[placement.request.uuid]) for placement in (*self.running, *self.definitions) if not placement.destination]


# What a host needs so that a domain can be defined there and started later. It books nothing.
_DEFINITION_FILTERS = (
    "not_source",
    "up",
    "enabled",
    "cpu_model",
    "machine_type",
    "storage",
    "boot_files",
    "firmware",
    "tpm",
    "secrets",
    "networks",
    "resource_maps",
    "labels",
)
DEFINITION_FILTERS = tuple(rule for rule in DEFAULT_FILTERS if rule.name in _DEFINITION_FILTERS)


def place_domains(inputs: DrainInputs, sources: Sequence[str], candidates: Sequence[str], options: DrainOptions) -> PlacedDomains:
    """Return where each domain goes. A domain that no host can accept is tried again with its next strategy, together with all others."""
    refused: dict[str, dict[str, str]] = {}
    while True:
        placed = _place_once(inputs, sources, candidates, options, refused)
        again = [(placement, leaver) for placement, leaver in placed.list_unplaced() if leaver.has_other]
        if not again:
            return placed
        for placement, leaver in again:
            refused.setdefault(leaver.request.uuid, {})[leaver.strategy] = describe_refusals(placement)


def _place_once(inputs: DrainInputs, sources: Sequence[str], candidates: Sequence[str], options: DrainOptions, refused: Refused) -> PlacedDomains:
    found = sort_domains(inputs, sources, options, refused)
    fleet = build_fleet(inputs, sources, candidates, found)
    requests, hosts = [leaver.request for leaver in found.leavers.values()], {*candidates, *sources}
    # A plan that has to leave room for further losses is looked for among those that leave room for one.
    is_spare_needed = options.n_plus_one or count_further_losses(inputs, candidates, sources) > 0
    survivors = RemainingHosts(inputs, sorted({*candidates} - {*sources}), requests) if is_spare_needed else None
    pinned = find_pinned_hosts(found, fleet, hosts)
    running = plan_placements(requests, fleet, pinned, cost=survivors.unplaced_mib if survivors else None, hosts=hosts)
    defined = [leaver.request for leaver in found.definitions.values()]
    definitions = plan_placements(defined, _fleet_after(fleet, running), pinned, DEFINITION_FILTERS, hosts=hosts) if defined else []
    return PlacedDomains(found, fleet, survivors, running, definitions)


@pause_collector()
def make_plan(inputs: DrainInputs, sources: Sequence[str], candidates: Sequence[str], options: t.Optional[DrainOptions] = None) -> DrainPlan:
    """Return the plan.

    Raises L(InvalidArgument) for a source without facts, and for invalid settings. A host that is drained is not a destination, whatever its state in the
    ledger.
    """
    wanted = options or DrainOptions()
    check_sources(inputs, sources)
    placed = place_domains(inputs, sources, candidates, wanted)
    found, unplaced = placed.found, placed.list_unplaced()
    live = [describe_move(order, *one, placed.list_renamed(one[0])) for order, one in enumerate(placed.list_placed(is_live=True), 1)]
    predicted = predict_in_order(live, found, inputs, wanted, sources)
    moves = sorted((move for one in predicted.values() for move in one.moves), key=lambda move: move.order)
    cold = [describe_cold_move(*one, placed.list_renamed(one[0])) for one in placed.list_placed(is_live=False)]
    off = [skip_unplaced_definition(leaver, describe_refusals(placement)) for placement, leaver in unplaced if leaver.method == OFFLINE]
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
        unplaced=(*found.stuck, *(describe_unplaced(*one) for one in unplaced if one[1].method != OFFLINE)),
        skipped=(*found.skipped, *off),
        n_plus_one=_judge_n_plus_one(placed) if wanted.n_plus_one else None,
        predicted_seconds={source: one.seconds for source, one in predicted.items()},
        predicted_ranges={source: (one.low, one.high) for source, one in predicted.items()},
        cold_moves=tuple(cold),
        resource_maps=list_resource_maps(inputs, sources, candidates),
        reserve=plan_reserve(inputs, candidates, [(one.request, one.destination) for one in placed.running if one.destination], sources),
    ).seal()


def _judge_n_plus_one(placed: PlacedDomains) -> NPlusOne | None:
    if placed.survivors is None:
        return None
    assignment = {one.request.uuid: one.destination for one in placed.running if one.destination}
    return placed.survivors.judge_losses(_fleet_after(placed.fleet, placed.running), assignment)


def predict_in_order(
    moves: Sequence[PlannedMove], found: SortedDomains, inputs: DrainInputs, wanted: DrainOptions, sources: Sequence[str]
) -> dict[str, SourcePrediction]:
    """Return the moves of each source in the order in which they start, with their predictions."""
    of_source = {source: [move for move in moves if move.source == source] for source in sources}
    capacities = {source: find_capacity(source, {move.destination for move in own}, inputs, wanted) for source, own in of_source.items()}
    rates = {source: stream_rate(capacities[source], len(own), wanted.bandwidth_mib) for source, own in of_source.items()}
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
    leaving = frozenset(found.all_leavers) | {entry.uuid for entry in found.shutdowns}
    return Fleet({**states, **drained}, leaving)


def find_pinned_hosts(found: SortedDomains, fleet: Fleet, hosts: Collection[str]) -> dict[str, str]:
    """Return the destinations of domains that are already moving. A reservation of a move that has not begun counts while its host still passes."""
    pinned_hosts = {}
    for uuid, leaver in found.all_leavers.items():
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


def list_resource_maps(inputs: DrainInputs, sources: Sequence[str], candidates: Sequence[str]) -> dict[str, ResourceMaps]:
    """Return what the hosts that have resource maps call their resources."""
    return {host: maps for host in sorted({*sources, *candidates}) if (maps := inputs.resource_maps.get(host, NO_MAPS))}


def _fleet_after(fleet: Fleet, placements: Sequence[Placement]) -> Fleet:
    for placement in placements:
        if placement.destination and placement.destination in fleet.states:
            fleet = fleet.with_domain(placement.request, placement.destination)
    return fleet
