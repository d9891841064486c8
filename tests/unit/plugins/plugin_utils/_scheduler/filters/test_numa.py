# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.cells import overfull
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, judged, request

CELLS = [{"id": number, "total_mib": 4096, "free_mib": 4096, "cpus": list(range(8 * number, 8 * number + 8)), "pages": []} for number in (0, 1)]


def pins(**vcpus: list[int]) -> dict[str, t.Any]:
    return {"vcpus": {name.removeprefix("v"): ids for name, ids in vcpus.items()}, "emulator": None}


def bound(*nodes: int, mode: str = "strict") -> dict[str, t.Any]:
    return {"mode": mode, "nodeset": list(nodes), "cells": []}


def test_pins_that_exist_pass() -> None:
    assert judged("numa", request(pinning=pins(v0=[0, 1], v1=[15])), host()).reason is None


def test_pins_that_do_not_exist_are_named() -> None:
    reason = judged("numa", request(pinning=pins(v0=[15, 16, 17, 20])), host()).reason
    assert reason == "It has no CPUs 16-17, 20, which web1 is pinned to (it has 0-15)."


def test_the_emulator_s_pins_have_to_exist_too() -> None:
    assert "CPU 99" in str(judged("numa", request(pinning={"vcpus": {}, "emulator": [0, 99]}), host()).reason)


def test_a_cpu_that_is_another_guest_s_own_is_taken() -> None:
    there = host("kvm2", domain("db1", pinning=pins(v0=[2], v1=[4, 5])))
    assert judged("numa", request(pinning=pins(v0=[2])), there).reason == "web1 is pinned to CPUs that are taken: CPU 2 is db1's own."
    assert judged("numa", request(pinning=pins(v0=[2, 3])), there).reason
    assert judged("numa", request(pinning=pins(v0=[3])), there).reason is None
    assert judged("numa", request(pinning=pins(v0=[4, 5])), there).reason is None
    assert judged("numa", request("db1", pinning=pins(v0=[2])), there).reason is None


def test_cpus_that_are_not_known_are_a_warning() -> None:
    finding = judged("numa", request(pinning=pins(v0=[0])), host(cpu_ids=None))
    assert finding.reason is None
    assert finding.warnings


@pytest.mark.parametrize(("others", "passes"), [(3072, True), (3073, False)])
def test_memory_bound_to_a_cell_fits_exactly(others: int, passes: bool) -> None:
    there = host("kvm2", domain("db1", others, numa=bound(0)), domain("db2", 4000), numa_cells=CELLS)
    finding = judged("numa", request(memory_mib=1024, numa=bound(0)), there)
    assert (finding.reason is None) == passes
    assert passes or finding.reason == "It is 1 MiB short of memory on NUMA cell 0, to which db1 is bound too."


def test_a_guest_that_is_bound_there_already_does_not_stand_in_its_own_way() -> None:
    there = host("kvm2", domain("web1", 4096, numa=bound(0)), numa_cells=CELLS)
    assert judged("numa", request(memory_mib=4096, numa=bound(0)), there).reason is None


def test_a_cell_that_holds_too_much_is_no_matter_of_the_others() -> None:
    there = host("kvm2", domain("db1", 9000, numa=bound(1)), numa_cells=CELLS)
    assert judged("numa", request(memory_mib=4096, numa=bound(0)), there).reason is None
    assert judged("numa", request(memory_mib=1, numa=bound(1)), there).reason


@pytest.mark.parametrize(("memory_mib", "passes"), [(4096, True), (4097, False)])
def test_a_guest_larger_than_its_cell_is_refused_whatever_the_ratio(memory_mib: int, passes: bool) -> None:
    there = host(numa_cells=CELLS, settings={"ram_allocation_ratio": 4})
    finding = judged("numa", request(memory_mib=memory_mib, numa=bound(1)), there)
    assert (finding.reason is None) == passes
    assert passes or "cell 1 would have to be 1 MiB larger" in str(finding.reason)


def test_the_ratio_counts_for_cells_but_not_for_guests_with_their_own_cpus() -> None:
    there = host("kvm2", domain("db1", 4096, numa=bound(0)), numa_cells=CELLS, settings={"ram_allocation_ratio": 2})
    assert judged("numa", request(memory_mib=4096, numa=bound(0)), there).reason is None
    assert judged("numa", request(memory_mib=1, numa=bound(0), pinning=pins(v0=[1])), there).reason


def test_a_cell_that_does_not_exist_is_named() -> None:
    assert judged("numa", request(numa=bound(1, 2)), host(numa_cells=CELLS)).reason == (
        "It has no NUMA cell 2, which the memory of web1 is bound to (it has 0-1)."
    )


@pytest.mark.parametrize("numa", [bound(7, mode="preferred"), {"mode": None, "nodeset": [], "cells": [{"id": 0, "memory_mib": 9000}]}, bound()])
def test_what_is_not_strict_binds_to_nothing(numa: dict[str, t.Any]) -> None:
    assert judged("numa", request(numa=numa), host(numa_cells=CELLS)).reason is None


def test_the_guest_s_cells_are_bound_one_by_one() -> None:
    cells = [{"id": 0, "memory_mib": 3000, "vcpus": [0], "nodeset": [0]}, {"id": 1, "memory_mib": 1000, "vcpus": [1], "nodeset": [1]}]
    asked = request(memory_mib=4000, numa={"mode": "strict", "nodeset": [0, 1], "cells": cells})
    assert judged("numa", asked, host("kvm2", domain("db1", 1096, numa=bound(0)), numa_cells=CELLS)).reason is None
    assert judged("numa", asked, host("kvm2", domain("db1", 1097, numa=bound(0)), numa_cells=CELLS)).reason
    assert judged("numa", asked, host("kvm2", domain("db1", 3096, numa=bound(1)), numa_cells=CELLS)).reason is None


def test_a_binding_to_two_cells_leaves_room_to_one_that_has_no_choice() -> None:
    there = host("kvm2", domain("db1", 4096, numa=bound(0, 1)), numa_cells=CELLS)
    assert judged("numa", request(memory_mib=4096, numa=bound(0)), there).reason is None
    assert judged("numa", request(memory_mib=4096, numa=bound(0, 1)), there).reason is None
    more = host("kvm2", domain("db1", 4097, numa=bound(0, 1)), numa_cells=CELLS)
    assert "cells 0-1" in str(judged("numa", request(memory_mib=4096, numa=bound(0)), more).reason)


def test_cells_that_are_not_known_are_a_warning() -> None:
    finding = judged("numa", request(numa=bound(0)), host(numa_cells=None))
    assert finding.reason is None
    assert finding.warnings


SETS = st.frozensets(st.integers(0, 2), min_size=1)


@settings(deadline=None)
@given(st.lists(st.tuples(SETS, st.integers(1, 3)), min_size=1, max_size=4), st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_what_is_called_fitting_can_be_dealt_out_mib_by_mib(bindings: list[tuple[frozenset[int], int]], room: list[int]) -> None:
    capacity = dict(enumerate(room))
    units = [nodes for nodes, mib in bindings for _unit in range(mib)]
    assert (overfull(bindings, (), capacity) is None) == _can_be_dealt(units, capacity)


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
