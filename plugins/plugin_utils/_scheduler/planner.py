# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Places many domains at once, by priority and then by size."""

from __future__ import annotations

import functools
import itertools
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass

from .._ledger.documents import pause_collector
from .filters.base import Filter
from .fleet import Fleet, PlanReplay, Step
from .repair import Assignment, Board, Unit, build_units, repair_assignment
from .request import Request
from .verdicts import DEFAULT_FILTERS, Verdict, hosts_by_weight, rank_hosts

# How many other plans are tried to reduce C(cost), for a few hosts; fewer for more hosts, because each takes longer.
ALTERNATIVES = 60
_HOSTS_TRIED = 2000

# The cost of a plan, given the resulting fleet and each domain's host; 0 is ideal.
Cost = Callable[[Fleet, Mapping[str, str]], float]


@dataclass(frozen=True)
class Placement:
    """The destination of a domain (None: none), and the verdict on each host at the time of its step in the plan.

    :arg judged: returns C(verdicts).
    :arg pinned: its destination was decided before, and no host was judged.
    :arg together: names of the other domains of its affinity group that go with it, or stay with it.
    """

    request: Request
    destination: t.Optional[str]
    judged: Callable[[], list[Verdict]] = field(default=list, compare=False, repr=False)
    pinned: bool = False
    together: tuple[str, ...] = ()

    @functools.cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict on each host at the time of this step, with all reasons. Computed on demand, most efficiently in the order of the plan."""
        with pause_collector():
            return self.judged()


@pause_collector()
def plan_placements(
    requests: Iterable[Request],
    fleet: Fleet,
    pinned: t.Optional[Mapping[str, str]] = None,
    filters: Sequence[Filter] = DEFAULT_FILTERS,
    cost: t.Optional[Cost] = None,
    hosts: t.Optional[Iterable[str]] = None,
) -> list[Placement]:
    """Return a placement for each request, in the order in which they are to start. The same input gives the same plan, in any order.

    :arg fleet: every host that may be a destination or has members of groups; C(leaving) has the domains that will have left.
    :arg pinned: domain UUID to host name, for domains whose destination is already decided: they are placed first and not judged.
    :arg cost: the cost of a complete plan in addition to its filters; other plans are tried while it is above 0.
    :arg hosts: names of those that are judged; by default all.
    """
    pinned_hosts = pinned or {}
    wanted = list(requests)
    fixed = sorted((request for request in wanted if request.uuid in pinned_hosts), key=lambda request: Unit((request,)).rank)
    units = build_units(request for request in wanted if request.uuid not in pinned_hosts)
    board = Board(_with_pinned(fleet, fixed, pinned_hosts), {unit.uuid: unit for unit in units}, sorted(fleet.states if hosts is None else hosts), filters)
    assignment = _assign_greedily(board, units)
    if len(assignment) < len(units):
        assignment = repair_assignment(board, assignment)
    if cost is not None:
        assignment = _find_cheapest(board, assignment, _PlanCost(board, cost, pinned_hosts))
    return [Placement(request, pinned_hosts[request.uuid], pinned=True) for request in fixed] + _make_placements(board, units, assignment)


def _with_pinned(fleet: Fleet, fixed: Iterable[Request], pinned_hosts: Mapping[str, str]) -> Fleet:
    for request in fixed:
        if pinned_hosts[request.uuid] in fleet.states:
            fleet = fleet.with_domain(request, pinned_hosts[request.uuid])
    return fleet


def _assign_greedily(board: Board, units: Sequence[Unit]) -> Assignment:
    """Return the host of each unit that can be placed if every unit takes the best remaining host."""
    assignment: Assignment = {}
    fleet = board.base
    for unit in units:
        for host in hosts_by_weight(unit.requests[0], fleet, board.hosts, board.filters):
            taken = unit.fleet_with_unit(fleet, host, board.filters)
            if taken:
                assignment[unit.uuid], fleet = host, taken
                break
    return assignment


@dataclass(frozen=True)
class _PlanCost:
    """The cost of an assignment."""

    board: Board
    cost: Cost
    pinned: Mapping[str, str]

    def of(self, assignment: Assignment) -> float:
        hosts = {request.uuid: host for uuid, host in assignment.items() for request in self.board.units[uuid].requests}
        return self.cost(self.board.fleet(assignment), {**self.pinned, **hosts})


def _find_cheapest(board: Board, assignment: Assignment, price: _PlanCost) -> Assignment:
    """Return the first plan with cost 0, or else the cheapest, among the given one and those that differ in the hosts of single units."""
    least = price.of(assignment)
    tries = min(ALTERNATIVES, 1 + _HOSTS_TRIED // (1 + len(board.hosts)))
    better = True
    while least > 0 and tries > 0 and better:
        better = False
        for other in itertools.islice(_neighbour_assignments(board, assignment), tries):
            tries -= 1
            costs = price.of(other)
            if costs < least:
                assignment, least, better = other, costs, True
                break
    return assignment


def _neighbour_assignments(board: Board, assignment: Assignment) -> Iterable[Assignment]:
    for uuid, host in assignment.items():
        unit = board.units[uuid]
        rest = {other: at for other, at in assignment.items() if other != uuid}
        fleet = board.fleet(rest)
        for at in board.places(unit):
            if at != host and unit.can_fit(fleet, at, board.filters):
                yield {**assignment, uuid: at}


def _make_placements(board: Board, units: Sequence[Unit], assignment: Assignment) -> list[Placement]:
    """Return the placements in order. A unit whose host would refuse it at the time of its step stays."""
    steps: list[Step] = []
    placements: list[Placement] = []
    replay = PlanReplay(board.base, steps)
    fleet = board.base
    for unit in units:
        host = assignment.get(unit.uuid)
        after = unit.fleet_with_unit(fleet, host, board.filters) if host else None
        for request in unit.requests:
            together = tuple(other.name for other in unit.requests if other is not request)
            judged = functools.partial(_rank_at_step, board, replay, request, len(steps))
            steps.append((request, host if after else None))
            placements.append(Placement(request, host if after else None, judged, together=together))
        fleet = after or fleet
    return placements


def _rank_at_step(board: Board, replay: PlanReplay, request: Request, number: int) -> list[Verdict]:
    return rank_hosts(request, replay.fleet_before(number), board.hosts, board.filters)
