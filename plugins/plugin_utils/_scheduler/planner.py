# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A place for each of many domains at once: by priority, then size; every placement counts for the next, and others make room where one finds none."""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .check import Verdict, rank
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
    """Where a domain goes (None: nowhere), and what was said of each host when it was decided.

    :arg pinned: its way was decided before, and no host was judged.
    :arg together: names of the other domains of its affinity group that go with it, or stay with it.
    """

    request: Request
    destination: t.Optional[str]
    verdicts: list[Verdict] = field(default_factory=list)
    pinned: bool = False
    together: tuple[str, ...] = ()


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
    dealt = _dealt(board, units)
    way = dealt.way if len(dealt.way) == len(units) else repaired(board, dealt.way)
    if cost is not None:
        way = _cheapest(board, way, _Price(board, cost, ways))
    return [Placement(request, ways[request.uuid], pinned=True) for request in fixed] + _told(board, units, way, dealt)


def _with_pinned(fleet: Fleet, fixed: Iterable[Request], ways: Mapping[str, str]) -> Fleet:
    for request in fixed:
        if ways[request.uuid] in fleet.states:
            fleet = fleet.taking(request, ways[request.uuid])
    return fleet


@dataclass(frozen=True)
class _Dealt:
    """What came of taking the best host each time.

    :arg verdicts: of the first domain of each unit, by the unit.
    """

    way: Way = field(default_factory=dict)
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)


def _dealt(board: Board, units: Sequence[Unit]) -> _Dealt:
    """Return the way of each unit that finds a place when every one takes the best host that is left."""
    dealt = _Dealt()
    fleet = board.base
    for unit in units:
        dealt.verdicts[unit.uuid] = rank(unit.requests[0], fleet, board.hosts, board.filters)
        for verdict in sorted((v for v in dealt.verdicts[unit.uuid] if v.passed), key=lambda v: (-v.weight, v.host)):
            taken = unit.placed(fleet, verdict.host, board.filters)
            if taken:
                dealt.way[unit.uuid], fleet = verdict.host, taken
                break
    return dealt


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
            if at != host and unit.placed(fleet, at, board.filters):
                yield {**way, uuid: at}


def _told(board: Board, units: Sequence[Unit], way: Way, dealt: _Dealt) -> list[Placement]:
    """Return the placements in order, each host judged as it will be then. A unit whose host would refuse it then stays."""
    placements: list[Placement] = []
    fleet = board.base
    as_dealt = True
    for unit in units:
        host = way.get(unit.uuid)
        after = unit.placed(fleet, host, board.filters) if host else None
        known = dealt.verdicts[unit.uuid] if as_dealt else None
        placements += _of_unit(board, unit, fleet, host if after else None, known)
        as_dealt = as_dealt and dealt.way.get(unit.uuid) == host
        fleet = after or fleet
    return placements


def _of_unit(board: Board, unit: Unit, fleet: Fleet, host: t.Optional[str], known: t.Optional[list[Verdict]]) -> list[Placement]:
    """Return the placements of a unit's domains, one after the other.

    :arg known: the verdicts of the first of them, where they were found for this very fleet.
    """
    placements = []
    for request in unit.requests:
        verdicts = known or rank(request, fleet, board.hosts, board.filters)
        together = tuple(other.name for other in unit.requests if other is not request)
        placements.append(Placement(request, host, verdicts, together=together))
        fleet = fleet.taking(request, host) if host else fleet
        known = None
    return placements
