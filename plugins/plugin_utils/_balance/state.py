# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The fleet during the search for a balance: which guests are where, what hosts use, and which moves the filters permit.

The search counts a domain that it moves on its destination alone. L(assign_stages) then finds which moves have to wait until others have ended.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass

from .._drain.sorting import LeavingDomain
from .._scheduler.fleet import Fleet
from .._scheduler.guests import Guest
from .._scheduler.repair import AFFINITY, Unit, passes_filters
from .._scheduler.request import Request
from .._scheduler.verdicts import DEFAULT_FILTERS
from .candidates import Candidates
from .goals import Goal
from .load import GuestUse, HostUse
from .options import BalanceOptions
from .pressure import Vector
from .ranking import HostRanking

SOFT_AFFINITY, SOFT_ANTI_AFFINITY = "soft-affinity", "soft-anti-affinity"


@dataclass(frozen=True)
class GuestUnit:
    """Guests of one host that move together: one guest, or those of an affinity group.

    :arg amounts: what they use together.
    """

    guests: tuple[GuestUse, ...]
    amounts: Vector

    @property
    def uuid(self) -> str:
        """The key of the unit: the UUID of its first guest."""
        return self.guests[0].uuid


class UnitMove(t.NamedTuple):
    """The move of a unit between two hosts, by their numbers.

    :arg why: what it repairs; empty for one that pays for itself.
    """

    unit: GuestUnit
    leavers: tuple[LeavingDomain, ...]
    source: int
    destination: int
    why: str = ""


@dataclass(frozen=True)
class ChosenMove:
    """A domain that the search moves.

    :arg gain: by how much the move of its unit lowers the score; C(cost_seconds) what it costs.
    :arg why: what a move repairs; empty for one that pays for itself.
    :arg before: the shares of source and destination; C(after) likewise.
    :arg unit: the UUID of the first domain of its unit; C(together) are the names of the other domains.
    :arg stage: moves of one stage may run at the same time, in any order; those of the next one begin when they have ended. From 1.
    """

    leaver: LeavingDomain
    destination: str
    gain: float
    cost_seconds: float
    why: str
    before: tuple[Vector, Vector]
    after: tuple[Vector, Vector]
    unit: str
    together: tuple[str, ...] = ()
    stage: int = 1


def make_unit(guests: Iterable[GuestUse]) -> GuestUnit:
    """Return a unit of these guests of one host."""
    members = tuple(sorted(guests, key=lambda guest: guest.uuid))
    cpu, memory, io, vcpus = (sum(guest.amounts[number] for guest in members) for number in range(4))
    return GuestUnit(members, (cpu, memory, io, vcpus))


def _without_guests(unit: GuestUnit, gone: Collection[str]) -> GuestUnit | None:
    """Return a unit without guests that have moved alone, to repair their group; None if all of them have."""
    rest = [guest for guest in unit.guests if guest.uuid not in gone]
    return unit if len(rest) == len(unit.guests) else make_unit(rest) if rest else None


def share_of(amounts: Vector, capacity: Vector) -> Vector:
    """Return which share of a host these amounts are."""
    return amounts[0] / capacity[0], amounts[1] / capacity[1], amounts[2] / capacity[2], amounts[3] / capacity[3]


class BalanceState:
    """The fleet, changed by each chosen move. Hosts that take part have numbers.

    :arg uses: of the hosts that take part, in the order of their names.
    :arg fleet: all hosts that may have members of groups.
    """

    def __init__(self, uses: Sequence[HostUse], fleet: Fleet, goal: Goal, candidates: Candidates, options: BalanceOptions) -> None:
        self.uses = uses
        self.goal = goal
        self.candidates = candidates
        self.options = options
        self.fleet = fleet
        self.numbers = {use.name: number for number, use in enumerate(uses)}
        self.units = [_list_units(use, fleet.states[use.name].guests) for use in uses]
        self.ranking = HostRanking(goal, len(uses), options)
        self.chosen: list[ChosenMove] = []
        self.unit_moves: list[UnitMove] = []
        self.moved: set[str] = set()

    @property
    def moves_left(self) -> int:
        """How many more domains may move."""
        return self.options.max_moves - len(self.chosen)

    def find_leavers(self, unit: GuestUnit, source: int) -> tuple[LeavingDomain, ...] | None:
        """Return the domains of a unit; None if one of them stays, or has moved in this plan."""
        found = []
        for guest in unit.guests:
            leaver = None if guest.uuid in self.moved else self.candidates.find(guest.uuid, self.uses[source].name)
            if leaver is None:
                return None
            found.append(leaver)
        return tuple(found)

    def permits(self, leavers: Sequence[LeavingDomain], destination: int) -> bool:
        """Whether all filters pass all domains of a unit on that host, and no soft group gets worse."""
        host, requests = self.uses[destination].name, [leaver.request for leaver in leavers]
        return is_permitted(requests, self.fleet, host) and not any(self._worsens_soft_group(request, host) for request in requests)

    def list_places(self, leavers: Sequence[LeavingDomain]) -> list[int]:
        """Return all hosts that permit the unit now."""
        return [number for number in range(len(self.uses)) if self.permits(leavers, number)]

    def gain(self, unit: GuestUnit, source: int, destination: int) -> float:
        """Return by how much the move of the unit would lower the score."""
        return self.goal.gain(source, destination, *self.shares(unit, source, destination))

    def carry_out(self, move: UnitMove) -> None:
        """Move a unit."""
        unit, leavers, source, destination, why = move
        leaves, arrives = self.shares(unit, source, destination)
        gain = self.goal.gain(source, destination, leaves, arrives)
        cost = self.cost_seconds(move)
        before = self.goal.shares[source], self.goal.shares[destination]
        self.goal.move(source, destination, leaves, arrives)
        after = self.goal.shares[source], self.goal.shares[destination]
        host = self.uses[destination].name
        for leaver in leavers:
            together = tuple(other.request.name for other in leavers if other is not leaver)
            self.fleet = self.fleet.without_domain(leaver.request.uuid, self.uses[source].name).with_domain(leaver.request, host)
            self.moved.add(leaver.request.uuid)
            self.chosen.append(ChosenMove(leaver, host, gain, cost, why, before, after, unit.uuid, together))
        self.units[source] = [rest for other in self.units[source] if (rest := _without_guests(other, self.moved))]
        self.ranking.update((source, destination))
        self.unit_moves.append(move)

    def take_back(self, move: UnitMove) -> None:
        """Take back a move that was carried out. Others that needed the room which it made may not be possible any more."""
        unit, leavers, source, destination, _why = move
        leaves, arrives = self.shares(unit, source, destination)
        self.goal.move(destination, source, arrives, leaves)
        for leaver in leavers:
            fleet = self.fleet.without_domain(leaver.request.uuid, self.uses[destination].name)
            self.fleet = fleet.with_domain(leaver.request, self.uses[source].name)
            self.moved.discard(leaver.request.uuid)
        self.chosen = [one for one in self.chosen if one.unit != unit.uuid]
        self.unit_moves.remove(move)
        self.units[source].append(unit)
        self.ranking.update((source, destination))

    def loss(self, move: UnitMove) -> float:
        """Return by how much the score would rise without a move that was carried out."""
        leaves, arrives = self.shares(move.unit, move.source, move.destination)
        return -self.goal.gain(move.destination, move.source, arrives, leaves)

    def cost_seconds(self, move: UnitMove) -> float:
        """Return what the move of a unit costs."""
        return sum(self.candidates.cost(leaver).seconds for leaver in move.leavers)

    def why_left(self, source: int, uuid: str) -> str:
        """Return why a guest of a busy host stays there, according to the hosts that would be the best for it."""
        unit = next(unit for unit in self.units[source] if any(guest.uuid == uuid for guest in unit.guests))
        leavers = self.find_leavers(unit, source)
        if leavers is None:
            return self.candidates.reasons.get(uuid, "Another domain of its affinity group stays.")
        places = [host for host in self.ranking.destinations() if host != source and self.permits(leavers, host)]
        if not places:
            return "None of the least busy hosts can accept it."
        best = max(places, key=lambda host: (self.gain(unit, source, host), -host))
        if not self.goal.permits(source, best, *self.shares(unit, source, best)):
            return f"It would put {self.uses[best].name}, the best of the hosts that can accept it, under pressure."
        cost = sum(self.candidates.cost(leaver).seconds for leaver in leavers)
        return f"Its move to {self.uses[best].name} would gain {max(0.0, self.gain(unit, source, best)):.3f} and cost {cost:.0f} s."

    def shares(self, unit: GuestUnit, source: int, destination: int) -> tuple[Vector, Vector]:
        """Return the shares that a unit uses of source and destination."""
        return share_of(unit.amounts, self.uses[source].capacity), share_of(unit.amounts, self.uses[destination].capacity)

    def _worsens_soft_group(self, request: Request, host: str) -> bool:
        group = request.group
        if group is None or group.policy not in (SOFT_AFFINITY, SOFT_ANTI_AFFINITY):
            return False
        members = self.fleet.group_members(group.name)
        there = len(members.get(host, ()))
        others = len(members.get(request.source, ())) - (request.uuid in members.get(request.source, ()))
        return there < others if group.policy == SOFT_AFFINITY else there > others


def is_permitted(requests: Sequence[Request], fleet: Fleet, host: str) -> bool:
    """Whether the filters pass all of these domains of one host together on that host, while they are still on their own.

    For an affinity group they count as gone: otherwise none of them could leave before the others.
    """
    if len(requests) == 1 and not (requests[0].group and requests[0].group.policy == AFFINITY):
        return passes_filters(requests[0], fleet, host, DEFAULT_FILTERS)
    for request in requests:
        fleet = fleet.without_domain(request.uuid, request.source)
    return Unit(tuple(requests)).fleet_with_unit(fleet, host, DEFAULT_FILTERS) is not None


def _list_units(use: HostUse, guests: Mapping[str, Guest]) -> list[GuestUnit]:
    """Return the units of a host. Members of an affinity group that are on other hosts are no part of them."""
    shares: dict[tuple[str, str], list[GuestUse]] = {}
    for guest in use.guests:
        known = guests.get(guest.uuid)
        group = known.group if known else None
        shares.setdefault((AFFINITY, group.name) if group and group.policy == AFFINITY else ("", guest.uuid), []).append(guest)
    return [GuestUnit((share[0],), share[0].amounts) if len(share) == 1 else make_unit(share) for share in shares.values()]
