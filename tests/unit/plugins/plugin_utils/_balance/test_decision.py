# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import datetime
import random
import typing as t
from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.decision import Balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import GOALS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.repair import passes_filters
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import (
    NOW,
    Document,
    crowded,
    decide,
    guest,
    host,
    hosts,
    inputs_of,
    names,
    routes,
    states_of,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import record

APART = {"name": "apart", "policy": "anti-affinity"}
TOGETHER = {"name": "together", "policy": "affinity"}


def reasons(balance: Balance) -> dict[str, str]:
    return {one.name: one.reason for one in balance.left}


def test_a_busy_host_is_relieved_with_as_few_moves_as_it_takes() -> None:
    balance = decide(crowded())
    (move,) = balance.moves
    assert move.before[0][0] == pytest.approx(15 / 16)
    assert move.after[0][0] == pytest.approx(12 / 16)
    assert balance.score_before - balance.score_after == pytest.approx(move.gain)
    assert balance.stopped == "No host is under more pressure than is tolerated (0.1)."


def test_a_fleet_without_pressure_stays_as_it_is() -> None:
    balance = decide(crowded(count=3))
    assert (balance.moves, balance.score_before, balance.score_after) == ((), 0.0, 0.0)


def test_measured_pressure_counts_more_than_use() -> None:
    facts = hosts(host("kvm1", *(guest(f"g{number}", 1.0) for number in range(6)), pressure=0.5), host("kvm2", pressure=0.0))
    assert decide(facts).moves


def test_use_without_measured_pressure_is_no_reason_to_move() -> None:
    facts = hosts(host("kvm1", *(guest(f"g{number}", 3.0) for number in range(5)), pressure=0.01), host("kvm2", pressure=0.0))
    assert not decide(facts).moves


def test_a_move_that_costs_more_than_it_brings_is_not_made_and_named() -> None:
    balance = decide(crowded(), horizon_seconds=60.0)
    assert not balance.moves
    assert "The next best move, " in balance.stopped
    assert "would bring" in balance.stopped
    assert "cost" in balance.stopped
    assert all("would gain" in reason for reason in reasons(balance).values())


def test_the_plan_has_at_most_as_many_moves_as_it_may_have() -> None:
    facts = crowded(count=5, cores=4.0)
    assert len(decide(facts, tolerated_pressure=0.0).moves) > 1
    balance = decide(facts, tolerated_pressure=0.0, max_moves=1)
    assert len(balance.moves) == 1
    assert balance.stopped == "The plan has as many moves as it may have (max_moves: 1)."


def test_a_domain_that_its_policy_leaves_stays() -> None:
    facts = hosts(host("kvm1", *(guest(f"g{number}", 3.0, drain="leave") for number in range(5))), host("kvm2"))
    balance = decide(facts)
    assert not balance.moves
    assert set(reasons(balance).values()) == {"Its policy leaves it on its host (drain: leave)."}


def test_a_domain_that_may_only_be_shut_down_stays() -> None:
    facts = hosts(host("kvm1", *(guest(f"g{number}", 3.0, drain="shutdown") for number in range(5))), host("kvm2"))
    assert set(reasons(decide(facts)).values()) == {"Its policy does not move it (drain: shutdown)."}


def test_a_domain_that_moved_a_short_while_ago_stays() -> None:
    facts = crowded()
    (moved,) = names(decide(facts))
    then = NOW - datetime.timedelta(hours=23)
    balance = decide(facts, {f.uuid_of(moved): then})
    assert moved not in names(balance)
    assert len(balance.moves) == 1
    assert reasons(balance)[moved] == "It has moved within the last 24 h, and stays for 1.0 h more."
    assert moved in names(decide(facts, {f.uuid_of(moved): NOW - datetime.timedelta(hours=24)}))


def test_a_domain_whose_move_is_under_way_stays() -> None:
    facts = crowded()
    (moved,) = names(decide(facts))
    under_way = record(moved, "kvm1", "kvm3", "scheduled")
    balance = decide(facts, drain={"records": [under_way]})
    assert moved not in names(balance)


def test_a_domain_that_cannot_be_moved_stays_with_the_reason() -> None:
    guests = [guest(f"g{number}", 3.0, disks=[f.disk("vda", shared=False)]) for number in range(5)]
    balance = decide(hosts(host("kvm1", *guests), host("kvm2")))
    assert not balance.moves
    assert all("It writes to storage of kvm1 alone" in reason for reason in reasons(balance).values())


def test_a_domain_that_writes_too_fast_stays() -> None:
    guests = [guest(f"g{number}", 3.0, dirty_rate_mib=5000.0) for number in range(5)]
    balance = decide(hosts(host("kvm1", *guests), host("kvm2")))
    assert not balance.moves
    assert all("It writes memory too fast" in reason for reason in reasons(balance).values())


def test_of_equal_domains_the_one_that_was_measured_moves() -> None:
    guests = [guest("fast", 3.0, dirty_rate_mib=40.0), guest("unknown", 3.0, dirty_rate_mib=None), guest("quiet", 3.0, dirty_rate_mib=0.0)]
    balance = decide(hosts(host("kvm1", *guests, *(guest(f"g{number}", 3.0, drain="leave") for number in range(2))), host("kvm2")))
    assert names(balance) == ["quiet"]


def test_domains_of_higher_priority_move_first() -> None:
    guests = [guest(f"g{number}", 4.0, priority=number) for number in range(5)]
    balance = decide(hosts(host("kvm1", *guests), host("kvm2"), host("kvm3")), tolerated_pressure=0.0)
    priorities = [move.leaver.request.priority for move in balance.moves]
    assert len(priorities) > 1
    assert priorities == sorted(priorities, reverse=True)


def test_an_affinity_group_moves_together() -> None:
    guests = [guest("a", 3.0, group=TOGETHER), guest("b", 3.0, group=TOGETHER), *(guest(f"g{number}", 3.0, drain="leave") for number in range(3))]
    balance = decide(hosts(host("kvm1", *guests), host("kvm2")))
    assert {(name, to) for name, _source, to in routes(balance)} == {("a", "kvm2"), ("b", "kvm2")}
    assert {move.together for move in balance.moves} == {("a",), ("b",)}


def test_an_affinity_group_with_a_domain_that_stays_is_left() -> None:
    guests = [guest("a", 3.0, group=TOGETHER), guest("b", 3.0, group=TOGETHER, drain="leave"), *(guest(f"g{n}", 3.0, drain="leave") for n in range(3))]
    assert not decide(hosts(host("kvm1", *guests), host("kvm2"))).moves


def test_a_soft_group_is_not_made_worse() -> None:
    soft = {"name": "soft", "policy": "soft-anti-affinity"}
    guests = [guest("a", 3.0, group=soft), *(guest(f"g{number}", 3.0, drain="leave") for number in range(4))]
    facts = hosts(host("kvm1", *guests), host("kvm2", guest("b", 0.1, group=soft)), host("kvm3", guest("c", 2.0)))
    assert routes(decide(facts)) == [("a", "kvm1", "kvm3")]


def test_a_label_that_few_hosts_have_is_found() -> None:
    guests = [guest("a", 3.0, labels=["ssd"]), *(guest(f"g{number}", 3.0, drain="leave") for number in range(4))]
    facts = hosts(host("kvm01", *guests), *(host(f"kvm{number:02d}", guest(f"o{number}", 0.01 * number)) for number in range(2, 60)))
    balance = decide(facts, drain={"scheduler": {"kvm59": {"labels": ["ssd"]}}})
    assert routes(balance) == [("a", "kvm01", "kvm59")]


def test_a_move_that_needs_the_room_of_another_is_in_a_later_stage() -> None:
    full = [guest(f"f{number}", 4.0, memory_mib=16384) for number in range(4)]
    small = [guest(f"s{number}", 0.5, memory_mib=16384) for number in range(4)]
    balance = decide(hosts(host("kvm1", *full), host("kvm2", *small), host("kvm3", guest("o", 1.0, memory_mib=49152))), goal="even", min_gain=0.0)
    stages = [move.stage for move in balance.moves]
    assert stages == sorted(stages)
    check_moves(hosts(host("kvm1", *full), host("kvm2", *small), host("kvm3", guest("o", 1.0, memory_mib=49152))), balance)


def test_the_decision_does_not_depend_on_the_order_of_the_facts() -> None:
    facts = draw_fleet(5)
    shuffled = {name: {**facts[name], "domains": facts[name]["domains"][::-1]} for name in sorted(facts, reverse=True)}
    assert describe(decide(facts)) == describe(decide(shuffled))


def draw_fleet(seed: int) -> dict[str, Document]:
    """Hosts of chance, some of them overcommitted or with broken groups, most of them unevenly busy."""
    chance = random.Random(seed)
    groups = [None, None, None, APART, TOGETHER, {"name": "soft", "policy": "soft-affinity"}, {"name": "two", "policy": "anti-affinity", "max_per_host": 2}]
    facts = {}
    for number in range(chance.randint(2, 6)):
        name, heat = f"kvm{number + 1}", chance.choice([0.1, 0.5, 1.0])
        guests = [
            guest(
                f"{name}-{index}",
                heat * chance.uniform(0, 4),
                chance.choice([1024, 4096, 8192, 16384]),
                chance.choice([1, 2, 4]),
                chance.choice([None, 0.0, 10.0, 400.0]),
                group=chance.choice(groups),
                priority=chance.choice([0, 0, 10]),
                drain=chance.choice(["migrate"] * 5 + ["leave"]),
                labels=["ssd"] if chance.random() < 0.1 else [],
            )
            for index in range(chance.randint(0, 8))
        ]
        memory_mib = chance.choice([16384, 32768, 65536])
        facts[name] = host(name, *guests, memory_mib=memory_mib, cpus=chance.choice([4, 8, 16]), pressure=chance.choice([None, None, 0.0, 0.3]))
    return facts


def describe(balance: Balance) -> list[t.Any]:
    moves = [(move.leaver.request.uuid, move.destination, move.stage, round(move.gain, 9), move.why) for move in balance.moves]
    return [moves, round(balance.score_after, 9), balance.stopped, balance.broken]


def check_moves(facts: Mapping[str, Document], balance: Balance, options: Mapping[str, t.Any] | None = None) -> None:
    """Check what holds for every plan, whichever of the moves of a stage end first."""
    moved = [move.leaver.request.uuid for move in balance.moves]
    assert len(set(moved)) == len(moved)
    fleet = Fleet(states_of(inputs_of(facts, **(options or {}))))
    stage, gone = 1, []
    for move in balance.moves:
        request = move.leaver.request
        assert (move.leaver.strategy, move.leaver.method) == ("migrate", "")
        assert move.stage >= stage
        if move.stage > stage:
            for uuid, source in gone:
                fleet = fleet.without_domain(uuid, source)
            stage, gone = move.stage, []
        judged = fleet
        for other in balance.moves:
            if other.unit == move.unit:
                judged = judged.without_domain(other.leaver.request.uuid, other.leaver.request.source)
        assert passes_filters(request, judged, move.destination, DEFAULT_FILTERS)
        fleet = fleet.with_domain(request, move.destination)
        gone.append((request.uuid, request.source))


@pytest.mark.parametrize("goal", GOALS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), most=st.integers(0, 8))
# Only guests that must be together move.
@example(seed=468, most=3)
def test_every_plan_keeps_the_rules(goal: str, seed: int, most: int) -> None:
    facts = draw_fleet(seed)
    before = copy.deepcopy(facts)
    chance = random.Random(seed)
    last = {domain["uuid"]: NOW - datetime.timedelta(hours=3) for one in facts.values() for domain in one["domains"] if chance.random() < 0.2}
    balance = decide(facts, last, goal=goal, max_moves=most, min_gain=0.0)
    check_moves(facts, balance)
    assert facts == before
    assert len(balance.moves) <= most
    assert not last.keys() & {move.leaver.request.uuid for move in balance.moves}
    assert describe(balance) == describe(decide(facts, last, goal=goal, max_moves=most, min_gain=0.0))
    assert balance.score_before - balance.score_after == pytest.approx(sum({move.unit: move.gain for move in balance.moves}.values()), abs=1e-6)
    if not any(move.why for move in balance.moves):
        assert balance.score_after <= balance.score_before + 1e-9
        assert all(move.gain > 0 for move in balance.moves)
