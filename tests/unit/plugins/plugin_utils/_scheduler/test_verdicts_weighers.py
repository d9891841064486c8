# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_WEIGHERS, weigh_hosts
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import HostState, Request, domain, fleet, host, record, request

WEIGHERS = {weigher.name: weigher for weigher in DEFAULT_WEIGHERS}


def raw_weight(name: str, asked: Request, there: HostState, *others: HostState) -> float:
    return WEIGHERS[name].raw_weights(asked, [there], fleet(there, *others))[0]


def test_free_memory_and_free_cpu_exclude_the_domain_itself() -> None:
    there = host("kvm2", domain("db1", 512, 2), records=[record("web1", "kvm1", "kvm2", memory_mib=700, vcpus=3)])
    assert raw_weight("free_memory", request(), there) == 8192 - 512
    assert raw_weight("free_cpu", request(), there) == 64 - 2


@pytest.mark.parametrize(("policy", "expected"), [("soft-affinity", 2), ("soft-anti-affinity", -2), ("affinity", 0), ("anti-affinity", 0)])
def test_soft_groups_count_the_other_members(policy: str, expected: int) -> None:
    group = {"name": "web", "policy": policy}
    booked = record("web1", "kvm1", "kvm2", group=group)
    there = host("kvm2", domain("web2", group=group), domain("web3", group=group), records=[booked])
    assert raw_weight("soft_groups", request(group=group), there) == expected
    assert raw_weight("soft_groups", request(), there) == 0


def test_the_moves_weigher_counts_started_moves_in_both_directions() -> None:
    records = [record("a", "kvm1", "kvm2", "running"), record("b", "kvm2", "kvm3", "running"), record("c", "kvm1", "kvm2", "queued")]
    assert raw_weight("moves", request(), host(records=records)) == 2
    assert raw_weight("moves", request("a"), host(records=records)) == 1


def test_weights_are_normalized_over_the_hosts_that_passed() -> None:
    hosts = [host("a", memory_mib=1000, cpus=8), host("b", memory_mib=2000, cpus=12), host("c", memory_mib=3000, cpus=16)]
    assert weigh_hosts(request(), hosts, fleet(*hosts)) == {"a": 0.0, "b": 1.0, "c": 2.0}
    assert weigh_hosts(request(), hosts[:2], fleet(*hosts)) == {"a": 0.0, "b": 2.0}


def test_equal_hosts_have_the_weight_zero() -> None:
    hosts = [host("a"), host("b")]
    assert weigh_hosts(request(), hosts, fleet(*hosts)) == {"a": 0.0, "b": 0.0}
    assert weigh_hosts(request(), hosts[:1], fleet(*hosts)) == {"a": 0.0}
    assert weigh_hosts(request(), [], fleet()) == {}


def test_multipliers_of_a_host_apply_to_its_own_weights() -> None:
    wish = {"weights": {"free_memory": 3, "free_cpu": 0}}
    hosts = [host("a", memory_mib=1000), host("b", memory_mib=2000, settings=wish), host("c", memory_mib=3000)]
    assert weigh_hosts(request(), hosts, fleet(*hosts)) == {"a": 0.0, "b": 1.5, "c": 1.0}


def test_a_host_with_running_moves_has_a_lower_weight() -> None:
    busy = host("a", records=[record("x", "kvm1", "a", "running", memory_mib=1)], settings={"weights": {"free_memory": 0, "free_cpu": 0}})
    idle = host("b", settings={"weights": {"free_memory": 0, "free_cpu": 0}})
    assert weigh_hosts(request(), [busy, idle], fleet(busy, idle)) == {"a": -1.0, "b": 0.0}


def test_free_memory_is_that_of_the_kind_that_the_domain_needs() -> None:
    pages = [{"size_kib": 2048, "mib": 1024}]
    cells = [{"id": 0, "total_mib": 8704, "free_mib": 8704, "cpus": [0], "pages": [{"size_kib": 2048, "total": 2048, "free": 1536}]}]
    coming = record("db1", "kvm1", "kvm2", memory_mib=512, hugepages=[{"size_kib": 2048, "mib": 512}])
    there = host("kvm2", domain("web2", 96), numa_cells=cells, records=[coming])
    assert raw_weight("free_memory", request(), there) == 4000
    assert raw_weight("free_memory", request(memory_mib=1024, hugepages=pages), there) == 2560
    assert raw_weight("free_memory", request(memory_mib=1025, hugepages=pages), there) == 2560 + 4000
    assert raw_weight("free_memory", request(memory_mib=1024, hugepages=pages), host("kvm2", numa_cells=None)) == 8192
