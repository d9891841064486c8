# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.goals import Goal, add_shares, make_goal, subtract_shares
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import EVEN, GOALS, PRESSURE, BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.pressure import NOTHING, Vector, pressure_at

VECTORS = st.tuples(*[st.floats(0, 1.5)] * 4)
FLEETS = st.lists(VECTORS, min_size=2, max_size=6)


def goal_of(shares: list[Vector], goal: str = PRESSURE, **weights: float) -> Goal:
    return make_goal(shares, BalanceOptions(goal=goal, weights=weights))


def test_the_score_is_the_sum_of_the_weighted_pressures() -> None:
    shares = [(0.85, 0.95, 0.0, 0.0), (1.0, 0.0, 0.9, 0.0)]
    expected = pressure_at(0.85, 0) + pressure_at(1.0, 0) + 0.5 * pressure_at(0.95, 1) + 2 * pressure_at(0.9, 2)
    assert goal_of(shares, memory=0.5, io=2.0).score() == pytest.approx(expected)


def test_the_score_of_evenness_is_the_sum_of_the_standard_deviations() -> None:
    shares = [(0.1, 0.5, 0.0, 0.3), (0.3, 0.5, 0.0, 0.1), (0.8, 0.5, 0.0, 0.1)]
    expected = 3 * (statistics.pstdev([0.1, 0.3, 0.8]) + 2 * statistics.pstdev([0.3, 0.1, 0.1]))
    assert goal_of(shares, EVEN, vcpus=2.0).score() == pytest.approx(expected)


@pytest.mark.parametrize("kind", GOALS)
@given(shares=FLEETS, leaves=VECTORS, arrives=VECTORS)
def test_the_gain_of_a_move_is_what_the_score_loses(kind: str, shares: list[Vector], leaves: Vector, arrives: Vector) -> None:
    goal = goal_of(shares, kind)
    before, gain = goal.score(), goal.gain(0, 1, leaves, arrives)
    goal.move(0, 1, leaves, arrives)
    assert before - goal.score() == pytest.approx(gain, abs=1e-4)
    assert goal_of(list(goal.shares), kind).score() == pytest.approx(goal.score(), abs=1e-4)


def test_only_hosts_above_the_tolerated_pressure_are_relieved_the_worst_first() -> None:
    goal = goal_of([(0.75, 0.0, 0.0, 0.0), (0.9, 0.0, 0.0, 0.0), (0.99, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 9.0)])
    assert goal.source_order() == [2, 1]


def test_a_resource_without_weight_makes_no_source() -> None:
    assert goal_of([(0.99, 0.0, 0.0, 0.0), NOTHING], cpu=0.0).source_order() == []


def test_no_destination_gets_more_pressure_than_is_tolerated() -> None:
    goal = goal_of([(1.0, 0.0, 0.0, 0.0), (0.6, 0.0, 0.0, 0.0)])
    assert goal.permits(0, 1, NOTHING, (0.15, 0.0, 0.0, 0.0))
    assert not goal.permits(0, 1, NOTHING, (0.25, 0.0, 0.0, 0.0))


def test_an_even_fleet_may_bring_a_host_as_far_as_the_source_was() -> None:
    goal = goal_of([(0.0, 0.99, 0.0, 0.0), (0.0, 0.93, 0.0, 0.0)], EVEN)
    assert goal.permits(0, 1, NOTHING, (0.0, 0.05, 0.0, 0.0))
    assert not goal.permits(0, 1, NOTHING, (0.0, 0.07, 0.0, 0.0))


def test_a_difference_of_shares_is_never_negative() -> None:
    assert subtract_shares((0.1, 0.5, 0.0, 1.0), (0.2, 0.25, 0.0, 0.5)) == (0.0, 0.25, 0.0, 0.5)
    assert add_shares((0.25, 0.5, 0.0, 1.0), (0.25, 0.25, 0.0, 0.5)) == (0.5, 0.75, 0.0, 1.5)
