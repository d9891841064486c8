# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import decide, guest, host, hosts, routes

APART = {"name": "apart", "policy": "anti-affinity"}
TOGETHER = {"name": "together", "policy": "affinity"}


def test_domains_that_must_be_apart_are_separated_the_smallest_first() -> None:
    guests = [guest("big", 0.1, 8192, group=APART), guest("small", 0.1, 1024, group=APART)]
    balance = decide(hosts(host("kvm1", *guests), host("kvm2", guest("o", 2.0)), host("kvm3")))
    assert [(name, source) for name, source, _to in routes(balance)] == [("small", "kvm1")]
    assert balance.moves[0].why == "Its group apart must be apart."
    assert balance.broken == ()


def test_another_member_moves_if_the_smallest_may_not() -> None:
    guests = [guest("big", 0.1, 8192, group=APART), guest("small", 0.1, 1024, group=APART, drain="leave")]
    assert [name for name, _source, _to in routes(decide(hosts(host("kvm1", *guests), host("kvm2"))))] == ["big"]


def test_a_group_that_cannot_be_separated_is_named() -> None:
    guests = [guest("one", 0.1, group=APART), guest("two", 0.1, group=APART)]
    balance = decide(hosts(host("kvm1", *guests), host("kvm2", guest("three", 0.1, group=APART))))
    assert not balance.moves
    assert balance.broken == ("The group apart stays together on kvm1: 1 more of its domains would have to leave, and none of them can.",)


def test_domains_that_must_be_together_are_united_where_most_of_their_memory_is() -> None:
    facts = hosts(host("kvm1", guest("a", 0.1, 1024, group=TOGETHER)), host("kvm2", guest("b", 0.1, 8192, group=TOGETHER)), host("kvm3"))
    balance = decide(facts)
    assert routes(balance) == [("a", "kvm1", "kvm2")]
    assert balance.moves[0].why == "Its group together must be together."


def test_a_group_is_united_on_another_of_its_hosts_if_the_first_is_full() -> None:
    facts = hosts(host("kvm1", guest("a", 0.1, 4096, group=TOGETHER)), host("kvm2", guest("b", 0.1, 8192, group=TOGETHER), memory_mib=10240))
    assert routes(decide(facts)) == [("b", "kvm2", "kvm1")]


def test_a_group_that_cannot_be_united_is_named() -> None:
    facts = hosts(host("kvm1", guest("a", 0.1, 4096, group=TOGETHER), memory_mib=6144), host("kvm2", guest("b", 0.1, 8192, group=TOGETHER), memory_mib=10240))
    balance = decide(facts)
    assert not balance.moves
    assert balance.broken == ("The group together stays apart: a cannot move to kvm2.",)


def test_an_overcommitted_host_loses_the_smallest_domain_that_suffices() -> None:
    guests = [guest("a", 0.1, 1024), guest("b", 0.1, 3072), guest("c", 0.1, 8192)]
    balance = decide(hosts(host("kvm1", *guests, memory_mib=10240), host("kvm2")))
    assert routes(balance) == [("b", "kvm1", "kvm2")]
    assert balance.moves[0].why == "kvm1 is overcommitted by 2048 MiB of memory."


def test_promised_vcpus_count_like_memory() -> None:
    balance = decide(hosts(host("kvm1", guest("a", 0.1, vcpus=4), guest("b", 0.1, vcpus=1), cpus=1), host("kvm2")))
    assert routes(balance) == [("b", "kvm1", "kvm2")]
    assert balance.moves[0].why == "kvm1 is overcommitted by 1 vCPUs."


def test_an_overcommitted_host_whose_domains_cannot_leave_is_named() -> None:
    balance = decide(hosts(host("kvm1", guest("a", 0.1, 8192, drain="leave"), memory_mib=4096), host("kvm2")))
    assert balance.broken == ("kvm1 stays overcommitted: 4096 MiB of memory would have to leave, and no domain can.",)


def test_repairs_come_before_moves_that_pay_and_count_as_moves() -> None:
    busy = [guest(f"g{number}", 4.0, priority=10) for number in range(5)]
    broken = [guest("one", 0.1, 1024, group=APART), guest("two", 0.1, 1024, group=APART)]
    facts = hosts(host("kvm1", *busy), host("kvm2", *broken), host("kvm3"))
    balance = decide(facts)
    assert [bool(move.why) for move in balance.moves][:2] == [True, False]
    assert [bool(move.why) for move in decide(facts, max_moves=1).moves] == [True]


def test_the_rest_of_a_group_of_which_only_one_may_move_stays_and_says_why() -> None:
    here = [guest(name, 4.0, 1024, group=TOGETHER) for name in ("a", "b", "c", "d", "e")]
    facts = hosts(host("kvm1", *here), host("kvm2", guest("f", 0.1, 16384, group=TOGETHER)))
    balance = decide(facts, max_moves=1, tolerated_pressure=0.0)
    ((moved, _source, destination),) = routes(balance)
    rest = sorted({"a", "b", "c", "d", "e"} - {moved})
    assert destination == "kvm2"
    assert sorted(one.name for one in balance.left) == rest
    assert balance.broken == (f"The group together stays apart: {', '.join(rest)} cannot move to kvm2.",)


def test_a_guest_in_huge_pages_does_not_leave_a_host_that_has_too_little_other_memory() -> None:
    guests = [guest("a", 0.1, 4096, hugepages=[{"size_kib": 2048, "mib": 4096}]), guest("b", 0.1, 3072), guest("c", 0.1, 8192)]
    full, there = host("kvm1", *guests, memory_mib=10240 + 4096), host("kvm2")
    for one, free in ((full, 0), (there, 2048)):
        one["numa_cells"] = [{**one["numa_cells"][0], "pages": [{"size_kib": 2048, "total": 2048, "free": free}]}]
    balance = decide(hosts(full, there))
    assert routes(balance) == [("b", "kvm1", "kvm2")]
    assert balance.moves[0].why == "kvm1 is overcommitted by 1024 MiB of memory."
