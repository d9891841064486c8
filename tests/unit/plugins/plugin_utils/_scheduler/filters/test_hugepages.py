# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, judged, record, request

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
def test_free_pages_fit_exactly(mib: int, passes: bool, size_kib: int | None) -> None:
    finding = judged("hugepages", request(hugepages=pages(mib, size_kib)), host(numa_cells=cells(512)))
    assert (finding.reason is None) == passes
    assert passes or finding.reason == "It is 1 MiB short of huge pages of 2 MiB: 1025 MiB are needed, 1024 MiB are free."


def test_no_ratio_makes_more_pages() -> None:
    assert judged("hugepages", request(hugepages=pages(1025)), host(numa_cells=cells(512), settings={"ram_allocation_ratio": 9})).reason


def test_pages_of_another_size_are_no_help() -> None:
    reason = judged("hugepages", request(hugepages=pages(1024, LARGE)), host(numa_cells=cells(512))).reason
    assert "short of huge pages of 1 GiB" in str(reason)


@pytest.mark.parametrize(("booked", "passes"), [(512, True), (514, False)])
def test_what_is_booked_and_has_not_come_is_taken_off(booked: int, passes: bool) -> None:
    coming = record("db1", "kvm3", "kvm2", hugepages=pages(booked))
    finding = judged("hugepages", request(hugepages=pages(512)), host(numa_cells=cells(512), records=[coming]))
    assert (finding.reason is None) == passes


def test_what_is_there_is_no_longer_among_the_free() -> None:
    there = host("kvm2", domain("db1", hugepages=pages(900)), numa_cells=cells(512), records=[record("db1", "kvm3", "kvm2", "running", hugepages=pages(900))])
    assert judged("hugepages", request(hugepages=pages(1024)), there).reason is None


def test_what_has_left_since_is_free_again() -> None:
    there = host("kvm2", domain("db1", hugepages=pages(900)), numa_cells=cells(62))
    assert judged("hugepages", request(hugepages=pages(1024)), there).reason
    left = there.without(there.guests.keys().__iter__().__next__())
    assert judged("hugepages", request(hugepages=pages(1024)), left).reason is None
    assert judged("hugepages", request(hugepages=pages(1025)), left).reason


def test_pages_are_counted_on_the_cells_that_the_guest_is_bound_to() -> None:
    numa = {"mode": "strict", "nodeset": [1], "cells": []}
    there = host(numa_cells=cells(512, 256))
    assert judged("hugepages", request(hugepages=pages(512), numa=numa), there).reason is None
    assert "on NUMA cell 1" in str(judged("hugepages", request(hugepages=pages(514), numa=numa), there).reason)
    assert judged("hugepages", request(hugepages=pages(1536)), there).reason is None


def test_a_booking_for_anywhere_counts_for_all_cells_together() -> None:
    numa = {"mode": "strict", "nodeset": [1], "cells": []}
    coming = record("db1", "kvm3", "kvm2", hugepages=pages(1400))
    there = host(numa_cells=cells(512, 256), records=[coming])
    assert judged("hugepages", request(hugepages=pages(136), numa=numa), there).reason is None
    assert judged("hugepages", request(hugepages=pages(138), numa=numa), there).reason


def test_a_booking_counts_on_the_cells_that_it_is_bound_to() -> None:
    here, elsewhere = ({"mode": "strict", "nodeset": [cell], "cells": []} for cell in (1, 0))
    coming = record("db1", "kvm3", "kvm2", hugepages=pages(256), numa=here)
    there = host(numa_cells=cells(512, 256), records=[coming])
    assert judged("hugepages", request(hugepages=pages(256), numa=here), there).reason is None
    assert judged("hugepages", request(hugepages=pages(258), numa=here), there).reason
    assert judged("hugepages", request(hugepages=pages(1024), numa=elsewhere), there).reason is None


def test_a_booking_of_pages_of_another_size_takes_none_of_these() -> None:
    both = cells(512)
    both[0]["pages"].append({"size_kib": LARGE, "total": 4, "free": 4})
    there = host(numa_cells=both, records=[record("db1", "kvm3", "kvm2", hugepages=pages(4096, LARGE))])
    assert judged("hugepages", request(hugepages=pages(1024)), there).reason is None
    assert judged("hugepages", request(hugepages=pages(1024, LARGE)), there).reason
    unsaid = host(numa_cells=both, records=[record("db1", "kvm3", "kvm2", hugepages=pages(2, None))])
    assert judged("hugepages", request(hugepages=pages(1024)), unsaid).reason
    assert judged("hugepages", request(hugepages=pages(4096, LARGE)), unsaid).reason


def test_a_host_without_pages_says_so() -> None:
    assert judged("hugepages", request(hugepages=pages(2)), host()).reason == "It has no huge pages, which the memory of web1 is in."


def test_what_is_not_known_is_a_warning() -> None:
    assert judged("hugepages", request(hugepages=pages(2)), host(numa_cells=None)).warnings
    both = cells(512)
    both[0]["pages"].append({"size_kib": LARGE, "total": 4, "free": 4})
    finding = judged("hugepages", request(hugepages=pages(2, None)), host(numa_cells=both))
    assert finding.reason is None
    assert "pages of 2 MiB, 1 GiB" in finding.warnings[0]


def test_a_guest_without_huge_pages_passes_anywhere() -> None:
    assert judged("hugepages", request(), host(numa_cells=None)).warnings == ()
