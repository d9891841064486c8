# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import Fleet, Request, domain, f, fleet, host, request, uuid_of

GROUP = {"name": "web", "policy": "affinity"}


def names(all_hosts: Fleet, group: str) -> dict[str, set[str]]:
    return {name: {guest.name for guest in there.values()} for name, there in all_hosts.group_members(group).items()}


def test_members_of_a_group_are_found_by_host() -> None:
    hosts = fleet(host("kvm1", domain("web1", group=GROUP), domain("db1")), host("kvm2", domain("web2", group=GROUP)))
    assert names(hosts, "web") == {"kvm1": {"web1"}, "kvm2": {"web2"}}
    assert names(hosts, "nobody") == {}


def test_adding_and_removing_domains_updates_the_groups() -> None:
    hosts = fleet(host("kvm1", domain("web1", group=GROUP)), host("kvm2"), leaving=["web1"])
    assert names(hosts, "web") == {}
    placed = hosts.with_domain(request(group=GROUP), "kvm2")
    assert names(placed, "web") == {"kvm2": {"web1"}}
    assert names(placed.without_domain(uuid_of("web1"), "kvm2"), "web") == {}
    assert names(hosts, "web") == {}


def test_the_source_is_found_by_uuid_or_else_by_name() -> None:
    hosts = fleet(host("kvm1"), host("other", host_uuid=uuid_of("kvm9")))
    assert hosts.source_of(request()) is hosts.states["kvm1"]
    assert hosts.source_of(Request("u", "n", "kvm1", uuid_of("kvm9"), 1)) is hosts.states["other"]
    assert hosts.source_of(Request("u", "n", "kvm1", "", 1)) is hosts.states["kvm1"]
    assert hosts.source_of(Request("u", "n", "kvm1", "unknown", 1)) is None


def test_policies_of_a_group_are_listed_with_their_members() -> None:
    hosts = fleet(host("kvm1", domain("web1", group=GROUP)), host("kvm2", domain("web2", group={**GROUP, "policy": "soft-affinity"})))
    assert hosts.group_policies("web") == {"affinity": {"web1"}, "soft-affinity": {"web2"}}


STEPS = st.lists(st.tuples(st.sampled_from(["take", "drop"]), st.sampled_from(["g0", "g1", "g2"]), st.sampled_from(["kvm1", "kvm2"])), max_size=12)


@settings(deadline=None)
@given(STEPS)
def test_a_fleet_changed_step_by_step_equals_one_built_at_once(steps: list[tuple[str, str, str]]) -> None:
    groups = {"g0": {"name": "a", "policy": "affinity"}, "g1": {"name": "a", "policy": "affinity"}, "g2": None}
    hosts = fleet(host("kvm1"), host("kvm2"))
    present: dict[str, set[str]] = {"kvm1": set(), "kvm2": set()}
    for step, name, where in steps:
        if step == "take":
            hosts = hosts.with_domain(request(name, group=groups[name]), where)
            present[where].add(name)
        else:
            hosts = hosts.without_domain(uuid_of(name), where)
            present[where].discard(name)
    expected = {where: there & {"g0", "g1"} for where, there in present.items() if there & {"g0", "g1"}}
    assert names(hosts, "a") == expected
    assert {where: hosts.states[where].used_mib for where in present} == {where: len(there) * f.request()["memory_mib"] for where, there in present.items()}
