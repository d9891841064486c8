# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A saved plan of a balance applies as long as the fleet is as it was, also after some of its moves, and otherwise everything that has changed is named."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.drift import apply_saved_balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan import make_balance_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import guest, host, hosts, inputs_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.test_decision import TOGETHER, draw_fleet

Facts = dict[str, dict[str, t.Any]]
SEEDS = range(60)


def plan_of(facts: Facts, **options: t.Any) -> DrainPlan:
    return make_balance_plan(inputs_of(facts), [*facts], BalanceOptions(**options))


def apply(plan: DrainPlan, facts: Facts, **given: t.Any) -> DrainPlan:
    return apply_saved_balance(encode(plan), inputs_of(facts), [*facts], given)


def carry_out(facts: Facts, plan: DrainPlan, moves: int) -> Facts:
    """The fleet after the first moves of a plan."""
    after = copy.deepcopy(facts)
    for move in plan.moves[:moves]:
        there = after[move.source]["domains"]
        (domain,) = [domain for domain in there if domain["uuid"] == move.uuid]
        there.remove(domain)
        after[move.destination]["domains"].append(domain)
    return after


@pytest.mark.parametrize("goal", ["pressure", "even"])
def test_a_plan_of_any_fleet_applies_before_and_after_each_of_its_moves(goal: str) -> None:
    planned = 0
    for seed in SEEDS:
        facts = draw_fleet(seed)
        plan = plan_of(facts, goal=goal, min_gain=0.0)
        planned += len(plan.moves)
        for done in range(len(plan.moves) + 1):
            assert apply(plan, carry_out(facts, plan, done)) == plan, (seed, done)
    assert planned > len(SEEDS)


def test_all_differences_are_named_at_once() -> None:
    busy = [guest(f"g{number}", 3.0) for number in range(6)]
    facts = hosts(host("kvm1", *busy), host("kvm2"), host("kvm3"))
    plan = plan_of(facts)
    first, second = plan.moves[:2]
    after = copy.deepcopy(facts)
    for domain in after["kvm1"]["domains"]:
        if domain["uuid"] == first.uuid:
            domain["policy"] = {"drain": "leave"}
            domain["request"] = {**domain["request"], "drain": "leave"}
        if domain["uuid"] == second.uuid:
            domain["request"] = {**domain["request"], "memory_mib": 5000}
    with pytest.raises(Conflict) as refused:
        apply(plan, after, max_moves=3, bandwidth_mib=1)
    for words in (
        "The option max_moves is 3 now; the plan was made with 20.",
        f"{first.name} was to move to {first.destination}. Its policy leaves it on its host (drain: leave).",
        f"{second.name} has 5000 MiB of memory now, 4096 when the plan was made.",
        "Make a new plan. Nothing was moved.",
    ):
        assert words in str(refused.value)


def test_an_affinity_group_that_no_longer_fits_is_named_as_one() -> None:
    pair = [guest(name, 3.0, group=TOGETHER) for name in ("a", "b")]
    rest = [guest(f"g{number}", 3.0, drain="leave") for number in range(3)]
    facts = hosts(host("kvm1", *pair, *rest), host("kvm2"))
    plan = plan_of(facts)
    assert {move.name for move in plan.moves} == {"a", "b"}
    after = hosts(host("kvm1", *pair, *rest), host("kvm2", guest("late", 0.1, memory_mib=60000)))
    with pytest.raises(Conflict, match=r"kvm2 can no longer accept a, b\. Make a new plan"):
        apply(plan, after)
