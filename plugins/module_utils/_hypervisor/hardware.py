# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The hardware of a host as libvirt tells it: CPUs, NUMA cells with their pages, and what kinds of guests can run on it."""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

from .._facts.cpusets import number_of
from .cpus import guest_cpu, host_cpu
from .errors import libvirt_errors
from .library import libvirt

Json = t.Dict[str, t.Any]

_VIRT_TYPES = ("kvm", "qemu")


def hardware(connection: t.Any, uri: str, capabilities: Element) -> Json:
    """Return C(arch), C(cpu_ids), C(numa_cells), C(platforms) and C(host_cpu) of C(kvmfleet_host)."""
    arch = capabilities.findtext("host/cpu/arch") or ""
    with libvirt_errors(f"read the CPUs of {uri}"):
        online = [number for number, is_online in enumerate(connection.getCPUMap()[1]) if is_online]
        cells = [_cell(connection, cell, set(online)) for cell in capabilities.findall("host/topology/cells/cell")]
    return {
        "arch": arch,
        "cpu_ids": online,
        "numa_cells": cells,
        "platforms": [_with_cpu(connection, uri, platform, arch) for platform in _platforms(capabilities)],
        "host_cpu": host_cpu(connection, uri, capabilities),
    }


def _cell(connection: t.Any, cell: Element, online: t.Set[int]) -> Json:
    number = number_of(cell.get("id"))
    pages = {number_of(entry.get("size")): number_of(entry.text) for entry in cell.findall("pages")}
    # The smallest are the normal ones, which are the cell's memory itself.
    huge = sorted(pages)[1:]
    free_kib, free = _free(connection, number, huge)
    cpus = {number_of(cpu.get("id"), -1) for cpu in cell.findall("cpus/cpu")}
    return {
        "id": number,
        "total_mib": number_of(cell.findtext("memory")) // 1024,
        "free_mib": free_kib // 1024,
        "cpus": sorted(cpus & online),
        "pages": [{"size_kib": size, "total": pages[size], "free": free.get(size, 0)} for size in huge],
    }


def _free(connection: t.Any, number: int, huge: t.List[int]) -> t.Tuple[int, t.Mapping[int, int]]:
    """Return what is free in a cell, in KiB and in huge pages; nothing where its kernel does not tell."""
    try:
        stats = connection.getMemoryStats(number)
        return stats.get("free", 0), connection.getFreePages(huge, number, 1).get(number, {}) if huge else {}
    except libvirt().libvirtError:
        return 0, {}


def _platforms(capabilities: Element) -> t.Iterator[Json]:
    for arch in capabilities.findall("guest[os_type='hvm']/arch"):
        for domain in arch.findall("domain"):
            if domain.get("type") in _VIRT_TYPES:
                machines = domain.findall("machine") or arch.findall("machine")
                yield {
                    "arch": arch.get("name", ""),
                    "virt_type": domain.get("type"),
                    "emulator": domain.findtext("emulator") or arch.findtext("emulator"),
                    "machines": sorted({name for machine in machines for name in (machine.text, machine.get("canonical")) if name}),
                    "max_vcpus": max((number_of(machine.get("maxCpus")) for machine in machines), default=0) or None,
                }


def _with_cpu(connection: t.Any, uri: str, platform: Json, own_arch: str) -> Json:
    return {**platform, "cpu": guest_cpu(connection, uri, platform) if platform["arch"] == own_arch else None}
