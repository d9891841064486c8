# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, judge_with, record, request

SMALL, LARGE = 2048, 1048576


def cells(*free: int, size_kib: int = SMALL, total: int = 1024) -> list[dict[str, t.Any]]:
    """NUMA cells with so many free pages each."""
    return [
        {"id": number, "total_mib": 8192, "free_mib": 8192, "cpus": [number], "pages": [{"size_kib": size_kib, "total": total, "free": count}]}
        for number, count in enumerate(free)
    ]


def pages(mib: int, size_kib: int | None = SMALL) -> list[dict[str, t.Any]]:
    return [{"size_kib": size_kib, "mib": mib}]


@pytest.mark.parametrize(("mib", "passes"), [(1024, True), (1025, False)])
@pytest.mark.parametrize("size_kib", [SMALL, None])
def test_hugepages_may_use_all_free_pages_exactly(mib: int, passes: bool, size_kib: int | None) -> None:
    finding = judge_with("hugepages", request(hugepages=pages(mib, size_kib)), host(numa_cells=cells(512)))
    assert (finding.reason is None) == passes
    assert passes or finding.reason == "It is 1 MiB short of huge pages of 2 MiB: 1025 MiB are needed, 1024 MiB are free."


def test_the_memory_ratio_does_not_apply_to_hugepages() -> None:
    assert judge_with("hugepages", request(hugepages=pages(1025)), host(numa_cells=cells(512), settings={"ram_allocation_ratio": 9})).reason


def test_free_pages_of_another_size_do_not_count() -> None:
    reason = judge_with("hugepages", request(hugepages=pages(1024, LARGE)), host(numa_cells=cells(512))).reason
    assert "short of huge pages of 1 GiB" in str(reason)


@pytest.mark.parametrize(("booked", "passes"), [(512, True), (514, False)])
def test_reserved_hugepages_are_subtracted(booked: int, passes: bool) -> None:
    coming = record("db1", "kvm3", "kvm2", hugepages=pages(booked))
    finding = judge_with("hugepages", request(hugepages=pages(512)), host(numa_cells=cells(512), records=[coming]))
    assert (finding.reason is None) == passes


def test_hugepages_of_a_domain_on_the_host_are_not_subtracted_twice() -> None:
    there = host("kvm2", domain("db1", hugepages=pages(900)), numa_cells=cells(512), records=[record("db1", "kvm3", "kvm2", "running", hugepages=pages(900))])
    assert judge_with("hugepages", request(hugepages=pages(1024)), there).reason is None


def test_hugepages_of_a_domain_that_left_are_free() -> None:
    there = host("kvm2", domain("db1", hugepages=pages(900)), numa_cells=cells(62))
    assert judge_with("hugepages", request(hugepages=pages(1024)), there).reason
    left = there.without_domain(there.guests.keys().__iter__().__next__())
    assert judge_with("hugepages", request(hugepages=pages(1024)), left).reason is None
    assert judge_with("hugepages", request(hugepages=pages(1025)), left).reason


def test_hugepages_are_counted_on_the_bound_numa_cells() -> None:
    numa = {"mode": "strict", "nodeset": [1], "cells": []}
    there = host(numa_cells=cells(512, 256))
    assert judge_with("hugepages", request(hugepages=pages(512), numa=numa), there).reason is None
    assert "on NUMA cell 1" in str(judge_with("hugepages", request(hugepages=pages(514), numa=numa), there).reason)
    assert judge_with("hugepages", request(hugepages=pages(1536)), there).reason is None


def test_a_reservation_without_a_numa_binding_counts_for_all_cells_together() -> None:
    numa = {"mode": "strict", "nodeset": [1], "cells": []}
    coming = record("db1", "kvm3", "kvm2", hugepages=pages(1400))
    there = host(numa_cells=cells(512, 256), records=[coming])
    assert judge_with("hugepages", request(hugepages=pages(136), numa=numa), there).reason is None
    assert judge_with("hugepages", request(hugepages=pages(138), numa=numa), there).reason


def test_a_reservation_counts_on_its_bound_numa_cells() -> None:
    here, elsewhere = ({"mode": "strict", "nodeset": [cell], "cells": []} for cell in (1, 0))
    coming = record("db1", "kvm3", "kvm2", hugepages=pages(256), numa=here)
    there = host(numa_cells=cells(512, 256), records=[coming])
    assert judge_with("hugepages", request(hugepages=pages(256), numa=here), there).reason is None
    assert judge_with("hugepages", request(hugepages=pages(258), numa=here), there).reason
    assert judge_with("hugepages", request(hugepages=pages(1024), numa=elsewhere), there).reason is None


def test_a_reservation_of_another_page_size_does_not_count() -> None:
    both = cells(512)
    both[0]["pages"].append({"size_kib": LARGE, "total": 4, "free": 4})
    there = host(numa_cells=both, records=[record("db1", "kvm3", "kvm2", hugepages=pages(4096, LARGE))])
    assert judge_with("hugepages", request(hugepages=pages(1024)), there).reason is None
    assert judge_with("hugepages", request(hugepages=pages(1024, LARGE)), there).reason
    unsaid = host(numa_cells=both, records=[record("db1", "kvm3", "kvm2", hugepages=pages(2, None))])
    assert judge_with("hugepages", request(hugepages=pages(1024)), unsaid).reason
    assert judge_with("hugepages", request(hugepages=pages(4096, LARGE)), unsaid).reason


def test_a_host_without_hugepages_is_refused() -> None:
    assert judge_with("hugepages", request(hugepages=pages(2)), host()).reason == "It has no huge pages, which the memory of web1 needs."


def test_unknown_numa_cells_or_page_sizes_are_a_warning() -> None:
    assert judge_with("hugepages", request(hugepages=pages(2)), host(numa_cells=None)).warnings
    both = cells(512)
    both[0]["pages"].append({"size_kib": LARGE, "total": 4, "free": 4})
    finding = judge_with("hugepages", request(hugepages=pages(2, None)), host(numa_cells=both))
    assert finding.reason is None
    assert "pages of 2 MiB, 1 GiB" in finding.warnings[0]


def test_a_guest_without_hugepages_passes() -> None:
    assert judge_with("hugepages", request(), host(numa_cells=None)).warnings == ()
