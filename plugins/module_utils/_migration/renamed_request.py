# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a domain needs of another host, which has other names for some of it: the counterpart of L(rewriting) for the request of a domain."""

from __future__ import annotations

import dataclasses
import typing as t

from .._model.codec import Absent, Maybe
from .._model.libvirt_formats import format_ids, parse_ids
from .._model.requests import BootFile, DeviceNeed, DiskFile, DiskNeed, DomainRequest, GuestCell, NetworkNeed, NumaPlacement, Pinning
from .._model.resource_maps import BRIDGES, CPUS, DEVICES, IMAGES, NETWORKS, NUMA_NODES, NameChange, NoName, Renaming, device_kind

_KINDS_OF_NETWORKS = {"bridge": BRIDGES, "network": NETWORKS}
# Devices and volumes of pools are not files of a folder.
_FILE_KINDS = ("file", "dir")

Need = t.TypeVar("Need")
# The CPUs of each thread by its number.
Threads = t.Union[t.Mapping[str, t.Tuple[int, ...]], Absent]


class RenamedRequest(t.NamedTuple):
    """A request as another host has to fulfil it, a sentence for each name that could not be translated, and what those that were translated are there."""

    needs: DomainRequest
    problems: t.Tuple[str, ...]
    changes: t.Tuple[NameChange, ...]


def rename_request(needs: DomainRequest, renaming: Renaming) -> RenamedRequest:
    """Return the request with the names of the destination. What could not be translated keeps its name."""
    names = _Names(renaming)
    renamed = dataclasses.replace(
        needs,
        networks=_each(needs.networks, names.rename_network),
        disks=_each(needs.disks, names.rename_disk),
        boot_files=_each(needs.boot_files, names.rename_boot_file),
        devices=_each(needs.devices, names.rename_device),
        loader=names.rename_path(needs.loader),
        nvram=names.rename_path(needs.nvram),
        pinning=names.rename_pinning(needs.pinning) if needs.pinning else needs.pinning,
        numa=names.rename_numa(needs.numa) if needs.numa else needs.numa,
    )
    return RenamedRequest(renamed, tuple(dict.fromkeys(names.problems)), tuple({(one.kind, one.before): one for one in names.changes}.values()))


def _each(needs: Maybe[t.Tuple[Need, ...]], rename: t.Callable[[Need], Need]) -> Maybe[t.Tuple[Need, ...]]:
    return tuple(rename(need) for need in needs) if needs else needs


class _Names:
    """Translates the names of one request, and collects what could not be translated."""

    def __init__(self, renaming: Renaming) -> None:
        self.problems: t.List[str] = []
        self.changes: t.List[NameChange] = []
        self._renaming = renaming

    def rename_network(self, need: NetworkNeed) -> NetworkNeed:
        kind = _KINDS_OF_NETWORKS.get(need.type)
        return dataclasses.replace(need, source=self._rename(kind, need.source)) if kind and need.source else need

    def rename_disk(self, need: DiskNeed) -> DiskNeed:
        source = self._rename(IMAGES, need.source) if need.source and need.kind in _FILE_KINDS else need.source
        return dataclasses.replace(need, source=source, files=_each(need.files, self._rename_file))

    def _rename_file(self, file: DiskFile) -> DiskFile:
        return dataclasses.replace(file, source=self._rename(IMAGES, file.source)) if file.kind in _FILE_KINDS else file

    def rename_boot_file(self, file: BootFile) -> BootFile:
        return dataclasses.replace(file, path=self._rename(IMAGES, file.path))

    def rename_path(self, path: Maybe[str]) -> Maybe[str]:
        return self._rename(IMAGES, path) if path else path

    def rename_device(self, need: DeviceNeed) -> DeviceNeed:
        if need.network or not need.address or device_kind(need.address) != need.kind:
            return need
        return dataclasses.replace(need, address=self._rename(DEVICES, need.address))

    def rename_pinning(self, pinning: Pinning) -> Pinning:
        emulator = self._rename_ids(CPUS, pinning.emulator) if pinning.emulator else pinning.emulator
        return dataclasses.replace(pinning, vcpus=self._rename_threads(pinning.vcpus), emulator=emulator, iothreads=self._rename_threads(pinning.iothreads))

    def _rename_threads(self, threads: Threads) -> Threads:
        return {thread: self._rename_ids(CPUS, ids) for thread, ids in threads.items()} if threads else threads

    def rename_numa(self, numa: NumaPlacement) -> NumaPlacement:
        nodeset = self._rename_ids(NUMA_NODES, numa.nodeset) if numa.nodeset else numa.nodeset
        return dataclasses.replace(numa, nodeset=nodeset, cells=_each(numa.cells, self._rename_cell))

    def _rename_cell(self, cell: GuestCell) -> GuestCell:
        return dataclasses.replace(cell, nodeset=self._rename_ids(NUMA_NODES, cell.nodeset)) if cell.nodeset else cell

    def _rename_ids(self, kind: str, ids: t.Tuple[int, ...]) -> t.Tuple[int, ...]:
        return tuple(parse_ids(self._rename(kind, format_ids(ids))))

    def _rename(self, kind: str, name: str) -> str:
        try:
            renamed, change = self._renaming.rename(kind, name), self._renaming.describe_change(kind, name)
        except NoName as problem:
            self.problems.append(str(problem))
            return name
        self.changes += [change] if change else []
        return renamed
