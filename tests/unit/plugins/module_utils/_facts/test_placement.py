# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.placement import hugepages_of, numa_of, pinning_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.definitions import domain

CELLS = (
    "<cpu><numa><cell id='0' cpus='0-1' memory='1' unit='GiB'/><cell id='1' cpus='2-3' memory='3145728' unit='KiB'/></numa></cpu>"
    "<numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='1' mode='strict' nodeset='1'/></numatune>"
)


def test_a_guest_that_is_not_pinned() -> None:
    assert pinning_of(domain(), 4) is None
    assert pinning_of(domain(vcpu="<vcpu placement='auto' cpuset='0-1'>4</vcpu>"), 4) is None


def test_a_pin_of_its_own_beats_the_set_for_all() -> None:
    root = domain("<cputune><vcpupin vcpu='1' cpuset='6'/><emulatorpin cpuset='0-1'/></cputune>", vcpu="<vcpu cpuset='2-3'>2</vcpu>")
    assert pinning_of(root, 2) == {"vcpus": {"0": [2, 3], "1": [6]}, "emulator": [0, 1]}


def test_the_set_for_all_is_the_emulator_s_too() -> None:
    assert pinning_of(domain(vcpu="<vcpu cpuset='2-3'>1</vcpu>"), 1) == {"vcpus": {"0": [2, 3]}, "emulator": [2, 3]}


def test_a_single_pinned_vcpu() -> None:
    assert pinning_of(domain("<cputune><vcpupin vcpu='0' cpuset='5'/></cputune>"), 4) == {"vcpus": {"0": [5]}, "emulator": None}


def test_numa_of_host_and_guest() -> None:
    assert numa_of(domain()) is None
    assert numa_of(domain(CELLS)) == {
        "mode": "strict",
        "nodeset": [0, 1],
        "cells": [
            {"id": 0, "memory_mib": 1024, "vcpus": [0, 1], "nodeset": None},
            {"id": 1, "memory_mib": 3072, "vcpus": [2, 3], "nodeset": [1]},
        ],
    }
    assert numa_of(domain("<numatune><memory mode='preferred' nodeset='1'/></numatune>")) == {"mode": "preferred", "nodeset": [1], "cells": []}


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ("", []),
        ("<hugepages/>", [{"size_kib": None, "mib": 4096}]),
        ("<hugepages><page size='2' unit='M'/></hugepages>", [{"size_kib": 2048, "mib": 4096}]),
        ("<hugepages><page size='1' unit='G' nodeset='1'/></hugepages>", [{"size_kib": 1048576, "mib": 3072}]),
        (
            "<hugepages><page size='1' unit='G' nodeset='1'/><page size='2048' unit='KiB'/></hugepages>",
            [{"size_kib": 2048, "mib": 1024}, {"size_kib": 1048576, "mib": 3072}],
        ),
    ],
)
def test_huge_pages(pages: str, expected: list[dict[str, object]]) -> None:
    root = domain(CELLS + f"<memoryBacking>{pages}</memoryBacking>")
    assert hugepages_of(root, 4096, numa_of(root)) == expected


def test_a_short_definition_does_not_fill_the_memory_with_pins() -> None:
    everywhere = "".join(f"<vcpupin vcpu='{number}' cpuset='0-16383'/>" for number in range(300))
    for root, vcpus in ((domain(vcpu="<vcpu cpuset='0-16383'>16384</vcpu>"), 16384), (domain(f"<cputune>{everywhere}</cputune>"), 1)):
        with pytest.raises(Internal, match="than can be told"):
            pinning_of(root, vcpus)


def test_a_cell_without_a_number_is_named() -> None:
    with pytest.raises(Internal, match="'first' stands where libvirt writes a number"):
        numa_of(domain("<cpu><numa><cell id='first' memory='1'/></numa></cpu>"))
