# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.base import PASS
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import FILTERS, domain, fleet, host, judge_with, record, request

TOGETHER = {"name": "web", "policy": "affinity"}
APART = {"name": "web", "policy": "anti-affinity"}


def apart_group(most: int) -> dict[str, t.Any]:
    return {**APART, "max_per_host": most}


def test_affinity_refuses_a_host_without_the_members() -> None:
    there, other = host("kvm2", domain("web2", group=TOGETHER)), host("kvm3")
    asked = request(group=TOGETHER)
    assert judge_with("affinity", asked, there, other).reason is None
    assert judge_with("affinity", asked, other, there).reason == "web1 must stay together with its group web: web2 on kvm2."


def test_affinity_without_other_members_permits_any_host() -> None:
    source = host("kvm1", domain("web1", group=TOGETHER), domain("off", group=TOGETHER, state="shut off", active=False))
    assert judge_with("affinity", request(group=TOGETHER), host(), source).reason is None


def test_affinity_counts_members_that_stay_and_not_those_that_leave() -> None:
    source = host("kvm1", domain("web1", group=TOGETHER), domain("web2", group=TOGETHER))
    asked = request(group=TOGETHER)
    assert judge_with("affinity", asked, host(), source).reason == "web1 must stay together with its group web: web2 on kvm1."
    assert judge_with("affinity", asked, host(), source, leaving=["web1", "web2"]).reason is None


def test_affinity_counts_a_leaving_member_at_its_destination() -> None:
    source = host("kvm1", domain("web1", group=TOGETHER), domain("web2", group=TOGETHER))
    going = host("kvm2", records=[record("web2", "kvm1", "kvm2", group=TOGETHER)])
    asked = request(group=TOGETHER)
    assert judge_with("affinity", asked, going, source, host("kvm3"), leaving=["web1", "web2"]).reason is None
    assert "web2 on kvm2" in str(judge_with("affinity", asked, host("kvm3"), source, going, leaving=["web1", "web2"]).reason)


@pytest.mark.parametrize(
    ("most", "members", "passes"),
    # The table of Nova's filter: https://opendev.org/openstack/nova, test_affinity_filters.py
    [(1, ["a"], False), (2, ["a"], True), (2, ["a", "b"], False), (1, [], True), (None, ["a"], False)],
)
def test_anti_affinity_permits_up_to_max_per_host_members(most: int | None, members: list[str], passes: bool) -> None:
    group = APART if most is None else apart_group(most)
    there = host("kvm2", *(domain(name, group=group) for name in members))
    assert (judge_with("anti_affinity", request(group=group), there).reason is None) == passes


@pytest.mark.parametrize(("own", "members", "passes"), [(2, [None], False), (None, [2], False), (3, [3, 2], False), (2, [3], True), (3, [2], True)])
def test_anti_affinity_heeds_the_member_that_permits_the_fewest(own: int | None, members: list[int | None], passes: bool) -> None:
    groups = [APART if most is None else apart_group(most) for most in (own, *members)]
    there = host("kvm2", *(domain(f"other{number}", group=group) for number, group in enumerate(groups[1:])))
    assert (judge_with("anti_affinity", request(group=groups[0]), there).reason is None) == passes


def test_anti_affinity_does_not_heed_what_the_domain_itself_permitted_before() -> None:
    there = host("kvm2", domain("web2", group=apart_group(2)), records=[record("web1", "kvm1", "kvm2", group=APART)])
    assert judge_with("anti_affinity", request(group=apart_group(2)), there).reason is None


def test_anti_affinity_names_the_members_on_the_host() -> None:
    there = host("kvm2", domain("web2", group=APART), domain("db1", group={**APART, "name": "db"}))
    reason = judge_with("anti_affinity", request(group=APART), there).reason
    assert reason == "web1 must stay apart from its group web (no two of them on a host), of which web2 is there."


def test_anti_affinity_does_not_count_the_domain_itself() -> None:
    there = host("kvm2", records=[record("web1", "kvm1", "kvm2", group=APART)])
    assert judge_with("anti_affinity", request(group=APART), there).reason is None


def test_anti_affinity_counts_incoming_members_and_not_leaving_ones() -> None:
    asked = request(group=APART)
    assert judge_with("anti_affinity", asked, host(records=[record("web2", "kvm3", "kvm2", group=APART)])).reason
    there = host("kvm2", domain("web2", group=APART))
    assert judge_with("anti_affinity", asked, there, leaving=["web2"]).reason is None


def test_anti_affinity_counts_an_incoming_member_although_it_is_leaving() -> None:
    there = host("kvm2", domain("web2", group=APART, job="incoming migration"))
    assert judge_with("anti_affinity", request(group=APART), there, leaving=["web2"]).reason


@pytest.mark.parametrize("policy", ["soft-affinity", "soft-anti-affinity"])
def test_soft_policies_refuse_no_host(policy: str) -> None:
    group = {"name": "web", "policy": policy}
    there, other = host("kvm2", domain("web2", group=group)), host("kvm3")
    for rule in ("affinity", "anti_affinity"):
        assert judge_with(rule, request(group=group), there, other).reason is None
        assert judge_with(rule, request(group=group), other, there).reason is None


@pytest.mark.parametrize(("mine", "rule", "theirs"), [(TOGETHER, "affinity", APART), (APART, "anti_affinity", TOGETHER)])
def test_a_group_with_two_policies_is_refused(mine: dict[str, str], rule: str, theirs: dict[str, str]) -> None:
    there = host("kvm2", domain("web2", group=theirs)) if rule == "affinity" else host("kvm2")
    other = host("kvm3", domain("web2", group=theirs)) if rule != "affinity" else host("kvm3")
    reason = judge_with(rule, request(group=mine), there, other).reason
    assert reason == (f"The group web has two policies: {mine['policy']} by web1, {theirs['policy']} by web2. Set one of them with domain_policy.")


@pytest.mark.parametrize("policy", ["affinity", "soft-anti-affinity"])
def test_a_member_with_another_policy_is_named_as_such_where_there_is_room_for_more(policy: str) -> None:
    there = host("kvm2", domain("web2", group={"name": "web", "policy": policy}))
    reason = judge_with("anti_affinity", request(group=apart_group(2)), there).reason
    assert reason == (f"The group web has two policies: anti-affinity by web1, {policy} by web2. Set one of them with domain_policy.")


@pytest.mark.parametrize("rule", ["affinity", "anti_affinity"])
def test_the_filters_of_groups_pass_a_domain_without_a_group(rule: str) -> None:
    there = host("kvm2", domain("web2", group=TOGETHER))
    assert FILTERS[rule].judge_host(request(), there, fleet(there)) == PASS
