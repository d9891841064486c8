# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.load import HostUse, has_signals, read_uses
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.pressure import CPU, IO, KNEES, MEMORY, VCPUS, share_at
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import read_facts
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import Document, guest, host


def use_of(*facts: Document) -> list[HostUse]:
    return read_uses({one["name"]: HostState.from_facts(one["name"], read_facts(one)) for one in facts})


def test_the_use_of_a_host_without_pressure_information_is_what_it_uses() -> None:
    (use,) = use_of(host("kvm1", guest("g1", 3.0), guest("g2", 5.0), memory_mib=65536 - 512))
    assert not use.is_measured
    assert use.shares[CPU] == 0.5
    assert use.shares[MEMORY] == pytest.approx(8192 / 65536)
    assert use.shares[VCPUS] == pytest.approx(8 / 64)
    assert [one.amounts for one in use.guests] == [(3.0, 4096.0, 0.0, 4.0), (5.0, 4096.0, 0.0, 4.0)]


def test_the_pressure_of_a_host_decides_what_its_use_is_worth() -> None:
    (use,) = use_of(host("kvm1", guest("g1", 3.0), pressure=0.4))
    assert use.is_measured
    assert use.shares[CPU] == pytest.approx(share_at(0.4, CPU))


def test_guests_that_were_not_measured_share_the_rest_by_their_vcpus() -> None:
    facts = host("kvm1", guest("g1", 2.0), guest("g2", 3.0, vcpus=1), guest("g3", 3.0, vcpus=3))
    for domain in facts["domains"][1:]:
        domain["load"] = None
    (use,) = use_of(facts)
    assert [one.amounts[CPU] for one in use.guests] == [2.0, 1.5, 4.5]


def test_a_guest_counts_with_what_it_has_written_or_else_with_all_of_its_memory() -> None:
    facts = host("kvm1", guest("g1", 1.0), guest("g2", 1.0))
    facts["domains"][0] |= {"load": {"cpu_cores_used": 1.0}, "used_mib": 1000}
    facts["domains"][1] |= {"load": {"cpu_cores_used": 1.0}}
    (use,) = use_of(facts)
    assert [one.amounts[MEMORY] for one in use.guests] == [1000.0, 4096.0]


def test_the_busiest_host_without_pressure_carries_what_any_host_can() -> None:
    busy, idle = host("kvm1", guest("g1", 1.0)), host("kvm2", guest("g2", 1.0))
    busy["domains"][0]["load"] |= {"network_bytes_per_second": 60e6, "disk_bytes_per_second": 10e6}
    idle["domains"][0]["load"] |= {"disk_bytes_per_second": 7e6}
    one, other = use_of(busy, idle)
    assert one.shares[IO] == pytest.approx(KNEES[IO])
    assert other.shares[IO] == pytest.approx(KNEES[IO] / 10)


def test_a_host_with_pressure_shows_how_much_hosts_can_carry() -> None:
    busy, idle = host("kvm1", guest("g1", 1.0)), host("kvm2", guest("g2", 1.0))
    busy["load"]["io_pressure"] = 0.25
    busy["domains"][0]["load"] |= {"disk_bytes_per_second": 85e6}
    idle["domains"][0]["load"] |= {"disk_bytes_per_second": 10e6}
    one, other = use_of(busy, idle)
    assert (one.shares[IO], other.shares[IO]) == (pytest.approx(0.85), pytest.approx(0.1))


@pytest.mark.parametrize(
    ("load", "cores", "is_known"),
    [
        ({"cpu_pressure": 0.0}, None, True),
        ({"cpu_used_share": 0.0}, None, True),
        ({"cpu_pressure": None, "memory_pressure": 0.1}, None, False),
        ({}, 1.0, True),
        (None, None, False),
    ],
)
def test_the_processors_decide_whether_a_host_has_signals(load: Document | None, cores: float | None, is_known: bool) -> None:
    facts = host("kvm1", guest("g1", 1.0))
    facts["load"], facts["domains"][0]["load"] = load, {"cpu_cores_used": cores}
    assert has_signals(read_facts(facts)) is is_known


def test_huge_pages_are_no_part_of_the_memory_that_is_balanced() -> None:
    facts = host("kvm1", guest("g1", 1.0, hugepages=[{"size_kib": 2048, "mib": 4096}]), guest("g2", 1.0), memory_mib=16384 - 512)
    facts["numa_cells"] = [{**facts["numa_cells"][0], "pages": [{"size_kib": 2048, "total": 4096, "free": 2048}]}]
    facts["load"]["memory_used_mib"] = 8192 + 4096 + 512
    (use,) = use_of(facts)
    assert [one.amounts[MEMORY] for one in use.guests] == [0.0, 4096.0]
    assert use.capacity[MEMORY] == 8192
    assert use.shares[MEMORY] == pytest.approx(4608 / 8192)
