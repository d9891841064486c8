# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Making room for a domain that found no place, by moving others of the same plan that have a choice. Domains of other hosts are never moved."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .filters import Filter
from .fleet import Fleet
from .units import Unit

# How many times a unit may be tried on a host, in one repair and for each of its parts; a bound on work that is the same on every machine.
NODES = 60_000
CHAIN_NODES = 4_000
EXACT_NODES = 12_000
# How many units give way to one another in a row.
DEPTH = 3
# An exact search has a chance with few units only.
EXACT_UNITS = 40

Way = dict[str, str]


class _OutOfNodes(Exception):
    """The search has used what it may."""


@dataclass
class Board:
    """The search's view of a plan.

    :arg base: the fleet before any of the units has a place.
    :arg hosts: names of those that may be destinations.
    :arg nodes: how many tries are left.
    """

    base: Fleet
    units: Mapping[str, Unit]
    hosts: Sequence[str]
    filters: Sequence[Filter]
    nodes: int = NODES
    _places: dict[str, list[str]] = field(default_factory=dict)

    def placed(self, unit: Unit, host: str, fleet: Fleet) -> t.Optional[Fleet]:
        """Return the fleet with the unit there, None where it may not be there. Each call is one node."""
        self._count()
        return unit.placed(fleet, host, self.filters)

    def fits(self, unit: Unit, host: str, fleet: Fleet) -> bool:
        """Whether the unit may be there. Each call is one node."""
        self._count()
        return unit.fits(fleet, host, self.filters)

    def _count(self) -> None:
        self.nodes -= 1
        if self.nodes < 0:
            raise _OutOfNodes

    def places(self, unit: Unit) -> list[str]:
        """Return the hosts that could take the unit if no other of the plan were there."""
        if unit.uuid not in self._places:
            self._places[unit.uuid] = [host for host in self.hosts if unit.fits(self.base, host, self.filters)]
        return self._places[unit.uuid]

    def fleet(self, way: Way) -> Fleet:
        """Return the fleet with these units on their hosts."""
        fleet = self.base
        for uuid, host in way.items():
            for request in self.units[uuid].requests:
                fleet = fleet.taking(request, host)
        return fleet


def repaired(board: Board, way: Way) -> Way:
    """Return a way on which more units have a place than on the given one, as far as the search finds one. A unit that has a place keeps one.

    :arg way: unit to host, every one of them passing.
    """
    fleet = board.fleet(way)
    for unit in sorted((unit for uuid, unit in board.units.items() if uuid not in way), key=lambda unit: unit.rank):
        # In a fleet that is too full for hundreds of them, the rest would be tried with nothing left to try them with.
        if board.nodes <= 0:
            break
        better = _chained(board, way, fleet, unit) or _searched(board, way, unit)
        if better:
            way, fleet = better, board.fleet(better)
    return way


def _chained(board: Board, way: Way, fleet: Fleet, unit: Unit) -> t.Optional[Way]:
    depths = range(1, DEPTH + 1)
    return _within(board, CHAIN_NODES, lambda: next(filter(None, (_make_room(board, way, fleet, unit, depth, frozenset()) for depth in depths)), None))


def _searched(board: Board, way: Way, unit: Unit) -> t.Optional[Way]:
    wanted = [board.units[uuid] for uuid in way] + [unit]
    if len(wanted) > EXACT_UNITS:
        return None
    return _within(board, EXACT_NODES, lambda: Exact(board, wanted).solve())


def _within(board: Board, nodes: int, search: Callable[[], t.Optional[Way]]) -> t.Optional[Way]:
    """Run a part of the repair with its own share of the nodes; out of them it has found nothing."""
    share = min(nodes, board.nodes)
    rest, board.nodes = board.nodes - share, share
    try:
        return search()
    except _OutOfNodes:
        return None
    finally:
        board.nodes = rest + max(0, board.nodes)


def _make_room(board: Board, way: Way, fleet: Fleet, unit: Unit, depth: int, moved: frozenset[str]) -> t.Optional[Way]:
    """Return a way with the unit on it: on a host with room, else where one other unit can give way, which looks for a place in the same manner."""
    places = board.places(unit)
    for host in places:
        if board.fits(unit, host, fleet):
            return {**way, unit.uuid: host}
    if depth == 0:
        return None
    for host in places:
        for other in _small_first(board, way, host, moved):
            without = {uuid: at for uuid, at in way.items() if uuid != other.uuid}
            freed = board.placed(unit, host, _without(fleet, other, host))
            found = freed and _make_room(board, {**without, unit.uuid: host}, freed, other, depth - 1, moved | {unit.uuid, other.uuid})
            if found:
                return found
    return None


def _small_first(board: Board, way: Way, host: str, moved: frozenset[str]) -> Iterable[Unit]:
    there = [board.units[uuid] for uuid, at in way.items() if at == host and uuid not in moved]
    return sorted(there, key=lambda unit: (unit.memory_mib, unit.uuid))


def _without(fleet: Fleet, unit: Unit, host: str) -> Fleet:
    for request in unit.requests:
        fleet = fleet.without(request.uuid, host)
    return fleet


class Exact:
    """A full search for a place for each of a few units: the one with the fewest places first, on the fullest host first.

    :arg wanted: the units; all of them or none find a place.
    """

    def __init__(self, board: Board, wanted: Sequence[Unit]) -> None:
        self.board = board
        self.wanted = {unit.uuid: unit for unit in wanted}
        kinds = sorted({unit.signature() for unit in wanted})
        self.kind = {unit.uuid: kinds.index(unit.signature()) for unit in wanted}
        self.failed: set[tuple[tuple[str, tuple[int, ...]], ...]] = set()

    def solve(self) -> t.Optional[Way]:
        """Return the way; None where there is none. Ends without an answer when the board's nodes are used."""
        return self._solve(self.board.base, {uuid: list(self.board.places(unit)) for uuid, unit in self.wanted.items()}, {})

    def _solve(self, fleet: Fleet, places: Mapping[str, Sequence[str]], way: Way) -> t.Optional[Way]:
        if not places:
            return way
        if not all(places.values()) or self._seen(way) or not self._has_room(fleet, places):
            return None
        unit = self.wanted[min(places, key=lambda uuid: (len(places[uuid]), -self.wanted[uuid].memory_mib, uuid))]
        for host in sorted(places[unit.uuid], key=lambda host: (fleet.states[host].free_mib(), host)):
            taken = self.board.placed(unit, host, fleet)
            found = taken and self._solve(taken, self._left(taken, host, places, unit), {**way, unit.uuid: host})
            if found:
                return found
        self.failed.add(self._key(way))
        return None

    def _left(self, fleet: Fleet, host: str, places: Mapping[str, Sequence[str]], unit: Unit) -> dict[str, list[str]]:
        """Return the places of the other units now that this host has got fuller."""
        rest = {uuid: hosts for uuid, hosts in places.items() if uuid != unit.uuid}
        return {uuid: [at for at in hosts if at != host or self.board.fits(self.wanted[uuid], host, fleet)] for uuid, hosts in rest.items()}

    def _has_room(self, fleet: Fleet, places: Mapping[str, Sequence[str]]) -> bool:
        hosts = {host for at in places.values() for host in at}
        return sum(self.wanted[uuid].memory_mib for uuid in places) <= sum(max(0, fleet.states[host].free_mib()) for host in hosts)

    def _seen(self, way: Way) -> bool:
        return self._key(way) in self.failed

    def _key(self, way: Way) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return what is the same where units of one kind have changed places."""
        shares: dict[str, list[int]] = {}
        for uuid, host in way.items():
            shares.setdefault(host, []).append(self.kind[uuid])
        return tuple(sorted((host, tuple(sorted(kinds))) for host, kinds in shares.items()))
