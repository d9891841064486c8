# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Who a block device is, by the names that udev has given it: the same device has the same ones on every host."""

from __future__ import annotations

import os
import typing as t

# Prefix of a name in /dev/disk/by-id to the prefix of the identity; an earlier one is the better name.
_BY_ID = (
    ("dm-uuid-mpath-", "mpath:"),
    ("dm-uuid-LVM-", "lvm:"),
    ("wwn-", "wwn:"),
    ("nvme-eui.", "nvme:"),
    ("nvme-uuid.", "nvme:"),
    ("scsi-3", "wwn:0x"),
)
_SAN_PATHS = ("-iscsi-", "-fc-", "fc-", "ip-")
_SHARED_FOLDERS = {"rbd": "rbd:", "drbd/by-res": "drbd:"}

Answer = t.Tuple[t.Optional[bool], t.Optional[str]]


def identify(path: str, root: str = "/dev") -> Answer:
    """Return whether the device is known to be on a network that other hosts are on (true, else null: it may be), and its identity or null."""
    device = os.path.realpath(path)
    for folder, prefix in _SHARED_FOLDERS.items():
        name = _name_below(os.path.join(root, folder), device)
        if name:
            return (True if folder == "rbd" else None), prefix + name
    store = _by_id(_links_to(device, os.path.join(root, "disk/by-id")))
    paths = _links_to(device, os.path.join(root, "disk/by-path"))
    is_san = any(any(part in name for part in _SAN_PATHS[:2]) or name.startswith(_SAN_PATHS[2:]) for name in paths)
    return (True if is_san or (store or "").startswith("mpath:") else None), store


def _by_id(names: t.Sequence[str]) -> t.Optional[str]:
    for prefix, identity in _BY_ID:
        for name in names:
            if name.startswith(prefix):
                return identity + name[len(prefix) :]
    return None


def _links_to(device: str, folder: str) -> t.List[str]:
    try:
        return sorted(name for name in os.listdir(folder) if os.path.realpath(os.path.join(folder, name)) == device)
    except OSError:
        return []


def _name_below(folder: str, device: str) -> t.Optional[str]:
    for place, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.realpath(path) == device:
                return os.path.relpath(path, folder)
    return None
