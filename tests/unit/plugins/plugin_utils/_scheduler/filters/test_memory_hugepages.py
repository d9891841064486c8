# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, judge_with, record, request

SMALL, LARGE = 2048, 1048576


def pool(mib: int, size_kib: int = LARGE, free_mib: int | None = None, total_mib: int = 8704) -> list[dict[str, t.Any]]:
    """One NUMA cell, the whole host, with so much memory in huge pages."""
    pages = [{"size_kib": size_kib, "total": mib * 1024 // size_kib, "free": (mib if free_mib is None else free_mib) * 1024 // size_kib}]
    return [{"id": 0, "total_mib": total_mib, "free_mib": total_mib, "cpus": [0], "pages": pages}]


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


@pytest.mark.parametrize(("memory_mib", "passes"), [(2048, True), (2049, False)])
def test_an_ordinary_guest_does_not_fit_in_memory_that_is_in_huge_pages(memory_mib: int, passes: bool) -> None:
    finding = judge_with("memory", request(memory_mib=memory_mib), host(numa_cells=pool(6144)))
    assert (finding.reason is None) == passes
    assert passes or finding.reason == (
        "It is 1 MiB short of memory: 2049 MiB are needed, 2048 MiB of 2048 MiB are free "
        "(512 MiB are reserved for the host itself, and 6144 MiB are huge pages)."
    )


def test_no_ratio_permits_a_guest_larger_than_the_memory_beside_the_huge_pages() -> None:
    finding = judge_with("memory", request(memory_mib=2561), host(numa_cells=pool(6144), settings={"ram_allocation_ratio": 16}))
    assert finding.reason == "web1 has 2561 MiB of memory outside of huge pages, the whole host has 2560 MiB."


def test_what_is_reserved_for_the_host_takes_no_huge_pages() -> None:
    there = host(numa_cells=pool(6144), settings={"reserved_memory_mib": 2560})
    huge = request(memory_mib=6144, hugepages=pages(6144, LARGE))
    assert judge_with("memory", huge, there).reason is None
    assert judge_with("hugepages", huge, there).reason is None
    assert judge_with("memory", request(memory_mib=1), there).reason


def test_of_a_guest_that_is_in_huge_pages_in_part_the_rest_counts() -> None:
    there = host(numa_cells=pool(6144))
    assert judge_with("memory", request(memory_mib=6144 + 2048, hugepages=pages(6144, LARGE)), there).reason is None
    assert "1 MiB short of memory: 2049 MiB are needed" in str(
        judge_with("memory", request(memory_mib=6144 + 2049, hugepages=pages(6144, LARGE)), there).reason
    )


def test_guests_in_huge_pages_leave_the_other_memory_free() -> None:
    there = host("kvm2", domain("db1", 4096, hugepages=pages(4096, LARGE)), numa_cells=pool(6144, free_mib=2048))
    assert judge_with("memory", request(memory_mib=2048), there).reason is None
    coming = host(numa_cells=pool(6144), records=[record("db1", "kvm3", "kvm2", memory_mib=4096, hugepages=pages(4096, LARGE))])
    assert judge_with("memory", request(memory_mib=2048), coming).reason is None
    assert judge_with("hugepages", request(memory_mib=3072, hugepages=pages(3072, LARGE)), coming).reason


@pytest.mark.parametrize("numa_cells", [None, pool(0)])
def test_on_a_host_without_known_huge_pages_all_memory_counts(numa_cells: t.Any) -> None:
    there = host("kvm2", domain("db1", 8000, hugepages=pages(8000)), numa_cells=numa_cells)
    assert judge_with("memory", request(memory_mib=192), there).reason is None
    assert judge_with("memory", request(memory_mib=193), there).reason
    assert judge_with("memory", request(memory_mib=193, hugepages=pages(193)), there).reason


def test_a_guest_in_huge_pages_is_not_refused_for_other_memory_that_is_overcommitted() -> None:
    there = host("kvm2", domain("db1", 4096), numa_cells=pool(6144))
    assert judge_with("memory", request(memory_mib=1024, hugepages=pages(1024, LARGE)), there).reason is None
    assert judge_with("memory", request(memory_mib=1), there).reason


def bound(*nodes: int) -> dict[str, t.Any]:
    return {"mode": "strict", "nodeset": list(nodes), "cells": []}


def test_memory_that_is_bound_to_a_cell_does_not_fit_in_its_huge_pages() -> None:
    there = host(numa_cells=cells(3072, total=3072))
    assert judge_with("numa", request(memory_mib=2048, numa=bound(0)), there).reason is None
    assert "cell 0 would have to be 1 MiB larger, beside its huge pages, to hold web1" in str(
        judge_with("numa", request(memory_mib=2049, numa=bound(0)), there).reason
    )
    used = host("kvm2", domain("db1", 1024, numa=bound(0)), domain("db2", 6144, numa=bound(0), hugepages=pages(6144)), numa_cells=cells(3072, total=3072))
    assert judge_with("numa", request(memory_mib=1024, numa=bound(0)), used).reason is None
    assert judge_with("numa", request(memory_mib=1025, numa=bound(0)), used).reason == (
        "It is 1 MiB short of memory on NUMA cell 0, to which db1 is bound too."
    )


def test_guests_in_huge_pages_share_the_pages_of_their_cells() -> None:
    there = host("kvm2", domain("db1", 4096, numa=bound(0), hugepages=pages(4096)), domain("db2", 2048, numa=bound(0)), numa_cells=cells(3072, total=3072))
    assert judge_with("numa", request(memory_mib=2048, numa=bound(0), hugepages=pages(2048)), there).reason is None
    assert judge_with("numa", request(memory_mib=2050, numa=bound(0), hugepages=pages(2050)), there).reason == (
        "It is 2 MiB short of huge pages on NUMA cell 0, to which db1 is bound too."
    )
    assert judge_with("numa", request(memory_mib=6146, numa=bound(0), hugepages=pages(6146)), there).reason == (
        "It has 2 MiB too few huge pages on NUMA cell 0 to hold web1 at all."
    )


def test_of_a_bound_guest_that_is_in_huge_pages_in_part_each_part_has_its_own_memory() -> None:
    own = [{"id": number, "memory_mib": mib, "vcpus": [number], "nodeset": [0]} for number, mib in ((0, 6144), (1, 2048))]
    asked = request(memory_mib=8192, numa={**bound(0), "cells": own}, hugepages=pages(6144))
    assert judge_with("numa", asked, host(numa_cells=cells(3072, total=3072))).reason is None
    assert judge_with("numa", asked, host("kvm2", domain("db1", 1, numa=bound(0)), numa_cells=cells(3072, total=3072))).reason
    assert judge_with("numa", asked, host("kvm2", domain("db1", 2, numa=bound(0), hugepages=pages(2)), numa_cells=cells(3072, total=3072))).reason
