# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.candidates import Candidates
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.goals import make_goal
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.load import read_uses
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import EVEN, BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.search import BalanceSearch
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.state import BalanceState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.trial import TrialFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet
from ansible_collections.kvmfleet.migration.tests.simulator import loads
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import Document, guest, host, hosts, inputs_of, states_of

OPTIONS = BalanceOptions(goal=EVEN, max_moves=20, min_gain=0.1)


def begin(facts: dict[str, Document]) -> BalanceState:
    inputs = inputs_of(facts)
    states = states_of(inputs)
    uses = read_uses(states)
    return BalanceState(uses, Fleet(states), make_goal([use.shares for use in uses], OPTIONS), Candidates(inputs, OPTIONS), OPTIONS)


@pytest.mark.parametrize("seed", range(5))
def test_the_score_is_that_of_the_goal_after_any_steps(seed: int) -> None:
    chance, state = random.Random(seed), begin(loads.uneven(5, 40, 0.6, seed))
    fleet = TrialFleet(state)
    assert fleet.score() == pytest.approx(state.goal.score())
    for _step in range(100):
        unit, there = chance.randrange(len(fleet.units)), chance.randrange(5)
        source = fleet.at[unit]
        if there == source:
            continue
        state.goal.move(source, there, *state.shares(fleet.units[unit].unit, source, there))
        expected = fleet.score_with(unit, there)
        fleet.step(unit, there)
        fleet.keep_step(unit, source)
        assert fleet.score() == pytest.approx(expected, abs=1e-6)
        assert sorted(fleet.moved) == [number for number, at in enumerate(fleet.at) if at != fleet.home[number]]
    assert fleet.score() == pytest.approx(state.goal.score(), abs=1e-6)


def test_a_host_has_room_until_its_memory_is_promised() -> None:
    fleet = TrialFleet(begin(hosts(host("kvm1", guest("a", 1.0), guest("b", 1.0)), host("kvm2", memory_mib=4096 + 512))))
    assert [one.unit.guests[0].name for one in fleet.units] == ["a", "b"] or [one.unit.guests[0].name for one in fleet.units] == ["b", "a"]
    assert fleet.has_room(0, 1)
    fleet.step(0, 1)
    assert not fleet.has_room(1, 1)
    assert not fleet.is_overfull(1)
    fleet.step(1, 1)
    assert fleet.is_overfull(1)


def test_guests_that_must_be_together_are_left_to_the_search() -> None:
    together = {"name": "pair", "policy": "affinity"}
    fleet = TrialFleet(begin(hosts(host("kvm1", guest("a", 1.0, group=together), guest("b", 1.0, group=together), guest("c", 1.0)), host("kvm2"))))
    assert [one.unit.guests[0].name for one in fleet.units] == ["c"]


def test_moves_that_are_taken_back_leave_the_fleet_as_it_was() -> None:
    facts = loads.uneven(4, 30, 0.6, 1)
    state = begin(facts)
    states = dict(state.fleet.states)
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


def test_guests_in_huge_pages_take_no_other_room() -> None:
    in_pages = guest("a", 1.0, hugepages=[{"size_kib": 2048, "mib": 4096}])
    pages = [{"size_kib": 2048, "total": 4096, "free": 4096}]
    there = host("kvm2", memory_mib=8192 + 4096)
    there["numa_cells"] = [{**there["numa_cells"][0], "pages": pages}]
    fleet = TrialFleet(begin(hosts(host("kvm1", in_pages, guest("b", 1.0), guest("c", 1.0)), there)))
    number = {one.unit.guests[0].name: index for index, one in enumerate(fleet.units)}
    for name in ("a", "b"):
        assert fleet.has_room(number[name], 1)
        fleet.step(number[name], 1)
    assert not fleet.is_overfull(1)
    assert not fleet.has_room(number["c"], 1)
