# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.host_state import HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.planner import plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request


def host(name: str, mib: int) -> HostState:
    return HostState(name, f"uuid-{name}", total_mib=mib + 512)


def request(number: int, mib: int) -> Request:
    return Request(f"00000000-0000-4000-8000-{number:012d}", f"guest{number}", "kvm1", "uuid-kvm1", mib)


def where(requests: list[Request], hosts: list[HostState], pinned: dict[str, str] | None = None) -> dict[str, str | None]:
    return {placement.request.name: placement.destination for placement in plan(requests, hosts, pinned)}


def test_the_largest_goes_first_so_that_all_fit() -> None:
    assert where([request(1, 100), request(2, 100), request(3, 300)], [host("kvm2", 300), host("kvm3", 200)]) == {
        "guest3": "kvm2",
        "guest1": "kvm3",
        "guest2": "kvm3",
    }


def test_every_placement_counts_for_the_next() -> None:
    assert where([request(1, 200), request(2, 200)], [host("kvm2", 300)]) == {"guest1": "kvm2", "guest2": None}


def test_equal_guests_are_spread() -> None:
    found = where([request(number, 100) for number in range(4)], [host("kvm2", 1000), host("kvm3", 1000)])
    assert sorted(filter(None, found.values())) == ["kvm2", "kvm2", "kvm3", "kvm3"]


def test_a_pinned_domain_is_placed_first_and_takes_its_memory() -> None:
    first, second = request(1, 200), request(2, 250)
    found = where([first, second], [host("kvm2", 300), host("kvm3", 100)], {first.uuid: "kvm2"})
    assert found == {"guest1": "kvm2", "guest2": None}


def test_a_pin_to_a_host_that_is_no_candidate_is_kept() -> None:
    only = request(1, 200)
    assert where([only], [host("kvm2", 300)], {only.uuid: "kvm9"}) == {"guest1": "kvm9"}


def test_an_unplaced_domain_has_a_verdict_of_every_host() -> None:
    placement = plan([request(1, 900)], [host("kvm2", 300), host("kvm3", 100)])[0]
    assert placement.destination is None
    assert {verdict.host for verdict in placement.verdicts} == {"kvm2", "kvm3"}
    assert all(verdict.reason for verdict in placement.verdicts)


@given(st.lists(st.integers(1, 500), max_size=12), st.lists(st.integers(0, 1500), min_size=1, max_size=5), st.integers(0, 99))
def test_no_host_is_overbooked_and_the_order_of_the_input_is_of_no_account(sizes: list[int], rooms: list[int], seed: int) -> None:
    requests = [request(number, mib) for number, mib in enumerate(sizes)]
    hosts = [host(f"kvm{number + 2}", mib) for number, mib in enumerate(rooms)]
    found = where(requests, hosts)
    for candidate in hosts:
        assert sum(one.memory_mib for one in requests if found[one.name] == candidate.name) <= candidate.capacity_mib
    for one in requests:
        if found[one.name] is None:
            taken = {name: sum(other.memory_mib for other in requests if found[other.name] == name) for name in {h.name for h in hosts}}
            assert all(one.memory_mib > candidate.capacity_mib - taken[candidate.name] for candidate in hosts)
    shuffled = random.Random(seed)
    shuffled.shuffle(requests)
    shuffled.shuffle(hosts)
    assert where(requests, hosts) == found
