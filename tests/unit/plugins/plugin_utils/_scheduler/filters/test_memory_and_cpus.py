# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, judge_with, record, request


@pytest.mark.parametrize(("used", "passes"), [(8192 - 1024, True), (8192 - 1023, False), (8192, False)])
def test_memory_fits_exactly_and_not_one_mib_more(used: int, passes: bool) -> None:
    finding = judge_with("memory", request(memory_mib=1024), host("kvm2", domain("db1", used)))
    assert (finding.reason is None) == passes


def test_the_reason_has_the_missing_mib_of_memory() -> None:
    finding = judge_with("memory", request(memory_mib=1024), host("kvm2", domain("db1", 7200)))
    assert finding.reason == ("It is 32 MiB short of memory: 1024 MiB are needed, 992 MiB of 8192 MiB are free (512 MiB are reserved for the host itself).")


@pytest.mark.parametrize(("memory_mib", "passes"), [(8704, True), (8705, False)])
def test_no_ratio_permits_a_domain_larger_than_the_host(memory_mib: int, passes: bool) -> None:
    finding = judge_with("memory", request(memory_mib=memory_mib), host(settings={"ram_allocation_ratio": 16}))
    assert (finding.reason is None) == passes
    assert passes or "the whole host has 8704 MiB" in str(finding.reason)


def test_memory_of_incoming_moves_is_reserved() -> None:
    coming = record("db1", "kvm3", "kvm2", "scheduled", memory_mib=7168)
    assert judge_with("memory", request(memory_mib=1024), host(records=[coming])).reason is None
    coming = record("db1", "kvm3", "kvm2", "scheduled", memory_mib=7169)
    assert "1 MiB short" in str(judge_with("memory", request(memory_mib=1024), host(records=[coming])).reason)


def test_the_reservation_of_the_domain_itself_does_not_count() -> None:
    own = record("web1", "kvm1", "kvm2", "queued", memory_mib=8192, vcpus=16)
    there = host(records=[own])
    assert judge_with("memory", request(memory_mib=8192), there).reason is None
    assert judge_with("cpus", request(vcpus=16), there).reason is None


@pytest.mark.parametrize(("vcpus", "passes"), [(4, True), (5, False)])
def test_vcpus_fit_exactly_by_the_ratio_of_four(vcpus: int, passes: bool) -> None:
    there = host("kvm2", *(domain(f"db{number}", vcpus=15) for number in range(4)))
    assert (judge_with("cpus", request(vcpus=vcpus), there).reason is None) == passes


@pytest.mark.parametrize(("vcpus", "passes"), [(16, True), (17, False)])
def test_a_domain_has_no_more_vcpus_than_the_host_has_cpus(vcpus: int, passes: bool) -> None:
    finding = judge_with("cpus", request(vcpus=vcpus), host())
    assert (finding.reason is None) == passes
    assert passes or finding.reason == "web1 has 17 vCPUs, the whole host has 16 CPUs."


def test_reserved_cpus_and_ratio_are_settings_of_the_host() -> None:
    there = host("kvm2", domain("db1", vcpus=6), settings={"cpu_allocation_ratio": 0.5, "reserved_cpus": 2})
    assert judge_with("cpus", request(vcpus=1), there).reason is None
    assert str(judge_with("cpus", request(vcpus=2), there).reason).startswith("It is 1 vCPUs short: 2 are needed, 1 of 7 are free")
