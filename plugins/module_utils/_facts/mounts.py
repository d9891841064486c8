# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The file systems of this host: what is on them, which of them other hosts see, and under which name."""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

from .._hypervisor.storage import SHARED_KINDS, Mount, innermost, read_mounts
from .._patience import within
from .block_devices import Answer, BlockDevices
from .image_header import Header, Unreadable, read_header

Facts = t.Dict[str, t.Any]

PATIENCE_SECONDS = 2.0
# Kinds that may be of one host or of many: nothing is claimed of them.
_UNTOLD = ("fuse", "9p", "virtiofs", "lustre", "smb3", "pvfs2", "orangefs", "autofs")
_BY_UUID = "/dev/disk/by-uuid"
# Cluster file systems on a block device, which has another name on every host.
_ON_DEVICES = ("gfs2", "ocfs2", "acfs")


class LocalStores:
    """Implements L(Stores) for the host that this runs on. A file system whose server is gone is asked once, and for so long only."""

    def __init__(self, mounts: t.Optional[t.Sequence[Mount]] = None) -> None:
        self._mounts = {mount.path: mount for mount in (read_mounts() if mounts is None else mounts)}
        self._devices = BlockDevices()
        self._silent: t.Set[str] = set()

    def described(self) -> t.List[Facts]:
        """Return C(mounts) of C(kvmfleet_host)."""
        return [facts for facts in map(self._described, self._mounts.values()) if facts]

    def file(self, path: str) -> Answer:
        real = self._ask(path, lambda: os.path.realpath(path))
        if real is None or self._ask(real, lambda: _may_be_seen(real)) is not True:
            return None, None
        mount = self._mounts.get(innermost(real, self._mounts))
        if mount is None or (mount.kind.startswith(_UNTOLD) and mount.kind not in SHARED_KINDS):
            return None, None
        if mount.kind not in SHARED_KINDS:
            return False, None
        store = store_of(mount)
        return True, f"{store}/{os.path.relpath(real, mount.path)}" if store else None

    def block(self, path: str) -> Answer:
        return self._devices.identify(path)

    def bytes_of(self, path: str, image_format: str) -> t.Optional[int]:
        found = self._ask(path, lambda: os.stat(path))
        if found is None:
            return None
        return found.st_size if image_format == "raw" else found.st_blocks * 512

    def header(self, path: str) -> Header:
        found = self._ask(path, lambda: _header_or_problem(path))
        if isinstance(found, Header):
            return found
        raise Unreadable(found or f"{path} cannot be read: its file system did not answer within {PATIENCE_SECONDS:.0f} s")

    def _described(self, mount: Mount) -> t.Optional[Facts]:
        if mount.kind == "autofs":
            return None
        room = self._ask(mount.path, lambda: _room(mount.path))
        if room == (0, 0) or (room is None and mount.path not in self._silent):
            return None
        capacity, available = room or (None, None)
        store = store_of(mount)
        return {
            "path": _printable(mount.path),
            "kind": mount.kind,
            "store": _printable(store) if store else None,
            "capacity_bytes": capacity,
            "available_bytes": available,
        }

    def _ask(self, path: str, question: t.Callable[[], t.Any]) -> t.Any:
        place = innermost(path, self._mounts)
        mount = self._mounts.get(place)
        if place in self._silent:
            return None
        if mount is None or not (mount.kind in SHARED_KINDS or mount.kind.startswith(_UNTOLD)):
            return _unless_refused(question)
        answer = within(PATIENCE_SECONDS, lambda: (_unless_refused(question),))
        if answer is None:
            self._silent.add(place)
        return answer[0] if answer else None


def _header_or_problem(path: str) -> t.Union[Header, str]:
    try:
        return read_header(path)
    except Unreadable as problem:
        return str(problem)


def store_of(mount: Mount) -> t.Optional[str]:
    """Return the identity that the mount's file system has on every host, e.g. C(nfs4:nas:/export); null where it is not shared, or has none."""
    if mount.kind not in SHARED_KINDS:
        return None
    if mount.kind in _ON_DEVICES:
        uuid = _uuid_of(mount.source)
        return f"{mount.kind}:uuid:{uuid}{mount.root.rstrip('/')}" if uuid else None
    if not any(mark in mount.source for mark in (":", "//", "@")):
        return None
    return f"{mount.kind}:{_sorted_monitors(mount)}{mount.root.rstrip('/')}"


def _sorted_monitors(mount: Mount) -> str:
    """Ceph lists its monitors in the order in which they were given: C(b,a:/x) and C(a,b:/x) are one."""
    monitors, separator, path = mount.source.rpartition(":/")
    if mount.kind not in ("ceph", "fuse.ceph") or not separator:
        return mount.source.rstrip("/")
    return f"{','.join(sorted(monitors.split(',')))}:/{path}".rstrip("/")


def _uuid_of(device: str) -> t.Optional[str]:
    wanted = os.path.realpath(device)
    names = _unless_refused(lambda: os.listdir(_BY_UUID)) or ()
    return next((name for name in names if os.path.realpath(os.path.join(_BY_UUID, name)) == wanted), None)


def _room(path: str) -> t.Optional[t.Tuple[int, int]]:
    if not stat.S_ISDIR(os.stat(path).st_mode):
        return None
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _printable(name: str) -> str:
    """Names of files need not be text; facts are."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _may_be_seen(path: str) -> bool:
    """Whether this user can follow the path: behind a folder that may not be entered, there could be a link to anywhere."""
    with contextlib.suppress(FileNotFoundError):
        os.lstat(path)
    return True


def _unless_refused(question: t.Callable[[], t.Any]) -> t.Any:
    try:
        return question()
    except (OSError, ValueError):
        return None
