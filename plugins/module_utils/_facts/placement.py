# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where on its host a definition wants its vCPUs and its memory to be."""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

from .._errors import Internal
from .cpusets import bytes_of, ids_of, mib_of, number_of

Json = t.Dict[str, t.Any]

# A guest with as many vCPUs as the largest hosts have CPUs, each pinned to all of them.
_MOST_PINS = 2**22


def pinning_of(root: Element, vcpus: int) -> t.Optional[Json]:
    """Return C(vcpus) (host CPUs by vCPU) and C(emulator), or null where nothing is pinned. A set for all vCPUs counts for those without one."""
    vcpu = root.find("vcpu")
    common = ids_of(vcpu.get("cpuset")) if vcpu is not None and vcpu.get("placement") != "auto" else []
    pins = {str(number): common for number in range(vcpus)} if common else {}
    named = len(common) * vcpus
    _check_pins(named)
    for pin in root.findall("cputune/vcpupin"):
        pins[pin.get("vcpu", "")] = ids_of(pin.get("cpuset"))
        named += len(pins[pin.get("vcpu", "")])
        _check_pins(named)
    emulator = root.find("cputune/emulatorpin")
    emulator_ids = ids_of(emulator.get("cpuset")) if emulator is not None else common or None
    return {"vcpus": pins, "emulator": emulator_ids} if pins or emulator_ids else None


def _check_pins(named: int) -> None:
    if named > _MOST_PINS:
        raise Internal(f"A definition pins vCPUs to more host CPUs, counted one by one, than can be told ({_MOST_PINS}).")


def numa_of(root: Element) -> t.Optional[Json]:
    """Return C(mode) and C(nodeset) of the memory, and the guest's own C(cells), or null where nothing is said of NUMA."""
    memory = root.find("numatune/memory")
    nodes = {node.get("cellid"): ids_of(node.get("nodeset")) for node in root.findall("numatune/memnode")}
    cells = [_cell(cell, number, nodes) for number, cell in enumerate(root.findall("cpu/numa/cell"))]
    if memory is None and not cells:
        return None
    mode = memory.get("mode", "strict") if memory is not None else None
    return {"mode": mode, "nodeset": ids_of(memory.get("nodeset")) if memory is not None else [], "cells": cells}


def _cell(cell: Element, number: int, nodes: t.Mapping[t.Optional[str], t.List[int]]) -> Json:
    identifier = cell.get("id", str(number))
    return {
        "id": number_of(identifier),
        "memory_mib": mib_of(bytes_of(cell.get("memory"), cell.get("unit"))),
        "vcpus": ids_of(cell.get("cpus")),
        "nodeset": nodes.get(identifier),
    }


def hugepages_of(root: Element, memory_mib: int, numa: t.Optional[Json]) -> t.List[Json]:
    """Return C(size_kib) (null: the host's default) and C(mib) of the guest's memory that has to be in huge pages."""
    if root.find("memoryBacking/hugepages") is None:
        return []
    cells = {cell["id"]: cell["memory_mib"] for cell in (numa or {"cells": []})["cells"]}
    left = memory_mib
    found: t.List[Json] = []
    pages = root.findall("memoryBacking/hugepages/page")
    for page in [page for page in pages if page.get("nodeset")]:
        size = sum(cells.get(number, 0) for number in ids_of(page.get("nodeset")))
        found.append({"size_kib": _kib(page), "mib": size})
        left -= size
    others: t.List[t.Optional[int]] = [_kib(page) for page in pages if not page.get("nodeset")]
    others += [] if pages else [None]
    return [*({"size_kib": size, "mib": left} for size in others[:1] if left > 0), *(entry for entry in found if entry["mib"])]


def _kib(page: Element) -> int:
    return bytes_of(page.get("size"), page.get("unit")) // 1024
