# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reserve for failover in a balance: moves that would use it up are left out, the last ones first."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.drift import apply_saved_balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan import make_balance_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.tables import balance_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_entries import PlannedReserve
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.tests.simulator import fleets
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import guest, host, hosts, inputs_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.test_decision import draw_fleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.test_failover import can_lose

Facts = dict[str, dict[str, t.Any]]

# big of kvm2 has a place on kvm3 alone, and the balance would move a domain of the busy kvm1 there.
FACTS = hosts(
    host("kvm1", *(guest(f"g{number}", 4.0) for number in range(4)), memory_mib=20000),
    host("kvm2", guest("big", 0.1, memory_mib=30000), memory_mib=32000, cpus=2),
    host("kvm3", memory_mib=32000),
)


def plan_of(facts: Facts, count: int) -> DrainPlan:
    scheduler = {name: {"failover_hosts": count} for name in facts}
    return make_balance_plan(inputs_of(facts, scheduler=scheduler), [*facts], BalanceOptions())


def test_moves_that_would_use_up_the_reserve_are_left_out_and_counted() -> None:
    free = plan_of(FACTS, 0)
    assert [move.destination for move in free.moves] == ["kvm3"]
    assert not free.reserve
    kept = plan_of(FACTS, 1)
    assert kept.balance
    assert (kept.moves, kept.reserve) == ((), PlannedReserve(1, (), (), ()))
    assert kept.balance.stopped.startswith("1 further move is left out, because the fleet could not lose as many hosts as before after it (failover_hosts: 1).")
    assert kept.balance.score_after == kept.balance.score_before
    assert "RESERVE The fleet keeps its reserve (failover_hosts: 1)." in balance_lines(kept, kept.balance)


def test_a_plan_does_not_apply_once_it_would_use_up_the_reserve() -> None:
    small = copy.deepcopy(FACTS)
    small["kvm2"]["domains"] = [guest("big", 0.1, memory_mib=8000)]
    plan = plan_of(small, 1)
    assert plan.moves
    scheduler = {name: {"failover_hosts": 1} for name in FACTS}
    assert apply_saved_balance(encode(plan), inputs_of(small, scheduler=scheduler), [*FACTS], {}) == plan
    with pytest.raises(Conflict, match="could no longer lose kvm2 for certain"):
        apply_saved_balance(encode(plan), inputs_of(FACTS, scheduler=scheduler), [*FACTS], {})


def test_no_balance_takes_a_loss_away_that_was_possible_before() -> None:
    judged = 0
    for seed in range(40):
        facts = draw_fleet(seed)
        plan = plan_of(facts, 1)
        after = copy.deepcopy(facts)
        for move in plan.moves:
            (domain,) = [domain for domain in after[move.source]["domains"] if domain["uuid"] == move.uuid]
            after[move.source]["domains"].remove(domain)
            after[move.destination]["domains"].append(domain)
        assert plan.reserve
        assert not plan.reserve.broken
        for name in facts:
            left_out = plan.reserve.left_out
            had, has = (can_lose(fleets.Whole(one, {}), [name], left_out) for one in (facts, after))
            assert has or not had, (seed, name)
            judged += bool(plan.moves) and had
    assert judged > 10
