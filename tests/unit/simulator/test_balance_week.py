# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated week: the plan of the collection relieves the fleet with few moves, and no guest moves twice within a day."""

from __future__ import annotations

from collections import Counter

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.tests.simulator import balance_week as w

SEED, HOSTS, PER_HOST = 1, 8, 12


@pytest.fixture(scope="module")
def weeks() -> tuple[w.Week, w.Week, w.Week]:
    """The same week untouched, balanced by plan, and balanced greedily."""
    drawn = [w.draw_week(SEED, HOSTS, PER_HOST) for _week in range(3)]
    return w.live_through(drawn[0]), w.live_through(drawn[1], w.balance_by_plan), w.live_through(drawn[2], w.balance_greedily)


def test_the_plan_takes_at_least_four_fifths_of_the_excess_pressure(weeks: tuple[w.Week, w.Week, w.Week]) -> None:
    untouched, planned, _greedy = weeks
    assert untouched.excess > 10
    assert planned.excess <= 0.2 * untouched.excess


def test_no_guest_moves_twice_within_a_day(weeks: tuple[w.Week, w.Week, w.Week]) -> None:
    assert weeks[1].most_moves_in_a_day() == 1


def test_the_plan_needs_at_most_half_of_the_moves_of_the_greedy_rule(weeks: tuple[w.Week, w.Week, w.Week]) -> None:
    _untouched, planned, greedy = weeks
    assert greedy.most_moves_in_a_day() > 1
    assert len(planned.moves) <= len(greedy.moves) / 2


def test_the_runs_of_a_week_are_its_plans_and_say_what_their_moves_brought(weeks: tuple[w.Week, w.Week, w.Week]) -> None:
    keeper, week = w.RunKeeper(), w.draw_week(SEED, HOSTS, PER_HOST)
    w.live_through(week, keeper)
    assert week.moves == weeks[1].moves
    assert [len(run.moves) for run in keeper.runs] == [*Counter(step for step, _name, _host in week.moves).values()]
    measured = [run.measured for run in keeper.runs if run.measured]
    assert len(measured) >= len(keeper.runs) - 1
    assert sum(one.gain for one in measured) > 0
    for run in keeper.runs:
        assert decode(BalanceRun, encode(run)) == run


def test_the_pressure_rises_with_the_demand() -> None:
    found = [w.pressure_of(demand / 10) for demand in range(16)]
    assert found == sorted(found)
    assert found[5] < 0.001
    assert w.pressure_of(1.0) == 0.5
