# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The block devices of this host: whether other hosts see them, and under which name."""

from __future__ import annotations

import os
import re
import typing as t

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
# Names that each host assigns in the order in which it finds its devices. Longer names with mpath are those of a person (alias in multipath.conf).
_NUMBERED_BY_HOST = re.compile(r"(sd[a-z]+|dm-|rbd|(mapper/|disk/by-id/dm-name-)mpath[a-z]{1,3}(p|-part|_part)?)[0-9]*(p[0-9]+)?")

Answer = t.Tuple[t.Optional[bool], t.Optional[str]]


class BlockDevices:
    """The block devices of this host; udev's folders are read once.

    :arg root: where the devices are.
    """

    def __init__(self, root: str = "/dev") -> None:
        self._root = root
        self._folders: t.Dict[str, t.Dict[str, t.List[str]]] = {}

    def identify_device(self, path: str) -> Answer:
        """Return whether other hosts are known to see the device under that name (true, else null: the opposite is never proved), and its identity or null."""
        device = os.path.realpath(path)
        may_be_other = bool(_NUMBERED_BY_HOST.fullmatch(os.path.relpath(path, self._root)))
        for folder, prefix, shared in (("rbd", "rbd:", True), ("drbd/by-res", "drbd:", None)):
            names = self._names_of(folder, device)
            if names:
                return None if may_be_other else shared, prefix + names[0]
        store = _identify_by_id(self._names_of("disk/by-id", device))
        is_remote = any(part in name for name in self._names_of("disk/by-path", device) for part in _OF_A_NETWORK)
        is_shared = is_remote or (store or "").startswith("mpath:")
        return (True if is_shared and not may_be_other else None), store

    def _names_of(self, folder: str, device: str) -> t.List[str]:
        if folder not in self._folders:
            self._folders[folder] = _list_names_below(os.path.join(self._root, folder))
        return self._folders[folder].get(device, [])


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
