# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Improves an even balance by simulated annealing: changes of the plan are tried by chance, and those that make it worse are kept ever more rarely.

A search that chooses one move after the other cannot know which moves will follow. What is searched here is the whole set of moves: one that leaves the fleet
even enough, and costs least. Then sets with one move fewer are tried, as long as one of them leaves the fleet even enough, too. The chance is that of a fixed
seed, so that the same facts give the same plan.
"""

from __future__ import annotations

import math
import random
import typing as t
from collections.abc import Sequence

from .._scheduler.reach import REACH_FILTERS, empty_fleet
from .._scheduler.repair import passes_filters
from .pressure import SIGNALS, share_at
from .pruning import carry_out_again, drop_needless_moves
from .search import BalanceSearch
from .state import UnitMove
from .trial import TrialFleet

# So many trials for each pair of guests, and at most, which bounds the time for any fleet.
_TRIALS_PER_PAIR: t.Final = 10
_MOST_TRIALS: t.Final = 500_000
# And so many for all sets with fewer moves together.
_MOST_FEWER_TRIALS: t.Final = 1_000_000
# A change that makes the plan worse by the heat is kept with the chance 1/e. The heat falls from the first to the last of these parts of what a move gains.
_HEATS: t.Final = (0.2, 0.01)
# With one move fewer, most of the plan stays as it is.
_FEWER_HEATS: t.Final = (0.04, 0.004)
_ROUNDS: t.Final = 1000
# How often each kind of change is tried, summed up: a further move, one move less, another destination, an exchange of destinations. The rest: another guest
# moves instead.
_FURTHER, _LESS, _ELSEWHERE, _EXCHANGED = 0.15, 0.25, 0.4, 0.55
# How often that guest is from the same host, and how often it goes to the same destination.
_SAME_HOME, _SAME_DESTINATION = 0.6, 0.6
_SEED: t.Final = 1
_TINY: t.Final = 1e-9

# Units that go to another host, or back to their home.
_Steps = tuple[tuple[int, int], ...]


class Annealing:
    """Improves the moves of the state of a search. Repairs, and moves of guests that must be together, are kept."""

    def __init__(self, search: BalanceSearch) -> None:
        self._search, self._state, self._options = search, search.state, search.state.options
        self._fleet = TrialFleet(search.state)
        self._random = random.Random(_SEED).random  # noqa: S311  no secret
        self._enough = search.state.goal.tolerated_score
        self._prices = [self._price(search.state.candidates.least_cost(one.unit.guests[0], search.state.uses[one.home].name)) for one in self._fleet.units]
        self._dearest = max(self._prices, default=0.0)
        self._most_moved = search.state.moves_left + len(self._fleet.moved)
        tolerated = [share_at(self._options.tolerated_pressure, resource) for resource in range(len(SIGNALS))]
        self._limits = [tuple(map(max, use.shares, tolerated)) for use in search.state.uses]
        self._empty = empty_fleet(search.state.fleet)
        self._permitted: dict[tuple[int, int], bool] = {}
        self._score = self._fleet.score()
        self._counts_moves = True
        self._fewer_trials_left = _MOST_FEWER_TRIALS

    def run(self) -> None:
        """Replace the moves by better ones, if there are any."""
        moves, before = self._list_moves(), self._total()
        improvable = {one.unit.uuid for one in self._fleet.units}
        kept = [move for move in moves if move.unit.uuid not in improvable]
        if len(kept) == len(moves):
            return
        for found in self._anneal(sum(map(self._state.loss, moves)) / len(moves)):
            self._replace([*kept, *found])
            if len(self._list_moves()) == len(kept) + len(found):
                break
            # No order was found in which all of them are possible.
        others, after = self._list_moves(), self._total()
        # Filters may have refused some of them.
        self._search.run(self._options.min_gain)
        drop_needless_moves(self._state)
        if self._total() > min(before, after):
            self._replace(moves if before < after else others)

    def _list_moves(self) -> list[UnitMove]:
        return [move for move in self._state.unit_moves if not move.why]

    def _price(self, seconds: float) -> float:
        """Return what the score has to fall by, at least, for a move that costs so many seconds."""
        return max(self._options.min_gain, seconds / self._options.horizon_seconds)

    def _total(self) -> float:
        """Return what the plan leaves and costs, as a score."""
        return self._weigh(self._state.goal.score()) + sum(self._price(self._state.cost_seconds(move)) for move in self._list_moves())

    def _weigh(self, score: float) -> float:
        """Return what a score counts. A fleet that is not even enough is worth a further move, however little is missing."""
        return score + self._dearest if score > self._enough else self._enough

    def _replace(self, moves: Sequence[UnitMove]) -> None:
        for move in self._list_moves():
            self._state.take_back(move)
        carry_out_again(moves, self._state)

    def _anneal(self, gain: float) -> list[list[UnitMove]]:
        """Return the sets of moves that were found, the best first.

        :arg gain: what a move gains on average.
        """
        found = [self._find_cheapest(gain)]
        while (fewer := self._find_fewer(found[0], gain)) is not None:
            found.insert(0, fewer)
        return [[self._make_move(unit, host) for unit, host in places.items()] for places in found]

    def _find_cheapest(self, gain: float) -> dict[int, int]:
        """Return the units that move, and where to, with which the fleet is left even enough and which cost least."""
        total = least = 0.0
        best = self._read_places()
        for heat in self._list_heats(gain, _HEATS):
            total += self._try_steps(self._draw_steps(), heat)
            if total < least - _TINY:
                least, best = total, self._read_places()
        return best

    def _find_fewer(self, places: dict[int, int], gain: float) -> dict[int, int] | None:
        """Return units that move, and where to, with which the fleet is left even enough too, and which cost less; None if none were found.

        There is one move fewer, and only the score counts: while all sets that are even enough count the same, nothing leads the search to a smaller one.
        """
        self._go_to(places)
        if self._score > self._enough or self._fewer_trials_left <= 0 or not self._take_one_back():
            return None
        self._counts_moves, self._most_moved = False, len(self._fleet.moved)
        for heat in self._list_heats(gain, _FEWER_HEATS):
            self._try_steps(self._draw_steps(), heat)
            self._fewer_trials_left -= 1
            if self._score <= self._enough:
                found = self._read_places()
                return found if self._sum_prices(found) < self._sum_prices(places) else None
        return None

    def _list_heats(self, gain: float, heats: tuple[float, float]) -> t.Iterator[float]:
        """Yield the heat of each trial."""
        first, last = heats
        trials = max(1, min(_MOST_TRIALS, _TRIALS_PER_PAIR * len(self._fleet.units) ** 2) // _ROUNDS)
        for number in range(_ROUNDS):
            heat = gain * first * (last / first) ** (number / _ROUNDS)
            for _trial in range(trials):
                yield heat

    def _read_places(self) -> dict[int, int]:
        return {unit: self._fleet.at[unit] for unit in self._fleet.moved}

    def _sum_prices(self, units: t.Iterable[int]) -> float:
        return sum(self._prices[unit] for unit in units)

    def _go_to(self, places: dict[int, int]) -> None:
        fleet = self._fleet
        for unit in {*fleet.moved, *places}:
            self._move(unit, places.get(unit, fleet.home[unit]))
        self._score = fleet.score()

    def _take_one_back(self) -> bool:
        """Let the unit stay at home whose move brings least. Return whether one has room there."""
        fleet = self._fleet
        scores = {unit: fleet.score_with(unit, fleet.home[unit]) for unit in fleet.moved if fleet.has_room(unit, fleet.home[unit])}
        if scores:
            unit = min(scores, key=scores.__getitem__)
            self._move(unit, fleet.home[unit])
            self._score = fleet.score()
        return bool(scores)

    def _move(self, unit: int, host: int) -> None:
        source = self._fleet.at[unit]
        if host != source:
            self._fleet.step(unit, host)
            self._fleet.keep_step(unit, source)

    def _make_move(self, number: int, host: int) -> UnitMove:
        one = self._fleet.units[number]
        leaver = self._state.candidates.find(one.unit.uuid, self._state.uses[one.home].name)
        return UnitMove(one.unit, (leaver,) if leaver else (), one.home, host)

    def _draw_steps(self) -> _Steps:
        """Return a change of the plan by chance; nothing if it is none."""
        draw, fleet = self._random, self._fleet
        moved, at, home, kind = fleet.moved, fleet.at, fleet.home, draw()
        host = int(draw() * len(fleet.shares))
        if kind < _FURTHER or not moved:
            unit = int(draw() * len(at))
            return ((unit, host),) if at[unit] == home[unit] != host and len(moved) < self._most_moved else ()
        unit = moved[int(draw() * len(moved))]
        if kind < _LESS:
            return ((unit, home[unit]),)
        if kind < _ELSEWHERE:
            return ((unit, host),) if at[unit] != host != home[unit] else ()
        return self._draw_exchange(unit) if kind < _EXCHANGED else self._draw_replacement(unit, host)

    def _draw_exchange(self, unit: int) -> _Steps:
        fleet = self._fleet
        other = fleet.moved[int(self._random() * len(fleet.moved))]
        here, there = fleet.at[unit], fleet.at[other]
        return ((unit, there), (other, here)) if here != there != fleet.home[unit] and here != fleet.home[other] else ()

    def _draw_replacement(self, unit: int, host: int) -> _Steps:
        draw, fleet = self._random, self._fleet
        home = fleet.home[unit]
        others = fleet.at_home[home] if draw() < _SAME_HOME else range(len(fleet.at))
        other = others[int(draw() * len(others))]
        destination = fleet.at[unit] if draw() < _SAME_DESTINATION else host
        return ((unit, home), (other, destination)) if fleet.at[other] == fleet.home[other] != destination else ()

    def _try_steps(self, steps: _Steps, heat: float) -> float:
        """Make a change of the plan if it makes the plan better, or else by chance. Return by how much the total has changed."""
        if not steps:
            return 0.0
        fleet, (unit, host) = self._fleet, steps[-1]
        done = [(first, fleet.at[first]) for first, _to in steps[:-1]]
        for first, to in steps[:-1]:
            fleet.step(first, to)
        if fleet.has_room(unit, host):
            score = fleet.score_with(unit, host)
            change = self._change(score, steps, [*done, (unit, fleet.at[unit])])
            if change <= 0.0 or self._random() < math.exp(-change / heat):
                done.append((unit, fleet.at[unit]))
                fleet.step(unit, host)
                if all(self._is_possible(*step) for step in steps):
                    for number, source in done:
                        fleet.keep_step(number, source)
                    self._score = score
                    return change
        for number, source in reversed(done):
            fleet.step(number, source)
        return 0.0

    def _change(self, score: float, steps: _Steps, before: Sequence[tuple[int, int]]) -> float:
        """Return how much worse the plan is with this score after these steps."""
        if not self._counts_moves:
            return score - self._score
        return self._weigh(score) - self._weigh(self._score) + self._price_change(steps, before)

    def _price_change(self, steps: _Steps, before: Sequence[tuple[int, int]]) -> float:
        found, home, prices = 0.0, self._fleet.home, self._prices
        for (unit, host), (_unit, source) in zip(steps, before, strict=True):
            if host == home[unit]:
                found -= prices[unit]
            elif source == home[unit]:
                found += prices[unit]
        return found

    def _is_possible(self, unit: int, host: int) -> bool:
        """Whether a unit may be on the host that it was moved to."""
        fleet = self._fleet
        if fleet.is_overfull(host):
            return False
        return host == fleet.home[unit] or (
            all(share <= limit for share, limit in zip(fleet.shares[host][: len(SIGNALS)], self._limits[host], strict=False))
            and fleet.is_kept_apart(unit, host)
            and self._permits(unit, host)
        )

    def _permits(self, unit: int, host: int) -> bool:
        """Whether the guest of a unit may move, and a host could take it if it were empty."""
        key = unit, host
        if key not in self._permitted:
            one, uses = self._fleet.units[unit], self._state.uses
            leaver = self._state.candidates.find(one.unit.uuid, uses[one.home].name)
            self._permitted[key] = leaver is not None and passes_filters(leaver.request, self._empty, uses[host].name, REACH_FILTERS)
            if leaver is not None and (price := self._price(self._state.candidates.cost(leaver).seconds)) != self._prices[unit]:
                # It costs more than was known: the next trials know it.
                self._prices[unit] = price
                return False
        return self._permitted[key]
