# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""N+1: the hosts that remain have capacity for the loss of one more."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_entries import NPlusOne
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

APART = {"name": "db", "policy": "anti-affinity"}


def plan_with_spare(facts: dict[str, dict[str, t.Any]], **known: t.Any) -> tuple[dict[str, str], NPlusOne]:
    plan = make_plan(DrainInputs(facts, **known), ["kvm1"], [name for name in facts if name != "kvm1"], DrainOptions(n_plus_one=True))
    assert plan.n_plus_one
    return {move.name: move.destination for move in plan.moves}, plan.n_plus_one


def test_a_plan_without_the_option_has_no_n_plus_one() -> None:
    assert make_plan(DrainInputs({"kvm1": f.host("kvm1")}), ["kvm1"], []).n_plus_one is None


def test_n_plus_one_holds_with_capacity_for_one_more_loss() -> None:
    facts = {"kvm1": f.host("kvm1", domains=[f.domain("a", 512)]), "kvm2": f.host("kvm2", 1024, domains=[f.domain("b", 512)]), "kvm3": f.host("kvm3", 1024)}
    assert plan_with_spare(facts)[1] == NPlusOne(True, None, 0, (), ())


def test_n_plus_one_holds_for_an_exact_fit_and_not_for_one_mib_more() -> None:
    def after(size: int) -> NPlusOne:
        hosts = {"kvm2": f.host("kvm2", 1024, domains=[f.domain("b", 512)]), "kvm3": f.host("kvm3", 1024)}
        return plan_with_spare({"kvm1": f.host("kvm1", domains=[f.domain("a", size)]), **hosts})[1]

    assert after(512).holds is True
    assert after(513).holds is False


def test_the_worst_loss_of_a_host_is_named_with_its_domains() -> None:
    facts = {
        "kvm1": f.host("kvm1", domains=[f.domain("a", 1000)]),
        "kvm2": f.host("kvm2", 1000, domains=[f.domain("b", 900), f.domain("c", 100)]),
        "kvm3": f.host("kvm3", 1000),
    }
    assert plan_with_spare(facts)[1] == NPlusOne(False, "kvm2", 1000, ("b", "c"), ("kvm2", "kvm3"))


def test_a_destination_that_keeps_n_plus_one_is_preferred_to_the_highest_weight() -> None:
    # By weight the guest goes to kvm4, the emptiest; then nobody could take what kvm2 holds.
    facts = {
        "kvm1": f.host("kvm1", domains=[f.domain("a", 400)]),
        "kvm2": f.host("kvm2", 1300, domains=[f.domain("b", 1000)]),
        "kvm3": f.host("kvm3", 450),
        "kvm4": f.host("kvm4", 1000),
    }
    ways, told = plan_with_spare(facts)
    assert (ways, told.holds) == ({"a": "kvm3"}, True)


def test_groups_are_respected_after_the_loss_of_a_host() -> None:
    members = [f.domain(f"db{number}", 100, group=APART) for number in range(2)]
    facts = {"kvm1": f.host("kvm1", domains=[f.domain("a", 100)]), "kvm2": f.host("kvm2", domains=members[:1]), "kvm3": f.host("kvm3", domains=members[1:])}
    assert plan_with_spare(facts)[1].domains == ("db0",)
    assert plan_with_spare({**facts, "kvm4": f.host("kvm4")})[1].holds is True


def test_silent_hosts_and_hosts_in_maintenance_are_not_survivors() -> None:
    facts = {"kvm1": f.host("kvm1"), "kvm2": f.host("kvm2", domains=[f.domain("b", 512)]), "kvm3": f.host("kvm3")}
    assert plan_with_spare(facts)[1].holds is True
    assert plan_with_spare(facts, entries=[host_entry({"name": "kvm3", "state": "maintenance"})])[1].host == "kvm2"
    assert plan_with_spare(facts, unreachable={"kvm3": "No route to host"})[1].host == "kvm2"


def test_a_domain_with_a_blocker_counts_for_n_plus_one() -> None:
    facts = {"kvm1": f.host("kvm1"), "kvm2": f.host("kvm2", domains=[f.domain("b", 512, blockers=["It has a device."])]), "kvm3": f.host("kvm3")}
    assert plan_with_spare(facts)[1].holds is True
