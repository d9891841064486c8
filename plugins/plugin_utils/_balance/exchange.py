# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Exchanges chosen moves for better ones: the first moves of a search were chosen before it was known which others would follow.

One move, or two that share a host, are taken back, and as many are searched anew. In a full fleet, two moves are often only possible together.
"""

from __future__ import annotations

import typing as t
from collections.abc import Sequence

from .search import BalanceSearch
from .state import UnitMove

# The search ends after so many possible moves were compared, which bounds the time for any fleet.
_MOST_COMPARED: t.Final = 500_000
# From so many hosts, those that should be relieved first, another domain may take the place of one that moved.
_MOST_SOURCES: t.Final = 30
# With so many others, those that bring least, a move is taken back together.
_MOST_PARTNERS: t.Final = 2
_MOST_REFUSALS: t.Final = 5
_TINY_SECONDS: t.Final = 1e-6


class MoveExchange:
    """Exchanges moves of the state of a search. Repairs are kept."""

    def __init__(self, search: BalanceSearch) -> None:
        self._search = search
        self._state = search.state
        self._most = search.compared + _MOST_COMPARED

    def run(self) -> None:
        """Exchange moves until none can be exchanged for better ones."""
        while self._exchange_each():
            pass

    def _exchange_each(self) -> bool:
        """Try to exchange each move, the one that brings least first. False if no exchange was made, or enough moves were compared."""
        changed = False
        for move in self._sort_moves(self._state.unit_moves):
            if self._search.compared >= self._most:
                return False
            if move in self._state.unit_moves:
                changed |= any(self._exchange(taken) for taken in ([move], *([move, other] for other in self._find_partners(move))))
        return changed

    def _sort_moves(self, moves: Sequence[UnitMove]) -> list[UnitMove]:
        """Return the moves that are no repairs, those first that bring least."""
        return sorted((move for move in moves if not move.why), key=lambda move: (self._value(move), move.unit.uuid))

    def _find_partners(self, move: UnitMove) -> list[UnitMove]:
        """Return other moves from or to the hosts of a move."""
        hosts = {move.source, move.destination}
        return self._sort_moves([other for other in self._state.unit_moves if other != move and hosts & {other.source, other.destination}])[:_MOST_PARTNERS]

    def _value(self, move: UnitMove) -> float:
        """Return what the plan would lose without the move, in seconds."""
        return self._state.loss(move) * self._state.options.horizon_seconds - self._state.cost_seconds(move)

    def _total(self) -> float:
        """Return what the plan leaves and costs, in seconds."""
        return self._state.goal.score() * self._state.options.horizon_seconds + sum(map(self._state.cost_seconds, self._state.unit_moves))

    def _exchange(self, taken: Sequence[UnitMove]) -> bool:
        """Exchange these moves for as many others; false if those would be no better."""
        state, before = self._state, self._total()
        for move in taken:
            state.take_back(move)
        kept = len(state.unit_moves)
        hosts = list(dict.fromkeys(host for move in taken for host in (move.source, move.destination)))
        while len(state.unit_moves) < kept + len(taken) and self._add_best(hosts):
            pass
        if self._total() < before - _TINY_SECONDS:
            return True
        for move in state.unit_moves[kept:]:
            state.take_back(move)
        for move in taken:
            state.carry_out(move)
        return False

    def _add_best(self, hosts: Sequence[int]) -> bool:
        """Carry out the best move from or to these hosts; false if none is worth it."""
        search, goal, least = self._search, self._state.goal, self._state.options.min_gain
        sources = [source for source in goal.source_order()[:_MOST_SOURCES] if source not in hosts]
        for _refusal in range(_MOST_REFUSALS):
            found = [*map(search.find_best, hosts), *(search.find_best(source, hosts) for source in sources)]
            best = min((one for one in found if one), key=lambda one: one.rank(least), default=None)
            if best is None or not best.is_worth(least):
                return False
            if search.carry_out(best):
                return True
        return False
