# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance import exchange
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.candidates import Candidates
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.decision import Balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.goals import make_goal
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.load import read_uses
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import EVEN, BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.search import BalanceSearch
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.state import BalanceState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet
from ansible_collections.kvmfleet.migration.tests.simulator import loads
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import Document, decide, inputs_of, states_of

OPTIONS = BalanceOptions(goal=EVEN, max_moves=20, min_gain=0.1)


def plan(facts: dict[str, Document], most: int) -> Balance:
    return decide(facts, goal=EVEN, max_moves=most, min_gain=0.1)


@pytest.mark.parametrize("filled", [0.5, 0.9])
def test_exchanges_make_fleets_better_with_no_more_moves(monkeypatch: pytest.MonkeyPatch, filled: float) -> None:
    fleets = [loads.uneven(6, 60, filled, seed) for seed in range(20, 25)]
    exchanged = [plan(facts, 8) for facts in fleets]
    monkeypatch.setattr(exchange, "_MOST_COMPARED", 0)
    greedy = [plan(facts, 8) for facts in fleets]
    pairs = list(zip(exchanged, greedy, strict=True))
    assert all(len(one.moves) <= len(other.moves) <= 8 and one.score_after <= other.score_after + 1e-9 for one, other in pairs)
    assert any(one.score_after < other.score_after - 0.05 for one, other in pairs)


def test_a_move_that_is_taken_back_leaves_the_fleet_as_it_was() -> None:
    facts = loads.uneven(4, 30, 0.6, 1)
    inputs = inputs_of(facts)
    states = states_of(inputs)
    uses = read_uses(states)
    state = BalanceState(uses, Fleet(states), make_goal([use.shares for use in uses], OPTIONS), Candidates(inputs, OPTIONS), OPTIONS)
    score, units = state.goal.score(), [{unit.uuid for unit in there} for there in state.units]
    BalanceSearch(state).run(OPTIONS.min_gain)
    assert state.unit_moves
    for move in list(state.unit_moves):
        state.take_back(move)
    assert state.goal.score() == pytest.approx(score)
    assert (state.chosen, state.unit_moves, state.moved) == ([], [], set())
    assert [{unit.uuid for unit in there} for there in state.units] == units
    for name, before in states.items():
        after = state.fleet.states[name]
        assert (after.free_mib(), after.free_vcpus(), set(after.guests)) == (before.free_mib(), before.free_vcpus(), set(before.guests))
