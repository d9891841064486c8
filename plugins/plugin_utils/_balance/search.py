# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The search for moves that pay for themselves: always the move whose gain exceeds its cost by most, until the next one costs more than it brings."""

from __future__ import annotations

import heapq
import typing as t
from collections.abc import Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass

from .._drain.sorting import LeavingDomain
from .state import BalanceState, GuestUnit, UnitMove, share_of

# After so many refusals of a unit, all hosts are judged for it once.
_MOST_REFUSALS: t.Final = 24
# For so many hosts it is tried whether a move to a host that has room again is better.
_OFFERED: t.Final = 50

_TINY: t.Final = 1e-9

NO_HOST: t.Final = "No other host can accept it."


@dataclass(frozen=True)
class Proposal:
    """The best move away from a host.

    :arg net_seconds: its gain over the horizon, less its cost.
    """

    unit: GuestUnit
    source: int
    destination: int
    gain: float
    net_seconds: float

    def is_worth(self, min_gain: float) -> bool:
        """Whether the move is to be carried out."""
        return self.gain >= min_gain and self.net_seconds > 0

    def rank(self, min_gain: float) -> tuple[bool, float, int, str, int]:
        """The sort key of proposals, the best first; the same for the same facts."""
        return not self.is_worth(min_gain), -self.net_seconds, self.source, self.unit.uuid, self.destination


@dataclass
class _Refusals:
    """The hosts that refused a unit, and those that permit it once all were judged."""

    hosts: set[int] = field(default_factory=set)
    places: list[int] | None = None


class BalanceSearch:
    """Chooses moves one after the other. C(next_best) is the proposal at which the search ended; None if there was none.

    C(compared) is how many possible moves were compared.
    """

    def __init__(self, state: BalanceState) -> None:
        self.state = state
        self._min_gain = state.options.min_gain
        self._horizon = state.options.horizon_seconds
        self._closed: set[str] = set()
        self._refusals: dict[str, _Refusals] = {}
        self._heap: list[tuple[tuple[bool, float, int, str, int], int, Proposal]] = []
        self.next_best: Proposal | None = None
        self.compared = 0

    def run(self, min_gain: float) -> None:
        """Choose moves until none gains as much and pays for itself, or the plan has as many as it may have."""
        self._min_gain = min_gain
        while self.state.moves_left > 0 and not self.state.goal.is_reached():
            before = len(self.state.chosen)
            self._choose_moves()
            if len(self.state.chosen) == before:
                return
            # A host without a possible move is asked again: others have made room.

    def _choose_moves(self) -> None:
        """Choose moves until every host has been without one."""
        self._heap, self.next_best = [], None
        for source in self.state.goal.source_order():
            self._push(self.find_best(source))
        while self._heap and self.state.moves_left > 0 and not self.state.goal.is_reached():
            _rank, step, proposal = heapq.heappop(self._heap)
            if step < len(self.state.chosen):
                # Another move has changed what this one brings.
                self._push(self.find_best(proposal.source))
            elif not proposal.is_worth(self._min_gain):
                self.next_best = proposal
                return
            elif self.carry_out(proposal):
                self._offer(proposal.source)
            else:
                self._push(self.find_best(proposal.source))

    def _push(self, proposal: Proposal | None) -> None:
        if proposal is not None:
            heapq.heappush(self._heap, (proposal.rank(self._min_gain), len(self.state.chosen), proposal))

    def _offer(self, host: int) -> None:
        """Propose moves to a host that a domain has left, which was too full for them before, away from the hosts with the best proposals; and from itself."""
        if host in self.state.ranking.destinations():
            for source in dict.fromkeys(proposal.source for _rank, _step, proposal in heapq.nsmallest(_OFFERED, self._heap)):
                self._push(self.find_best(source, [host]))
        if self.state.goal.is_source(host):
            self._push(self.find_best(host))

    def find_best(self, source: int, destinations: Sequence[int] | None = None) -> Proposal | None:
        """Return the best move of a unit of the host, as far as it is known without the filters; None if there is none that would lower the score.

        :arg destinations: the hosts that are tried; by default the least busy ones.
        """
        state, goal, best, best_key = self.state, self.state.goal, None, (True, 0.0)
        capacity = state.uses[source].capacity
        for unit in state.units[source]:
            if unit.uuid in self._closed:
                continue
            leaves, cost = share_of(unit.amounts, capacity), self._least_cost(unit, source)
            refusals = self._refusals.get(unit.uuid)
            tried = self._list_destinations(refusals) if destinations is None else destinations
            self.compared += len(tried)
            for destination in tried:
                if destination == source or (refusals and destination in refusals.hosts):
                    continue
                arrives = share_of(unit.amounts, state.uses[destination].capacity)
                gain = goal.gain(source, destination, leaves, arrives)
                if gain <= 0.0:
                    continue
                key = gain < self._min_gain or gain * self._horizon <= cost, cost - gain * self._horizon
                if (best is None or key < best_key) and goal.permits(source, destination, leaves, arrives):
                    best, best_key = Proposal(unit, source, destination, gain, -key[1]), key
        return best

    def _list_destinations(self, refusals: _Refusals | None) -> Sequence[int]:
        return self.state.ranking.destinations() if refusals is None or refusals.places is None else refusals.places

    def _least_cost(self, unit: GuestUnit, source: int) -> float:
        name = self.state.uses[source].name
        return sum(self.state.candidates.least_cost(guest, name) for guest in unit.guests)

    def carry_out(self, proposal: Proposal) -> bool:
        """Carry out the move of a proposal. False if it is not permitted, or costs more than was known: the search then knows it."""
        state, unit = self.state, proposal.unit
        leavers = state.find_leavers(unit, proposal.source)
        if leavers is None or len(leavers) > state.moves_left:
            self._closed.add(unit.uuid)
            return False
        net = proposal.gain * self._horizon - sum(state.candidates.cost(leaver).seconds for leaver in leavers)
        if net < proposal.net_seconds - _TINY:
            return False
        if not state.permits(leavers, proposal.destination):
            self._refuse(proposal, leavers)
            return False
        state.carry_out(UnitMove(unit, leavers, proposal.source, proposal.destination))
        self._reopen(proposal.source)
        return True

    def _reopen(self, host: int) -> None:
        """Ask a host again that refused units: a domain has left it."""
        for refusals in self._refusals.values():
            refusals.hosts.discard(host)
            if refusals.places is not None and host not in refusals.places:
                refusals.places.append(host)

    def _refuse(self, proposal: Proposal, leavers: tuple[LeavingDomain, ...]) -> None:
        """Remember a host that refused a unit. If all that were tried have refused it, the others are judged, too."""
        unit = proposal.unit
        refusals = self._refusals.setdefault(unit.uuid, _Refusals())
        refusals.hosts.add(proposal.destination)
        tried = set(self.state.ranking.destinations()) - {proposal.source}
        if refusals.places is None and (len(refusals.hosts) >= _MOST_REFUSALS or tried <= refusals.hosts):
            refusals.places = self.state.list_places(leavers)
            if not refusals.places:
                self._closed.add(unit.uuid)
                for guest in unit.guests:
                    self.state.candidates.leave(guest.uuid, NO_HOST)
