# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where a domain's images lie on this host: the folders whose tokens prove their store, the file system, the identity of a block device."""

from __future__ import annotations

import os
import typing as t
from xml.etree.ElementTree import Element

from .._facts.block_devices import BlockDevices
from .._facts.image_files import ReadHeader, files_of
from .._facts.mounts import store_of
from .._facts.volumes import source_of
from .._hypervisor.storage import Mount, innermost, read_mounts
from .._patience import within
from .leases import locks_on

Json = t.Dict[str, t.Any]
Pools = t.Sequence[t.Mapping[str, t.Any]]


class Place(t.NamedTuple):
    """The folders that have to be seen for a path, the mount that it is on, and what becomes of locks there (L(leases.locks_on))."""

    folders: t.List[str]
    mount: t.Optional[Json]
    locks: t.Optional[str] = None


PATIENCE_SECONDS = 5.0
# An RBD or DRBD device is known by a name that two clusters may have; these are the devices' own.
_IDENTITIES = ("wwn:", "mpath:", "lvm:", "nvme:")
_FILES = ("file", "dir")


class Images:
    """:arg mounts: the table of mounts; this host's own by default."""

    def __init__(self, mounts: t.Optional[t.Sequence[Mount]] = None) -> None:
        self._mounts = {mount.path: mount for mount in (read_mounts() if mounts is None else mounts)}
        self._known: t.Dict[str, Place] = {}
        self._silent: t.Set[str] = set()
        self._devices = BlockDevices()

    def disks(self, asked: t.Sequence[t.Mapping[str, t.Any]], pools: Pools, live: t.Optional[Element], read: t.Optional[ReadHeader] = None) -> t.List[Json]:
        """Return the disks as the ledger keeps them, yet without who else sees them.

        :arg asked: the disks of the domain's request.
        :arg live: the definition of an active domain, which knows the backing files too.
        :arg read: reads the header of an image.
        """
        running = _running_disks(live)
        return [self._disk(disk, pools, _Chain.of(disk, running.get(disk["target"]), pools, read)) for disk in asked]

    def files(self, needed: t.Sequence[t.Mapping[str, t.Any]]) -> t.List[Json]:
        """Return files that a domain needs beside its disks as the ledger keeps them, yet without who else sees them.

        :arg needed: as L(needed_files) returns them.
        """
        return [self._file(file) for file in needed]

    def identity_of(self, path: str) -> t.Optional[str]:
        """Return what a block device is called on every host that has it, or null where it has no such name."""
        store = self._devices.identify(path)[1]
        return store if store and store.startswith(_IDENTITIES) else None

    def _file(self, file: t.Mapping[str, t.Any]) -> Json:
        path, kind = file["path"], file["kind"]
        place = self._place(path, kind) if kind in _FILES and path.startswith("/") else Place([], None)
        is_there = within(PATIENCE_SECONDS, lambda: os.path.lexists(path)) if path.startswith("/") else None
        wwn = self.identity_of(path) if kind == "block" else None
        return {**file, "folders": sorted(place.folders), "mount": place.mount, "shared": None, "wwn": wwn, "present": is_there is not False}

    def _disk(self, disk: t.Mapping[str, t.Any], pools: Pools, chain: _Chain) -> Json:
        kind, path = _located(disk["kind"], disk["source"], pools)
        places = [self._place(path, kind)] if path.startswith("/") and kind in _FILES else []
        folders = {folder for place in [*places, *(self._place(file, "file") for file in chain.files)] for folder in place.folders}
        return {
            "target": disk["target"],
            "kind": kind,
            "path": path,
            "readonly": disk["readonly"],
            "shareable": bool(disk.get("shareable")),
            "optional": disk["optional"],
            "format": disk.get("format"),
            "backing": chain.files,
            "backing_devices": {device: self.identity_of(device) for device in chain.devices},
            "backing_problem": chain.problem,
            "folders": sorted(folders),
            "mount": places[0].mount if places else None,
            "locks": places[0].locks if places else None,
            "shared": disk["shared"],
            "wwn": self.identity_of(path) if kind == "block" and path else None,
        }

    def _place(self, path: str, kind: str) -> Place:
        """Return what is known of this path. A folder that does not answer costs its time once."""
        parent = path if kind == "dir" else os.path.dirname(path)
        if path not in self._known:
            found = None if parent in self._silent else within(PATIENCE_SECONDS, lambda: self._asked(path, parent))
            if found is None:
                self._silent.add(parent)
            self._known[path] = found or Place([parent], None)
        return self._known[path]

    def _asked(self, path: str, parent: str) -> Place:
        real = os.path.realpath(path)
        real_parent = real if parent == path else os.path.dirname(real)
        # A file that is itself a link needs both folders: the one with the link, and the one with the image.
        folders = [parent] if os.path.realpath(parent) == real_parent else [parent, real_parent]
        mount = self._mounts.get(innermost(real, self._mounts))
        if mount is None:
            return Place(folders, None)
        return Place(folders, {"path": mount.path, "kind": mount.kind, "store": store_of(mount)}, locks_on(mount))


def _located(kind: str, source: str, pools: Pools) -> t.Tuple[str, str]:
    """Return kind and path of a disk; of a volume those of what it is in its pool, and no path where the pool is not known."""
    if kind != "volume":
        return kind, source
    name, _slash, volume = source.partition("/")
    pool = next((pool for pool in pools if pool["name"] == name), None)
    if pool is None:
        return kind, ""
    place = pool["path"] or ""
    if not place.startswith("/"):
        return "network", source
    return "block" if place.startswith("/dev") else "file", f"{place}/{volume}"


def _running_disks(live: t.Optional[Element]) -> t.Dict[str, Element]:
    """Return the disks of a running domain by their targets."""
    found: t.Dict[str, Element] = {}
    for disk in live.findall("devices/disk") if live is not None else ():
        target = disk.find("target")
        if target is not None:
            found[target.get("dev", "")] = disk
    return found


class _Chain(t.NamedTuple):
    """What a disk's image is built on: C(files) and C(devices) by their paths, and why that is not the whole truth."""

    files: t.List[str]
    devices: t.List[str]
    problem: t.Optional[str]

    @classmethod
    def of(cls, disk: t.Mapping[str, t.Any], running: t.Optional[Element], pools: Pools, read: t.Optional[ReadHeader]) -> _Chain:
        """Return what the saved definition needs, and what the running domain has open beside it."""
        known = [(file["kind"], file["source"]) for file in disk.get("files") or ()]
        problem = disk.get("files_problem")
        if running is not None:
            files, unknown = files_of(running, read, pools)
            known += [(file.kind, file.path) for file in files]
            # What runs shows its whole chain, also where its images cannot be read.
            problem = unknown if source_of(running.find("source")) == disk["source"] else problem or unknown
        is_device = {path: kind == "block" for kind, path in known if path.startswith("/")}
        return cls(sorted(path for path in is_device if not is_device[path]), sorted(path for path in is_device if is_device[path]), problem)
