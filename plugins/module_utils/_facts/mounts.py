# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The file systems of this host: whether other hosts see them, and under which name."""

from __future__ import annotations

import os
import typing as t

from .._model.facts import SHARED_KINDS, UNTOLD_KINDS
from .._model.libvirt_formats import is_loopback

# Those whose server is one host. Any node of a cluster serves the same files.
_OF_ONE_SERVER = ("nfs", "nfs4", "cifs", "smb", "smb3")
# The type of a mount point at which something is mounted when it is used.
ON_DEMAND = "autofs"
_MOUNTS = "/proc/self/mountinfo"
_BY_UUID = "/dev/disk/by-uuid"
# Cluster file systems on a block device, which has another name on every host.
_ON_DEVICES = ("gfs2", "ocfs2", "acfs")


class Mount(t.NamedTuple):
    """A line of the table of mounts: mount point, type of file system, folder in it, source, and options of the file system."""

    path: str
    kind: str
    root: str = "/"
    source: str = ""
    options: str = ""


def is_shared_mount(mount: Mount) -> bool:
    """Whether the file system is of a type that hosts share, and not served by this host to itself alone."""
    return mount.kind in SHARED_KINDS and not is_served_locally(mount)


def is_served_locally(mount: Mount) -> bool:
    """Whether the server has a loopback address: every host has a server of that name, or none."""
    server = mount.source.lstrip("/").partition("/")[0] if mount.source.startswith("//") else mount.source.rpartition(":/")[0]
    return mount.kind in _OF_ONE_SERVER and is_loopback(server)


def innermost_mount(path: str, mount_points: t.Container[str]) -> str:
    """Return the mount point of an absolute path without links; C(/) if there is no other."""
    while path not in mount_points and path not in ("/", ""):
        path = os.path.dirname(path)
    return path or "/"


def read_mounts(table: str = _MOUNTS) -> t.List[Mount]:
    """Return the mounts in the order of mounting: of two on one mount point, the later one counts."""
    # The kernel escapes blanks, tabs and newlines. A name may contain any other character at which Python would split lines or words.
    with open(table, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        return [mount for mount in map(parse_mount, stream) if mount]


def parse_mount(line: str) -> t.Optional[Mount]:
    """Read a line of /proc/PID/mountinfo (proc(5)); blanks in names are octal. Null for any other line."""
    left, _separator, right = line.rstrip("\n").partition(" - ")
    paths, kinds = left.split(" ")[3:5], right.split(" ")[:3]
    if len(paths) < 2 or len(kinds) < 2:
        return None
    return Mount(_unescape_name(paths[1]), kinds[0], _unescape_name(paths[0]), _unescape_name(kinds[1]), "".join(kinds[2:]))


def _unescape_name(name: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        name = name.replace(octal, character)
    return name


def may_hang(mount: Mount) -> bool:
    """Whether the files are those of a server, as far as the type of the file system shows."""
    return mount.kind in SHARED_KINDS or mount.kind.startswith(UNTOLD_KINDS)


def identify_store(mount: Mount) -> t.Optional[str]:
    """Return the identity that the mount's file system has on every host, e.g. C(nfs4:nas:/export); null if it is not shared, or has none."""
    if mount.kind not in SHARED_KINDS or is_served_locally(mount):
        return None
    if mount.kind in _ON_DEVICES:
        uuid = _find_uuid(mount.source)
        return f"{mount.kind}:uuid:{uuid}{mount.root.rstrip('/')}" if uuid else None
    if not any(mark in mount.source for mark in (":", "//", "@")):
        return None
    return f"{mount.kind}:{_sorted_monitors(mount)}{mount.root.rstrip('/')}"


def _sorted_monitors(mount: Mount) -> str:
    """Ceph lists its monitors in the order in which they were given: C(b,a:/x) and C(a,b:/x) are the same."""
    monitors, separator, path = mount.source.rpartition(":/")
    if mount.kind not in ("ceph", "fuse.ceph") or not separator:
        return mount.source.rstrip("/")
    return f"{','.join(sorted(monitors.split(',')))}:/{path}".rstrip("/")


def _find_uuid(device: str) -> t.Optional[str]:
    wanted = os.path.realpath(device)
    names = _list_names(_BY_UUID)
    return next((name for name in names if os.path.realpath(os.path.join(_BY_UUID, name)) == wanted), None)


def _list_names(folder: str) -> t.List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
