# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the names of block devices show: which of them are identities, and which each host assigns itself."""

from __future__ import annotations

import posixpath
import re
import typing as t

# The name of an RBD or DRBD device may exist in two clusters; these names belong to the devices themselves.
_IDENTITIES = ("wwn:", "mpath:", "lvm:", "nvme:", "krbd:")
# Names that each host assigns in the order in which it finds its devices. Longer names with mpath are those of a person (alias in multipath.conf).
_NUMBERED_BY_HOST = re.compile(
    r"(sd[a-z]+|nvme[0-9]+n|dm-|rbd|(mapper/|disk/by-id/dm-name-)mpath[a-z]{1,3}(p|-part|_part)?)[0-9]*(p[0-9]+)?|block/[0-9]+:[0-9]+|disk/by-diskseq/.+"
)
_ROOT = "/dev/"


def is_identity(store: t.Optional[str]) -> bool:
    """Whether that name of a block device is its identity, by which C(protect) proves that another host has the same device."""
    return bool(store) and str(store).startswith(_IDENTITIES)


def is_numbered_by_host(name: str) -> bool:
    """Whether a host assigns that name, below /dev, itself. It may be that of another device after the next boot."""
    return bool(_NUMBERED_BY_HOST.fullmatch(name))


def may_be_numbered(path: str) -> bool:
    """Whether a device is known for one boot only by that path. A link outside /dev is made by a person, and may lead to any name."""
    name = posixpath.normpath(path)
    return not name.startswith(_ROOT) or is_numbered_by_host(name[len(_ROOT) :])
