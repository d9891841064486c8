# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which folders of this host lie on storage that other hosts can see, by the kernel's table of mounts.

The kinds are those that libvirt itself counts as shared (libvirt.md, section 5.4). That both hosts see one and the same store is not shown by this.
"""

from __future__ import annotations

import os
import typing as t

SHARED_KINDS = frozenset(
    {"nfs", "nfs4", "gfs2", "ocfs2", "afs", "cifs", "smb", "ceph", "gpfs", "acfs", "beegfs", "fuse.glusterfs", "fuse.quobyte", "fuse.ceph"}
)
_MOUNTS = "/proc/self/mountinfo"


class Mount(t.NamedTuple):
    """A line of the table of mounts: where, which kind of file system, which folder of it, what it came from, and the options of the file system."""

    path: str
    kind: str
    root: str = "/"
    source: str = ""
    options: str = ""


def is_on_shared_mount(path: str, mounts: t.Optional[t.Sequence[Mount]] = None) -> bool:
    """Whether the file lies on a file system of a kind that is shared between hosts."""
    kinds = {mount.path: mount.kind for mount in (read_mounts() if mounts is None else mounts)}
    return kinds.get(innermost(os.path.realpath(path), kinds)) in SHARED_KINDS


def innermost(path: str, places: t.Container[str]) -> str:
    """Return the mount point that an absolute path without links is below; C(/) where there is none."""
    while path not in places and path not in ("/", ""):
        path = os.path.dirname(path)
    return path or "/"


def read_mounts(table: str = _MOUNTS) -> t.List[Mount]:
    """Return the mounts in the order of mounting: of two on one point the later one counts."""
    # The kernel escapes blank, tab and newline; every other sign that Python would part lines or words at may be in a name.
    with open(table, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        return [mount for mount in map(parse_mount, stream) if mount]


def parse_mount(line: str) -> t.Optional[Mount]:
    """Read a line of /proc/PID/mountinfo (proc(5)); blanks in names are octal there. Null for another line."""
    left, _separator, right = line.rstrip("\n").partition(" - ")
    places, kinds = left.split(" ")[3:5], right.split(" ")[:3]
    if len(places) < 2 or len(kinds) < 2:
        return None
    return Mount(_unescaped(places[1]), kinds[0], _unescaped(places[0]), _unescaped(kinds[1]), "".join(kinds[2:]))


def _unescaped(name: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        name = name.replace(octal, character)
    return name
