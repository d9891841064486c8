# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance import annealing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.decision import Balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import EVEN
from ansible_collections.kvmfleet.migration.tests.simulator import loads
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import Document, decide, guest, host, hosts, routes


def plan(facts: dict[str, Document], most: int = 100, **options: float) -> Balance:
    return decide(facts, goal=EVEN, max_moves=most, **{"min_gain": 0.1, **options})


def worth(balance: Balance) -> float:
    """What a plan leaves and costs, as a score, if each move costs the least gain."""
    return balance.score_after + 0.1 * len(balance.moves)


@pytest.mark.parametrize("filled", [0.5, 0.9])
@pytest.mark.parametrize("most", [8, 100])
def test_annealing_makes_plans_better_and_never_worse(monkeypatch: pytest.MonkeyPatch, filled: float, most: int) -> None:
    fleets = [loads.uneven(6, 60, filled, seed) for seed in range(20, 23)]
    annealed = [plan(facts, most) for facts in fleets]
    monkeypatch.setattr(annealing.Annealing, "_draw_steps", lambda _self: ())
    greedy = [plan(facts, most) for facts in fleets]
    pairs = list(zip(annealed, greedy, strict=True))
    assert all(len(one.moves) <= most and worth(one) <= worth(other) + 1e-9 for one, other in pairs)
    assert any(worth(one) < worth(other) - 0.01 for one, other in pairs)


def test_sets_with_fewer_moves_are_found_that_leave_the_hosts_even_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    fleets = [loads.uneven(6, 60, 0.7, seed) for seed in range(20, 24)]
    # The search begins with the moves of the greedy one.
    monkeypatch.setattr(annealing.Annealing, "_find_cheapest", lambda self, _gain: self._read_places())
    fewer = [plan(facts, min_gain=0.0, tolerated_unevenness=0.15) for facts in fleets]
    monkeypatch.setattr(annealing, "_MOST_FEWER_TRIALS", 0)
    greedy = [plan(facts, min_gain=0.0, tolerated_unevenness=0.15) for facts in fleets]
    assert all(one.score_after <= 6 * 0.15 + 1e-9 for one in fewer)
    assert all(len(one.moves) <= len(other.moves) for one, other in zip(fewer, greedy, strict=True))
    assert sum(len(one.moves) for one in fewer) < sum(len(one.moves) for one in greedy)


def test_a_set_whose_moves_are_not_all_possible_gives_way_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = loads.uneven(6, 60, 0.9, 20)
    wanted = plan(facts, tolerated_unevenness=0.2)
    find = annealing.Annealing._anneal

    def find_impossible(self: annealing.Annealing, gain: float) -> list[list[annealing.UnitMove]]:
        best, *rest = find(self, gain)
        # Carried out once, each of them is no gain any more.
        return [best + best, best, *rest]

    monkeypatch.setattr(annealing.Annealing, "_anneal", find_impossible)
    assert routes(plan(facts, tolerated_unevenness=0.2)) == routes(wanted)


def test_the_same_facts_give_the_same_plan() -> None:
    facts = loads.uneven(5, 40, 0.7, 7)
    assert routes(plan(facts)) == routes(plan(facts))


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_ends_where_the_hosts_are_even_enough(seed: int) -> None:
    facts = loads.uneven(5, 40, 0.7, seed)
    whole, enough = plan(facts, min_gain=0.0), plan(facts, min_gain=0.0, tolerated_unevenness=0.12)
    assert whole.score_after < enough.score_after <= 5 * 0.12 + 1e-9
    assert 0 < len(enough.moves) < len(whole.moves)
    assert enough.stopped == "The hosts are even enough (tolerated_unevenness: 0.12)."


def test_a_fleet_that_is_even_enough_is_left_as_it_is() -> None:
    facts = hosts(host("kvm1", *(guest(f"a{number}", 2.0) for number in range(3))), host("kvm2", *(guest(f"b{number}", 2.0) for number in range(2))))
    assert plan(facts, min_gain=0.0, tolerated_unevenness=0.5).moves == ()


def test_members_of_a_group_stay_apart() -> None:
    group = {"name": "web", "policy": "anti-affinity"}
    full = [guest(f"w{number}", 0.5 + number, group=group) for number in range(3)]
    facts = hosts(
        host("kvm1", full[0], *(guest(f"a{number}", 2.0) for number in range(5))),
        host("kvm2", full[1], guest("b0", 1.0)),
        host("kvm3", full[2]),
        host("kvm4", guest("d0", 0.5)),
    )
    balance = plan(facts, min_gain=0.0)
    where = {**{f"w{number}": f"kvm{number + 1}" for number in range(3)}, **{name: destination for name, _source, destination in routes(balance)}}
    assert balance.moves
    assert len({where[f"w{number}"] for number in range(3)}) == 3
