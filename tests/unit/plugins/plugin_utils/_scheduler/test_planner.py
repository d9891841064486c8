# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
import typing as t
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.planner import plan_placements
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.repair import Unit
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

TOGETHER = {"name": "web", "policy": "affinity"}
APART = {"name": "db", "policy": "anti-affinity"}


def host(name: str, mib: int, *domains: dict[str, t.Any], **settings: t.Any) -> HostState:
    return HostState.from_facts(name, decode(HostFacts, f.host(name, mib, 64, domains)), settings=settings)


def request(number: int, mib: int, **changes: t.Any) -> Request:
    name = f"guest{number}"
    return Request.from_needs(f.request(mib, **changes), f.uuid_of(name), name, "kvm1", f.uuid_of("kvm1"))


def fleet(*hosts: HostState, leaving: frozenset[str] = frozenset()) -> Fleet:
    return Fleet({host.name: host for host in hosts}, leaving)


def destinations_of(requests: list[Request], hosts: list[HostState], pinned: dict[str, str] | None = None) -> dict[str, str | None]:
    return {placement.request.name: placement.destination for placement in plan_placements(requests, fleet(*hosts), pinned)}


def test_the_largest_domain_is_placed_first() -> None:
    found = destinations_of([request(1, 100), request(2, 100), request(3, 300)], [host("kvm2", 300), host("kvm3", 200)])
    assert list(found.items()) == [("guest3", "kvm2"), ("guest1", "kvm3"), ("guest2", "kvm3")]


def test_a_higher_priority_is_placed_before_a_larger_size() -> None:
    found = destinations_of([request(1, 300), request(2, 200, priority=5)], [host("kvm2", 400)])
    assert list(found.items()) == [("guest2", "kvm2"), ("guest1", None)]


def test_what_only_a_live_move_needs_does_not_prevent_the_placement_of_a_guest_that_is_off_while_it_moves() -> None:
    needs = {"blockers": ["It has the folder 'x' of its host through 9p."], "traits": ["COMPUTE_MIGRATE_POST_COPY"]}
    busy = host("kvm2", 300, limits={"moves_in": 0})
    live = request(1, 300, **needs)
    assert destinations_of([replace(live, starts=True)], [busy]) == {"guest1": "kvm2"}
    assert destinations_of([live], [busy]) == {"guest1": None}


def test_units_of_which_one_is_off_while_it_moves_are_not_alike() -> None:
    live = request(1, 300)
    assert Unit((live,)).signature() == Unit((request(2, 300),)).signature()
    assert Unit((live,)).signature() != Unit((replace(live, starts=True),)).signature()


def test_a_domain_with_alternatives_is_replaced_for_one_without() -> None:
    hosts = [host("kvm2", 500, labels=["ssd"]), host("kvm3", 450)]
    assert destinations_of([request(1, 400), request(2, 300, labels=["ssd"])], hosts) == {"guest1": "kvm3", "guest2": "kvm2"}


def test_a_chain_of_domains_is_replaced_to_place_another() -> None:
    hosts = [host("kvm2", 500, labels=["a"]), host("kvm3", 400, labels=["a", "b"]), host("kvm4", 300, labels=["b"])]
    requests = [request(1, 290, labels=["b"], priority=9), request(2, 280, labels=["a"], priority=8), request(3, 450, labels=["a"])]
    assert destinations_of(requests, hosts) == {"guest1": "kvm4", "guest2": "kvm3", "guest3": "kvm2"}


def test_a_repair_never_unplaces_a_domain() -> None:
    found = destinations_of([request(1, 400, priority=9), request(2, 300, labels=["ssd"])], [host("kvm2", 500, labels=["ssd"]), host("kvm3", 350)])
    assert found == {"guest1": "kvm2", "guest2": None}


def test_an_affinity_group_is_placed_together_where_all_of_it_fits() -> None:
    requests = [request(1, 300, group=TOGETHER), request(2, 200, group=TOGETHER), request(3, 100)]
    placements = plan_placements(requests, fleet(host("kvm2", 450), host("kvm3", 520), leaving=frozenset(one.uuid for one in requests)))
    assert {one.request.name: one.destination for one in placements} == {"guest1": "kvm3", "guest2": "kvm3", "guest3": "kvm2"}
    assert [one.together for one in placements] == [("guest2",), ("guest1",), ()]


def test_an_affinity_group_that_fits_nowhere_stays_unplaced() -> None:
    requests = [request(1, 300, group=TOGETHER), request(2, 200, group=TOGETHER)]
    assert destinations_of(requests, [host("kvm2", 450), host("kvm3", 400)]) == {"guest1": None, "guest2": None}


def test_an_affinity_group_follows_its_member_that_is_elsewhere() -> None:
    member = f.domain("old", 64, group=TOGETHER)
    assert destinations_of([request(1, 300, group=TOGETHER)], [host("kvm2", 4000), host("kvm3", 500, member)]) == {"guest1": "kvm3"}


def test_members_of_an_anti_affinity_group_are_placed_apart() -> None:
    requests = [request(number, 100, group=APART) for number in range(3)]
    found = destinations_of(requests, [host("kvm2", 4000), host("kvm3", 500)])
    assert sorted(map(str, found.values())) == ["None", "kvm2", "kvm3"]


def test_leaving_members_of_an_affinity_group_do_not_block_each_other() -> None:
    guests = [f.domain(f"guest{number}", 100, group=TOGETHER) for number in range(2)]
    requests = [request(number, 100, group=TOGETHER) for number in range(2)]
    source = host("kvm1", 4000, *guests)
    held = plan_placements(requests[:1], fleet(source, host("kvm2", 500), leaving=frozenset([requests[0].uuid])))
    free = plan_placements(requests, fleet(source, host("kvm2", 500), leaving=frozenset(one.uuid for one in requests)))
    assert [one.destination for one in held] == [None]
    assert [one.destination for one in free] == ["kvm2", "kvm2"]


def test_guests_of_other_hosts_are_never_moved() -> None:
    settled = f.domain("settled", 300)
    assert destinations_of([request(1, 300)], [host("kvm2", 500, settled), host("kvm3", 200)]) == {"guest1": None}


def test_the_cost_function_chooses_between_valid_plans() -> None:
    requests = [request(1, 100), request(2, 100)]
    placements = plan_placements(requests, fleet(host("kvm2", 1000), host("kvm3", 1000)), cost=lambda _fleet, way: float(len(set(way.values()))) - 1)
    assert len({one.destination for one in placements}) == 1


def test_every_placement_counts_for_the_next() -> None:
    assert destinations_of([request(1, 200), request(2, 200)], [host("kvm2", 300)]) == {"guest1": "kvm2", "guest2": None}


def test_equal_guests_are_spread_over_equal_hosts() -> None:
    found = destinations_of([request(number, 100) for number in range(4)], [host("kvm2", 1000), host("kvm3", 1000)])
    assert sorted(filter(None, found.values())) == ["kvm2", "kvm2", "kvm3", "kvm3"]


def test_a_pinned_domain_is_placed_first_and_takes_its_memory() -> None:
    first, second = request(1, 200), request(2, 250)
    found = destinations_of([first, second], [host("kvm2", 300), host("kvm3", 100)], {first.uuid: "kvm2"})
    assert found == {"guest1": "kvm2", "guest2": None}


def test_a_pin_to_a_host_that_is_no_candidate_is_kept() -> None:
    only = request(1, 200)
    assert destinations_of([only], [host("kvm2", 300)], {only.uuid: "kvm9"}) == {"guest1": "kvm9"}


def test_an_unplaced_domain_has_a_verdict_of_every_host() -> None:
    placement = plan_placements([request(1, 900)], fleet(host("kvm2", 300), host("kvm3", 100)))[0]
    assert placement.destination is None
    assert {verdict.host for verdict in placement.verdicts} == {"kvm2", "kvm3"}
    assert all(verdict.reason for verdict in placement.verdicts)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 500), max_size=12), st.lists(st.integers(0, 1500), min_size=1, max_size=5), st.integers(0, 99))
def test_no_host_exceeds_its_capacity_whatever_the_order_of_the_input(sizes: list[int], rooms: list[int], seed: int) -> None:
    requests = [request(number, mib) for number, mib in enumerate(sizes)]
    hosts = [host(f"kvm{number + 2}", mib) for number, mib in enumerate(rooms)]
    found = destinations_of(requests, hosts)
    for candidate in hosts:
        assert sum(one.memory_mib for one in requests if found[one.name] == candidate.name) <= candidate.capacity_mib
    for one in requests:
        if found[one.name] is None:
            taken = {name: sum(other.memory_mib for other in requests if found[other.name] == name) for name in {h.name for h in hosts}}
            assert all(one.memory_mib > candidate.capacity_mib - taken[candidate.name] for candidate in hosts)
    shuffled = random.Random(seed)
    shuffled.shuffle(requests)
    shuffled.shuffle(hosts)
    assert destinations_of(requests, hosts) == found
