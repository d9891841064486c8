# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A place for each of many domains at once: by priority, then size; every placement counts for the next, and others make room where one finds none."""

from __future__ import annotations

import functools
import itertools
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .check import Verdict, rank
from .choice import most_wanted
from .course import Course, Step
from .filters import DEFAULT, Filter
from .fleet import Fleet
from .repair import Board, Way, repaired
from .request import Request
from .units import Unit, units_of

# How many other plans are tried to please C(cost), for a few hosts; fewer for more of them, as each costs more.
ALTERNATIVES = 60
_HOSTS_TRIED = 2000

# What a plan costs, given the fleet with it carried out and each domain's host; 0 is nothing to complain of.
Cost = Callable[[Fleet, Mapping[str, str]], float]


@dataclass(frozen=True)
class Placement:
    """Where a domain goes (None: nowhere), and what is to be said of each host at its turn.

    :arg judged: gives C(verdicts).
    :arg pinned: its way was decided before, and no host was judged.
    :arg together: names of the other domains of its affinity group that go with it, or stay with it.
    """

    request: Request
    destination: t.Optional[str]
    judged: Callable[[], list[Verdict]] = field(default=list, compare=False, repr=False)
    pinned: bool = False
    together: tuple[str, ...] = ()

    @functools.cached_property
    def verdicts(self) -> list[Verdict]:
        """What the filters say of each host at its turn, all reasons named: found when it is asked for, best in the order of the plan."""
        return self.judged()


def plan(
    requests: Iterable[Request],
    fleet: Fleet,
    pinned: t.Optional[Mapping[str, str]] = None,
    filters: Sequence[Filter] = DEFAULT,
    cost: t.Optional[Cost] = None,
    hosts: t.Optional[Iterable[str]] = None,
) -> list[Placement]:
    """Return a placement for each request, in the order in which they are to start. The same input gives the same plan, in whatever order it comes.

    :arg fleet: every host that may be a destination or has members of groups; C(leaving) has the domains that will have left.
    :arg pinned: domain UUID to host name, for domains whose way is decided already: they are placed first and not judged.
    :arg cost: tells how bad a full plan is beside its filters; others are tried while it is more than 0.
    :arg hosts: names of those that are judged; by default all.
    """
    ways = pinned or {}
    wanted = list(requests)
    fixed = sorted((request for request in wanted if request.uuid in ways), key=lambda request: Unit((request,)).rank)
    units = units_of(request for request in wanted if request.uuid not in ways)
    board = Board(_with_pinned(fleet, fixed, ways), {unit.uuid: unit for unit in units}, sorted(fleet.states if hosts is None else hosts), filters)
    way = _dealt(board, units)
    if len(way) < len(units):
        way = repaired(board, way)
    if cost is not None:
        way = _cheapest(board, way, _Price(board, cost, ways))
    return [Placement(request, ways[request.uuid], pinned=True) for request in fixed] + _told(board, units, way)


def _with_pinned(fleet: Fleet, fixed: Iterable[Request], ways: Mapping[str, str]) -> Fleet:
    for request in fixed:
        if ways[request.uuid] in fleet.states:
            fleet = fleet.taking(request, ways[request.uuid])
    return fleet


def _dealt(board: Board, units: Sequence[Unit]) -> Way:
    """Return the way of each unit that finds a place when every one takes the best host that is left."""
    way: Way = {}
    fleet = board.base
    for unit in units:
        for host in most_wanted(unit.requests[0], fleet, board.hosts, board.filters):
            taken = unit.placed(fleet, host, board.filters)
            if taken:
                way[unit.uuid], fleet = host, taken
                break
    return way


@dataclass(frozen=True)
class _Price:
    """What a way costs."""

    board: Board
    cost: Cost
    pinned: Mapping[str, str]

    def of(self, way: Way) -> float:
        hosts = {request.uuid: host for uuid, host in way.items() for request in self.board.units[uuid].requests}
        return self.cost(self.board.fleet(way), {**self.pinned, **hosts})


def _cheapest(board: Board, way: Way, price: _Price) -> Way:
    """Return the first of some plans that costs nothing, else the cheapest: the given one, and those that differ by the host of one unit and then another."""
    least = price.of(way)
    tries = min(ALTERNATIVES, 1 + _HOSTS_TRIED // (1 + len(board.hosts)))
    better = True
    while least > 0 and tries > 0 and better:
        better = False
        for other in itertools.islice(_neighbours(board, way), tries):
            tries -= 1
            costs = price.of(other)
            if costs < least:
                way, least, better = other, costs, True
                break
    return way


def _neighbours(board: Board, way: Way) -> Iterable[Way]:
    for uuid, host in way.items():
        unit = board.units[uuid]
        rest = {other: at for other, at in way.items() if other != uuid}
        fleet = board.fleet(rest)
        for at in board.places(unit):
            if at != host and unit.fits(fleet, at, board.filters):
                yield {**way, uuid: at}


def _told(board: Board, units: Sequence[Unit], way: Way) -> list[Placement]:
    """Return the placements in order. A unit whose host would refuse it at its turn stays."""
    steps: list[Step] = []
    placements: list[Placement] = []
    course = Course(board.base, steps)
    fleet = board.base
    for unit in units:
        host = way.get(unit.uuid)
        after = unit.placed(fleet, host, board.filters) if host else None
        for request in unit.requests:
            together = tuple(other.name for other in unit.requests if other is not request)
            judged = functools.partial(_judged, board, course, request, len(steps))
            steps.append((request, host if after else None))
            placements.append(Placement(request, host if after else None, judged, together=together))
        fleet = after or fleet
    return placements


def _judged(board: Board, course: Course, request: Request, number: int) -> list[Verdict]:
    return rank(request, course.before(number), board.hosts, board.filters)
