# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Units of domains that are placed together, and the repair of a plan.

The search moves units of the plan so that one without a host finds one. Domains of other hosts are never moved.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode

from .filters.base import Filter, filters_for_host, is_relevant
from .fleet import Fleet
from .request import Request

AFFINITY = "affinity"


@dataclass(frozen=True)
class Unit:
    """Domains that move to one host together, or stay.

    :arg requests: by priority, then size, then name.
    """

    requests: tuple[Request, ...]

    @property
    def uuid(self) -> str:
        """The key of the unit: the UUID of its first domain."""
        return self.requests[0].uuid

    @property
    def memory_mib(self) -> int:
        """The memory that all domains need together, in MiB."""
        return sum(request.memory_mib for request in self.requests)

    @property
    def least_mib(self) -> int:
        """How much of it uses memory of a host beside huge pages, whatever the host, in MiB."""
        return sum(max(0, request.memory_mib - request.page_mib) for request in self.requests)

    @property
    def rank(self) -> tuple[int, int, str, str]:
        """The sort key of the unit in a plan: by priority, then size, then name."""
        first = self.requests[0]
        return (-first.priority, -self.memory_mib, first.name, first.uuid)

    def signature(self) -> str:
        """Return a text that is the same for units with the same requirements, whatever their names."""
        return json.dumps([[encode(request.needs), request.starts, request.is_cold] for request in self.requests], sort_keys=True, default=str)

    def can_fit(self, fleet: Fleet, host: str, filters: Sequence[Filter]) -> bool:
        """Whether L(fleet_with_unit) would return a fleet; most units are single domains, for which no fleet has to be built."""
        if len(self.requests) == 1:
            return passes_filters(self.requests[0], fleet, host, filters)
        return self.fleet_with_unit(fleet, host, filters) is not None

    def fleet_with_unit(self, fleet: Fleet, host: str, filters: Sequence[Filter]) -> t.Optional[Fleet]:
        """Return the fleet with the unit on that host; None if a filter refuses one of its domains."""
        for request in self.requests:
            if not passes_filters(request, fleet, host, filters):
                return None
            fleet = fleet.with_domain(request, host)
        return fleet


def build_units(requests: Iterable[Request]) -> list[Unit]:
    """Return the units of these domains in the order of a plan; the same for any order of the input."""
    shares: dict[tuple[str, str], list[Request]] = {}
    for request in requests:
        shares.setdefault(unit_key(request), []).append(request)
    units = [Unit(tuple(sorted(share, key=lambda request: Unit((request,)).rank))) for share in shares.values()]
    return sorted(units, key=lambda unit: unit.rank)


def passes_filters(request: Request, fleet: Fleet, host: str, filters: Sequence[Filter]) -> bool:
    """Whether every filter passes the domain on that host; ends at the first filter that does not."""
    state = fleet.states[host]
    wanted = fleet.request_at(request, state)
    applicable = (rule for rule in filters_for_host(filters, state) if is_relevant(rule, wanted))
    return all(rule.host_passes(wanted, state, fleet) for rule in applicable)


def unit_key(request: Request) -> tuple[str, str]:
    """Return a key that the domains of one unit have in common."""
    group = request.group
    return (AFFINITY, group.name) if group and group.policy == AFFINITY else ("", request.uuid)


# How many times a unit may be tried on a host, in one repair and for each of its parts; a bound on work that is the same on every machine.
NODES = 60_000
CHAIN_NODES = 4_000
EXACT_NODES = 12_000
# The maximum length of a chain of units that are moved for one another.
DEPTH = 3
# An exact search is feasible for few units only.
EXACT_UNITS = 40

Assignment = dict[str, str]


class OutOfNodesError(Exception):
    """The search has used up its budget."""


@dataclass
class Board:
    """The search's view of a plan.

    :arg base: the fleet before any of the units is placed.
    :arg hosts: names of those that may be destinations.
    :arg nodes: the remaining number of tries.
    """

    base: Fleet
    units: Mapping[str, Unit]
    hosts: Sequence[str]
    filters: Sequence[Filter]
    nodes: int = NODES
    _places: dict[str, list[str]] = field(default_factory=dict)

    def fleet_with_unit(self, unit: Unit, host: str, fleet: Fleet) -> t.Optional[Fleet]:
        """Return the fleet with the unit on that host; None if it does not fit. Each call is one node."""
        self._count_node()
        return unit.fleet_with_unit(fleet, host, self.filters)

    def can_fit(self, unit: Unit, host: str, fleet: Fleet) -> bool:
        """Whether the unit fits on that host. Each call is one node."""
        self._count_node()
        return unit.can_fit(fleet, host, self.filters)

    def _count_node(self) -> None:
        self.nodes -= 1
        if self.nodes < 0:
            raise OutOfNodesError

    def places(self, unit: Unit) -> list[str]:
        """Return the hosts that could accept the unit if they had no other unit of the plan."""
        if unit.uuid not in self._places:
            self._places[unit.uuid] = [host for host in self.hosts if unit.can_fit(self.base, host, self.filters)]
        return self._places[unit.uuid]

    def fleet(self, assignment: Assignment) -> Fleet:
        """Return the fleet with these units on their hosts."""
        fleet = self.base
        for uuid, host in assignment.items():
            for request in self.units[uuid].requests:
                fleet = fleet.with_domain(request, host)
        return fleet


def assign_first_fit(board: Board, units: Sequence[Unit]) -> Assignment:
    """Return for each unit, in this order, the first of the hosts that it fits on, if any. No node is counted."""
    assignment: Assignment = {}
    fleet = board.base
    for unit in units:
        for host in board.hosts:
            taken = unit.fleet_with_unit(fleet, host, board.filters)
            if taken:
                assignment[unit.uuid], fleet = host, taken
                break
    return assignment


def repair_assignment(board: Board, assignment: Assignment) -> Assignment:
    """Return an assignment that places more units than the given one, if the search finds one. A placed unit stays placed.

    :arg assignment: unit to host, all of them passing.
    """
    fleet = board.fleet(assignment)
    for unit in sorted((unit for uuid, unit in board.units.items() if uuid not in assignment), key=lambda unit: unit.rank):
        # If the fleet is too full for hundreds of units, the remaining budget would not suffice for the rest.
        if board.nodes <= 0:
            break
        better = _repair_by_chain(board, assignment, fleet, unit) or _repair_by_search(board, assignment, unit)
        if better:
            assignment, fleet = better, board.fleet(better)
    return assignment


def _repair_by_chain(board: Board, assignment: Assignment, fleet: Fleet, unit: Unit) -> t.Optional[Assignment]:
    depths = range(1, DEPTH + 1)
    return _search_within(
        board, CHAIN_NODES, lambda: next(filter(None, (_make_room(board, assignment, fleet, unit, depth, frozenset()) for depth in depths)), None)
    )


def _repair_by_search(board: Board, assignment: Assignment, unit: Unit) -> t.Optional[Assignment]:
    wanted = [board.units[uuid] for uuid in assignment] + [unit]
    if len(wanted) > EXACT_UNITS:
        return None
    return _search_within(board, EXACT_NODES, lambda: ExactSearch(board, wanted).find_assignment())


def _search_within(board: Board, nodes: int, search: Callable[[], t.Optional[Assignment]]) -> t.Optional[Assignment]:
    """Run a part of the repair with its own share of the nodes; without a result when they are used up."""
    share = min(nodes, board.nodes)
    rest, board.nodes = board.nodes - share, share
    try:
        return search()
    except OutOfNodesError:
        return None
    finally:
        board.nodes = rest + max(0, board.nodes)


def _make_room(board: Board, assignment: Assignment, fleet: Fleet, unit: Unit, depth: int, moved: frozenset[str]) -> t.Optional[Assignment]:
    """Return an assignment with the unit: on a host with enough capacity, or on one where another unit can be moved away in the same manner."""
    places = board.places(unit)
    for host in places:
        if board.can_fit(unit, host, fleet):
            return {**assignment, unit.uuid: host}
    if depth == 0:
        return None
    for host in places:
        for other in _small_first(board, assignment, host, moved):
            without = {uuid: at for uuid, at in assignment.items() if uuid != other.uuid}
            freed = board.fleet_with_unit(unit, host, _without_unit(fleet, other, host))
            found = freed and _make_room(board, {**without, unit.uuid: host}, freed, other, depth - 1, moved | {unit.uuid, other.uuid})
            if found:
                return found
    return None


def _small_first(board: Board, assignment: Assignment, host: str, moved: frozenset[str]) -> Iterable[Unit]:
    there = [board.units[uuid] for uuid, at in assignment.items() if at == host and uuid not in moved]
    return sorted(there, key=lambda unit: (unit.memory_mib, unit.uuid))


def _without_unit(fleet: Fleet, unit: Unit, host: str) -> Fleet:
    for request in unit.requests:
        fleet = fleet.without_domain(request.uuid, host)
    return fleet


class ExactSearch:
    """A complete search for hosts for a few units: the unit with the fewest possible hosts first, and for each unit the fullest host first.

    :arg wanted: the units; all or none of them are placed.
    :arg kind_of: a text that is the same for units that every host treats alike.
    """

    def __init__(self, board: Board, wanted: Sequence[Unit], kind_of: Callable[[Unit], str] = Unit.signature) -> None:
        self.board = board
        self.wanted = {unit.uuid: unit for unit in wanted}
        texts = {unit.uuid: kind_of(unit) for unit in wanted}
        kinds = sorted(set(texts.values()))
        self.kind = {uuid: kinds.index(text) for uuid, text in texts.items()}
        self.failed: set[tuple[tuple[str, tuple[int, ...]], ...]] = set()

    def find_assignment(self) -> t.Optional[Assignment]:
        """Return the assignment; None if there is none. Ends without an answer when the board's nodes are used up."""
        return self._assign_rest(self.board.base, {uuid: list(self.board.places(unit)) for uuid, unit in self.wanted.items()}, {})

    def _assign_rest(self, fleet: Fleet, places: Mapping[str, Sequence[str]], assignment: Assignment) -> t.Optional[Assignment]:
        if not places:
            return assignment
        if not all(places.values()) or self._has_failed(assignment) or not self._has_room(fleet, places):
            return None
        unit = self.wanted[min(places, key=lambda uuid: (len(places[uuid]), -self.wanted[uuid].memory_mib, uuid))]
        for host in sorted(places[unit.uuid], key=lambda host: (fleet.states[host].free_mib(), host)):
            taken = self.board.fleet_with_unit(unit, host, fleet)
            found = taken and self._assign_rest(taken, self._remaining_hosts(taken, host, places, unit), {**assignment, unit.uuid: host})
            if found:
                return found
        self.failed.add(self._assignment_key(assignment))
        return None

    def _remaining_hosts(self, fleet: Fleet, host: str, places: Mapping[str, Sequence[str]], unit: Unit) -> dict[str, list[str]]:
        """Return the remaining hosts of the other units after this host was filled."""
        rest = {uuid: hosts for uuid, hosts in places.items() if uuid != unit.uuid}
        return {uuid: [at for at in hosts if at != host or self.board.can_fit(self.wanted[uuid], host, fleet)] for uuid, hosts in rest.items()}

    def _has_room(self, fleet: Fleet, places: Mapping[str, Sequence[str]]) -> bool:
        hosts = {host for at in places.values() for host in at}
        return sum(self.wanted[uuid].least_mib for uuid in places) <= sum(max(0, fleet.states[host].free_mib()) for host in hosts)

    def _has_failed(self, assignment: Assignment) -> bool:
        return self._assignment_key(assignment) in self.failed

    def _assignment_key(self, assignment: Assignment) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return a key that is the same for assignments in which only equal units are exchanged."""
        shares: dict[str, list[int]] = {}
        for uuid, host in assignment.items():
            shares.setdefault(host, []).append(self.kind[uuid])
        return tuple(sorted((host, tuple(sorted(kinds))) for host, kinds in shares.items()))
