# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.requirements import read_hugepages, read_numa, read_pinning
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.definitions import domain

CELLS = (
    "<cpu><numa><cell id='0' cpus='0-1' memory='1' unit='GiB'/><cell id='1' cpus='2-3' memory='3145728' unit='KiB'/></numa></cpu>"
    "<numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='1' mode='strict' nodeset='1'/></numatune>"
)


def test_a_guest_without_pins_has_no_pinning() -> None:
    assert read_pinning(domain()) is None
    assert read_pinning(domain(vcpu="<vcpu placement='auto' cpuset='0-1'>4</vcpu>")) is None


def test_the_pin_of_a_vcpu_overrides_the_common_cpuset() -> None:
    root = domain("<cputune><vcpupin vcpu='1' cpuset='6'/><emulatorpin cpuset='0-1'/></cputune>", vcpu="<vcpu cpuset='2-3'>2</vcpu>")
    assert encode(read_pinning(root)) == {"vcpus": {"0": [2, 3], "1": [6]}, "emulator": [0, 1]}


def test_pinned_io_threads_are_read() -> None:
    """libvirt starts no domain with a thread that it cannot pin."""
    root = domain("<iothreads>2</iothreads><cputune><iothreadpin iothread='1' cpuset='8-9'/><iothreadpin iothread='2' cpuset='9'/></cputune>")
    assert encode(read_pinning(root)) == {"vcpus": {}, "emulator": None, "iothreads": {"1": [8, 9], "2": [9]}}


def test_the_common_cpuset_applies_to_the_emulator() -> None:
    assert encode(read_pinning(domain(vcpu="<vcpu cpuset='2-3'>1</vcpu>"))) == {"vcpus": {"0": [2, 3]}, "emulator": [2, 3]}


def test_the_common_cpuset_applies_to_vcpus_that_are_plugged_in_later() -> None:
    root = domain(vcpu="<vcpu cpuset='2-3' current='1'>2</vcpu>")
    assert encode(read_pinning(root)) == {"vcpus": {"0": [2, 3], "1": [2, 3]}, "emulator": [2, 3]}


def test_a_single_pinned_vcpu_is_read() -> None:
    assert encode(read_pinning(domain("<cputune><vcpupin vcpu='0' cpuset='5'/></cputune>"))) == {"vcpus": {"0": [5]}, "emulator": None}


def test_numa_mode_and_cells_are_read() -> None:
    assert read_numa(domain()) is None
    assert encode(read_numa(domain(CELLS))) == {
        "mode": "strict",
        "nodeset": [0, 1],
        "cells": [
            {"id": 0, "memory_mib": 1024, "vcpus": [0, 1], "nodeset": None},
            {"id": 1, "memory_mib": 3072, "vcpus": [2, 3], "nodeset": [1], "mode": "strict"},
        ],
    }
    assert encode(read_numa(domain("<numatune><memory mode='preferred' nodeset='1'/></numatune>"))) == {"mode": "preferred", "nodeset": [1], "cells": []}


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
        ("<hugepages><page size='4' unit='KiB'/></hugepages>", []),
        ("<hugepages><page size='4' unit='KiB' nodeset='0'/><page size='1' unit='G' nodeset='1'/></hugepages>", [{"size_kib": 1048576, "mib": 3072}]),
    ],
)
def test_hugepages_are_summed_by_size(pages: str, expected: list[dict[str, object]]) -> None:
    root = domain(CELLS + f"<memoryBacking>{pages}</memoryBacking>")
    assert encode(read_hugepages(root, 4096, read_numa(root))) == expected


def test_a_definition_with_too_many_pins_is_refused() -> None:
    everywhere = "".join(f"<vcpupin vcpu='{number}' cpuset='0-16383'/>" for number in range(300))
    for root in (domain(vcpu="<vcpu cpuset='0-16383'>16384</vcpu>"), domain(f"<cputune>{everywhere}</cputune>")):
        with pytest.raises(Internal, match="than are supported"):
            read_pinning(root)


def test_a_cell_can_be_bound_where_the_rest_of_the_memory_is_not() -> None:
    cell = "<cpu><numa><cell id='0' cpus='0-1' memory='1' unit='GiB'/></numa></cpu>"
    bound = {"id": 0, "memory_mib": 1024, "vcpus": [0, 1], "nodeset": [1], "mode": "strict"}
    for memnode in ("<memnode cellid='0' mode='strict' nodeset='1'/>", "<memnode cellid='0' nodeset='1'/>"):
        assert encode(read_numa(domain(f"{cell}<numatune>{memnode}</numatune>"))) == {"mode": None, "nodeset": [], "cells": [bound]}


def test_a_numa_cell_without_a_number_is_an_error() -> None:
    with pytest.raises(Internal, match="'first' was found where libvirt writes a number"):
        read_numa(domain("<cpu><numa><cell id='first' memory='1'/></numa></cpu>"))


def test_plugged_memory_counts_for_the_cell_that_it_belongs_to() -> None:
    """libvirt binds it and puts it into huge pages as the rest of its cell, and the total of the definition includes it."""
    devices = (
        "<memory model='dimm'><target><size unit='KiB'>2097152</size><node>1</node></target></memory>"
        "<memory model='virtio-mem'><target><size unit='GiB'>1</size><node>1</node><requested unit='KiB'>0</requested></target></memory>"
        "<memory model='dimm'><source><nodemask>0</nodemask></source><target><size unit='GiB'>4</size><node>1</node></target></memory>"
        "<memory model='nvdimm'><source><path>/pmem</path></source><target><size unit='GiB'>8</size><node>1</node></target></memory>"
    )
    root = domain(f"{CELLS}<memoryBacking><hugepages><page size='1' unit='G' nodeset='1'/></hugepages></memoryBacking>", devices, 19456)
    numa = read_numa(root)
    assert [cell.memory_mib for cell in (numa.cells if numa else None) or ()] == [1024, 6144]
    assert encode(read_hugepages(root, 19456, numa)) == [{"size_kib": 1048576, "mib": 6144}]


def test_plugged_memory_may_be_in_pages_of_its_own_size() -> None:
    """Also in a guest whose other memory is not in huge pages."""
    plugged = "<memory model='dimm'><source><pagesize unit='KiB'>{}</pagesize>{}</source><target><size unit='GiB'>2</size><node>1</node></target></memory>"
    devices = plugged.format(2048, "") + plugged.format(2048, "<nodemask>0</nodemask>") + plugged.format(4, "")
    wanted = [{"size_kib": 2048, "mib": 2048}, {"size_kib": 2048, "mib": 2048}]
    plain, backed = (domain(f"{CELLS}<memoryBacking>{pages}</memoryBacking>", devices, 10240) for pages in ("", "<hugepages/>"))
    assert encode(read_hugepages(plain, 10240, read_numa(plain))) == wanted
    assert encode(read_hugepages(backed, 10240, read_numa(backed))) == [{"size_kib": None, "mib": 4096}, *wanted]
    part = domain(f"{CELLS}<memoryBacking><hugepages><page size='1' unit='G' nodeset='1'/></hugepages></memoryBacking>", devices, 10240)
    assert encode(read_hugepages(part, 10240, read_numa(part))) == [*wanted, {"size_kib": 1048576, "mib": 3072}]
