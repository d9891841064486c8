# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of balances between hosts that have other names for a bridge: what a plan shows of them, and when it no longer applies."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NameChange, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.drift import apply_saved_balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.inputs import BalanceInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan import make_balance_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.tables import balance_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan, read_plan
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import guest, host, hosts, inputs_of

Maps = Mapping[str, ResourceMaps]
MAPS: Maps = {"kvm1": ResourceMaps(bridges={"prod": "br0"}), "kvm2": ResourceMaps(bridges={"prod": "br7"})}
BRIDGE = [{"type": "bridge", "source": "br0"}]


def inputs(maps: Maps | None = None) -> BalanceInputs:
    guests = guest("bridged", 4.0, networks=BRIDGE), guest("plain", 4.0, networks=[]), *(guest(f"stays{number}", 4.0, drain="leave") for number in range(2))
    facts = hosts(host("kvm1", *guests), {**host("kvm2"), "bridges": ["br0", "br7"]})
    return inputs_of(facts, resource_maps=MAPS if maps is None else maps)


def make_plan(maps: Maps | None = None) -> DrainPlan:
    return make_balance_plan(inputs(maps), ["kvm1", "kvm2"], BalanceOptions(goal="even"))


def apply(plan: DrainPlan, maps: Maps | None = None) -> DrainPlan:
    return apply_saved_balance(encode(plan), inputs(maps), ["kvm1", "kvm2"], {})


@pytest.fixture
def plan() -> DrainPlan:
    return make_plan()


def test_a_plan_has_the_names_that_each_guest_gets(plan: DrainPlan) -> None:
    assert {move.name: move.rewritten for move in plan.moves} == {"bridged": (NameChange("bridges", "br0", "br7"),), "plain": ABSENT}
    assert plan.resource_maps == MAPS
    assert read_plan(encode(plan)) == plan


def test_the_text_of_a_plan_shows_the_names(plan: DrainPlan) -> None:
    assert plan.balance
    assert [line for line in balance_lines(plan, plan.balance) if line.startswith("NAMES")] == ["NAMES  bridged on kvm2: bridge br0 → br7"]


def test_a_fleet_without_maps_has_no_names_to_show() -> None:
    plan = make_plan({})
    assert plan.balance
    assert [move.rewritten for move in plan.moves] == [ABSENT, ABSENT]
    assert not [line for line in balance_lines(plan, plan.balance) if line.startswith("NAMES")]


def test_a_saved_plan_with_the_same_maps_is_applied_unchanged(plan: DrainPlan) -> None:
    assert apply(plan) == plan


@pytest.mark.parametrize(
    ("maps", "sentence"),
    [
        ({**MAPS, "kvm2": ResourceMaps(bridges={"prod": "br0"})}, "In kvmfleet_bridge_map of kvm2 prod is 'br0' now; the plan was made with 'br7'."),
        ({"kvm2": MAPS["kvm2"]}, "In kvmfleet_bridge_map of kvm1 prod is None now; the plan was made with 'br0'."),
        ({}, "In kvmfleet_bridge_map of kvm2 prod is None now; the plan was made with 'br7'."),
    ],
)
def test_changed_maps_are_drift(plan: DrainPlan, maps: Maps, sentence: str) -> None:
    with pytest.raises(Conflict) as refused:
        apply(plan, maps)
    assert sentence in str(refused.value)


def test_a_plan_of_an_earlier_version_is_applied_whatever_the_maps_are(plan: DrainPlan) -> None:
    moves: t.Any = tuple(replace(move, rewritten=ABSENT) for move in plan.moves)
    earlier = replace(plan, moves=moves, resource_maps=ABSENT).seal()
    assert "resource_maps" not in encode(earlier)
    assert apply(earlier) == earlier
