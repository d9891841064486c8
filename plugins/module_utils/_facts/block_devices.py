# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The block devices of this host: whether other hosts see them, and under which name."""

from __future__ import annotations

import os
import re
import typing as t

from .._model.device_names import is_numbered_by_host

# Prefix of a name in /dev/disk/by-id to the prefix of the identity; earlier entries are preferred.
_BY_ID = (
    ("dm-uuid-mpath-", "mpath:"),
    ("dm-uuid-LVM-", "lvm:"),
    ("wwn-", "wwn:"),
    ("nvme-eui.", "nvme:"),
    ("nvme-uuid.", "nvme:"),
    ("scsi-3", "wwn:0x"),
)
# Parts of names in /dev/disk/by-path that show a device on a network.
_OF_A_NETWORK = ("-iscsi-", "-fc-")
# The number of a mapped RBD image on this host, by the name of its device.
_RBD_DEVICE = re.compile(r"rbd([0-9]+)(?:p([0-9]+))?")
# An array can give each host other LUNs under one number.
_BY_LUN = "disk/by-path/"

_MOST_LINKS = 40

Answer = t.Tuple[t.Optional[bool], t.Optional[str]]


class BlockDevices:
    """The block devices of this host; udev's folders are read once.

    :arg root: where the devices are.
    :arg rbd: where the kernel describes mapped RBD images, by their number.
    """

    def __init__(self, root: str = "/dev", rbd: str = "/sys/bus/rbd/devices") -> None:
        self._root = root
        self._rbd = rbd
        self._folders: t.Dict[str, t.Dict[str, t.List[str]]] = {}

    def identify_device(self, path: str) -> Answer:
        """Return whether other hosts are known to see the device under that name (true, else null: the opposite is never proved), and its identity or null."""
        device = os.path.realpath(path)
        name = self._find_name(path)
        may_be_other = is_numbered_by_host(name) or name.startswith(_BY_LUN)
        for folder, prefix, shared in (("rbd", "rbd:", True), ("drbd/by-res", "drbd:", None)):
            names = self._names_of(folder, device)
            if names:
                return None if may_be_other else shared, self._identify_rbd(device) or prefix + names[0]
        store = self._identify_rbd(device) or _identify_by_id(self._names_of("disk/by-id", device))
        is_remote = any(part in name for name in self._names_of("disk/by-path", device) for part in _OF_A_NETWORK)
        is_shared = is_remote or (store or "").startswith("mpath:")
        return (True if is_shared and not may_be_other else None), store

    def _find_name(self, path: str) -> str:
        """Return the name of the device below the root. A link elsewhere is made by a person, and leads to a name."""
        name = ""
        for _link in range(_MOST_LINKS):
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            name = os.path.relpath(path, self._root)
            if not name.startswith(os.pardir) or not os.path.islink(path):
                break
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        return name

    def _identify_rbd(self, device: str) -> t.Optional[str]:
        """Return the identity of a mapped RBD image: its cluster, pool, namespace and ID. A snapshot has none, and neither has an image of format 1.

        https://docs.kernel.org/admin-guide/abi-testing.html, sysfs-bus-rbd.
        """
        found = _RBD_DEVICE.fullmatch(os.path.relpath(device, self._root))
        if not found:
            return None
        number, partition = found.groups()
        cluster, pool, image, snapshot, namespace = (
            _read_attribute(os.path.join(self._rbd, number, name)) for name in ("cluster_fsid", "pool_id", "image_id", "current_snap", "pool_ns")
        )
        if not (cluster and pool and image) or image == "(unknown)" or snapshot != "-":
            return None
        return f"krbd:{cluster}/{pool}/{namespace}/{image}" + (f"-part{partition}" if partition else "")

    def _names_of(self, folder: str, device: str) -> t.List[str]:
        if folder not in self._folders:
            self._folders[folder] = _list_names_below(os.path.join(self._root, folder))
        return self._folders[folder].get(device, [])


def _read_attribute(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    except (OSError, ValueError):
        return ""


def _identify_by_id(names: t.Sequence[str]) -> t.Optional[str]:
    for prefix, identity in _BY_ID:
        for name in names:
            if name.startswith(prefix):
                return identity + name[len(prefix) :]
    return None


def _list_names_below(folder: str) -> t.Dict[str, t.List[str]]:
    """Return the names in a folder and in those below it, by the device that each leads to."""
    found: t.Dict[str, t.List[str]] = {}
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            found.setdefault(os.path.realpath(path), []).append(os.path.relpath(path, folder))
    return found
