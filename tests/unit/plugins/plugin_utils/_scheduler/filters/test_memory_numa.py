# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.memory import find_overfull_cells
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, judge_with, request

CELLS = [{"id": number, "total_mib": 4096, "free_mib": 4096, "cpus": list(range(8 * number, 8 * number + 8)), "pages": []} for number in (0, 1)]


def pins(**vcpus: list[int]) -> dict[str, t.Any]:
    return {"vcpus": {name.removeprefix("v"): ids for name, ids in vcpus.items()}, "emulator": None}


def bound(*nodes: int, mode: str = "strict") -> dict[str, t.Any]:
    return {"mode": mode, "nodeset": list(nodes), "cells": []}


def test_pins_to_existing_cpus_pass() -> None:
    assert judge_with("numa", request(pinning=pins(v0=[0, 1], v1=[15])), host()).reason is None


def test_pins_to_missing_cpus_are_refused() -> None:
    reason = judge_with("numa", request(pinning=pins(v0=[15, 16, 17, 20])), host()).reason
    assert reason == "It has no CPUs 16-17, 20, which web1 is pinned to (it has 0-15)."


def test_pins_of_the_emulator_to_missing_cpus_are_refused() -> None:
    assert "CPU 99" in str(judge_with("numa", request(pinning={"vcpus": {}, "emulator": [0, 99]}), host()).reason)


def test_a_pin_to_the_dedicated_cpu_of_another_guest_is_refused() -> None:
    there = host("kvm2", domain("db1", pinning=pins(v0=[2], v1=[4, 5])))
    assert judge_with("numa", request(pinning=pins(v0=[2])), there).reason == "web1 is pinned to CPUs that are taken: CPU 2 is db1's own."
    assert judge_with("numa", request(pinning=pins(v0=[2, 3])), there).reason
    assert judge_with("numa", request(pinning=pins(v0=[3])), there).reason is None
    assert judge_with("numa", request(pinning=pins(v0=[4, 5])), there).reason is None
    assert judge_with("numa", request("db1", pinning=pins(v0=[2])), there).reason is None


def test_unknown_cpus_are_a_warning() -> None:
    finding = judge_with("numa", request(pinning=pins(v0=[0])), host(cpu_ids=None))
    assert finding.reason is None
    assert finding.warnings


@pytest.mark.parametrize(("others", "passes"), [(3072, True), (3073, False)])
def test_memory_bound_to_a_cell_may_fill_it_exactly(others: int, passes: bool) -> None:
    there = host("kvm2", domain("db1", others, numa=bound(0)), domain("db2", 4000), numa_cells=CELLS)
    finding = judge_with("numa", request(memory_mib=1024, numa=bound(0)), there)
    assert (finding.reason is None) == passes
    assert passes or finding.reason == "It is 1 MiB short of memory on NUMA cell 0, to which db1 is bound too."


def test_the_binding_of_the_guest_itself_does_not_count() -> None:
    there = host("kvm2", domain("web1", 4096, numa=bound(0)), numa_cells=CELLS)
    assert judge_with("numa", request(memory_mib=4096, numa=bound(0)), there).reason is None


def test_an_overfull_cell_does_not_affect_other_cells() -> None:
    there = host("kvm2", domain("db1", 9000, numa=bound(1)), numa_cells=CELLS)
    assert judge_with("numa", request(memory_mib=4096, numa=bound(0)), there).reason is None
    assert judge_with("numa", request(memory_mib=1, numa=bound(1)), there).reason


@pytest.mark.parametrize(("memory_mib", "passes"), [(4096, True), (4097, False)])
def test_a_guest_larger_than_its_cell_is_refused_whatever_the_ratio(memory_mib: int, passes: bool) -> None:
    there = host(numa_cells=CELLS, settings={"ram_allocation_ratio": 4})
    finding = judge_with("numa", request(memory_mib=memory_mib, numa=bound(1)), there)
    assert (finding.reason is None) == passes
    assert passes or "cell 1 would have to be 1 MiB larger" in str(finding.reason)


def test_the_memory_ratio_applies_to_cells_except_for_pinned_guests() -> None:
    there = host("kvm2", domain("db1", 4096, numa=bound(0)), numa_cells=CELLS, settings={"ram_allocation_ratio": 2})
    assert judge_with("numa", request(memory_mib=4096, numa=bound(0)), there).reason is None
    assert judge_with("numa", request(memory_mib=1, numa=bound(0), pinning=pins(v0=[1])), there).reason


def test_a_binding_to_a_missing_cell_is_refused() -> None:
    assert judge_with("numa", request(numa=bound(1, 2)), host(numa_cells=CELLS)).reason == (
        "It has no NUMA cell 2, which the memory of web1 is bound to (it has 0-1)."
    )


@pytest.mark.parametrize("mode", ["preferred", "interleave"])
def test_a_missing_cell_is_refused_in_every_mode(mode: str) -> None:
    """libvirt starts no guest whose definition names a cell that the host lacks: "NUMA node 7 is unavailable"."""
    cells = [{"id": 0, "memory_mib": 1024, "vcpus": [0], "nodeset": [7], "mode": mode}]
    for numa in (bound(0, 7, mode=mode), {"mode": None, "nodeset": [], "cells": cells}):
        assert judge_with("numa", request(numa=numa), host(numa_cells=CELLS)).reason == (
            "It has no NUMA cell 7, which the memory of web1 is bound to (it has 0-1)."
        )
        assert judge_with("numa", request(numa=numa), host(numa_cells=None)).warnings


@pytest.mark.parametrize("numa", [bound(1, mode="preferred"), {"mode": None, "nodeset": [], "cells": [{"id": 0, "memory_mib": 9000}]}, bound()])
def test_a_binding_that_is_not_strict_passes(numa: dict[str, t.Any]) -> None:
    assert judge_with("numa", request(memory_mib=9000, numa=numa), host(numa_cells=CELLS)).reason is None


def test_the_cells_of_a_guest_are_bound_separately() -> None:
    cells = [{"id": 0, "memory_mib": 3000, "vcpus": [0], "nodeset": [0]}, {"id": 1, "memory_mib": 1000, "vcpus": [1], "nodeset": [1]}]
    asked = request(memory_mib=4000, numa={"mode": "strict", "nodeset": [0, 1], "cells": cells})
    assert judge_with("numa", asked, host("kvm2", domain("db1", 1096, numa=bound(0)), numa_cells=CELLS)).reason is None
    assert judge_with("numa", asked, host("kvm2", domain("db1", 1097, numa=bound(0)), numa_cells=CELLS)).reason
    assert judge_with("numa", asked, host("kvm2", domain("db1", 3096, numa=bound(1)), numa_cells=CELLS)).reason is None


def test_a_binding_to_two_cells_is_balanced_with_bindings_to_one_cell() -> None:
    there = host("kvm2", domain("db1", 4096, numa=bound(0, 1)), numa_cells=CELLS)
    assert judge_with("numa", request(memory_mib=4096, numa=bound(0)), there).reason is None
    assert judge_with("numa", request(memory_mib=4096, numa=bound(0, 1)), there).reason is None
    more = host("kvm2", domain("db1", 4097, numa=bound(0, 1)), numa_cells=CELLS)
    assert "cells 0-1" in str(judge_with("numa", request(memory_mib=4096, numa=bound(0)), more).reason)


def test_unknown_cells_are_a_warning() -> None:
    finding = judge_with("numa", request(numa=bound(0)), host(numa_cells=None))
    assert finding.reason is None
    assert finding.warnings


SETS = st.frozensets(st.integers(0, 2), min_size=1)


@settings(deadline=None)
@given(st.lists(st.tuples(SETS, st.integers(1, 3)), min_size=1, max_size=4), st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_bindings_that_fit_can_be_distributed_in_units_of_one_mib(bindings: list[tuple[frozenset[int], int]], room: list[int]) -> None:
    capacity = dict(enumerate(room))
    units = [nodes for nodes, mib in bindings for _unit in range(mib)]
    assert (find_overfull_cells(bindings, (), capacity) is None) == _can_be_dealt(units, capacity)


def _can_be_dealt(units: list[frozenset[int]], capacity: dict[int, int]) -> bool:
    """A matching of single MiB to cells, by augmenting paths: another way to the same answer."""
    slots = [cell for cell, mib in capacity.items() for _slot in range(mib)]
    owner: dict[int, int] = {}

    def seat(unit: int, tried: set[int]) -> bool:
        for slot, cell in enumerate(slots):
            if cell in units[unit] and slot not in tried:
                tried.add(slot)
                if slot not in owner or seat(owner[slot], tried):
                    owner[slot] = unit
                    return True
        return False

    return all(seat(unit, set()) for unit in range(len(units)))
