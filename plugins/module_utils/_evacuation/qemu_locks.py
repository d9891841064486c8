# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The locks of QEMU on images: whether a QEMU process, on this host or another, has an image open for writing, and how locks of a dead host end.

A held lock forbids a start. A free lock proves nothing: not every file system passes locks on to other hosts.

An NFS 4 server drops locks after the client's lease (90 s by default on Linux; RFC 8881, section 8.3), a CephFS server when it evicts the client (its
C(session_autoclose), 300 s by default). The lock manager of NFS 3 has no leases: it drops the locks when the client is back and sends a notification.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import typing as t

from .._model.saved_domains import SavedDisk

if t.TYPE_CHECKING:
    from .._facts.mounts import Mount

LOCKED = "locked"
FREE = "free"
UNPROVABLE = "unprovable"

# The next step for locks that outlive their host.
FREE_KEPT_LOCKS = (
    "Free the lock on the storage, then evacuate again: on an NFS 3 server, tell its statd that the dead host has lost its locks (an SM_NOTIFY in that host's"
    " name), or replace the image by a copy (copy it there, then rename the copy). docs/guides/evacuation.md shows both."
)

# Bytes that QEMU locks in an image (its block/file-posix.c): from 100 one for each permission that it has, from 200 one for each that it does not
# share. The second of both is writing.
_WRITES = 101
_LETS_NOBODY_WRITE = 201
_BYTES = (_WRITES, _LETS_NOBODY_WRITE)
# struct flock of 64-bit Linux: type, whence, start, length, process; and padding to its end.
_FLOCK = "hhqqi4x"
_NO_LOCKS = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class LockFinding(t.NamedTuple):
    """C(state) is LOCKED, FREE or UNPROVABLE; C(why) states why it is unprovable."""

    state: str
    why: str = ""


def probe_lock(path: str, may_take: bool = False) -> LockFinding:
    """Return whether the image is locked. Neither reads nor writes it; a path that is not a regular file is unprovable.

    :arg may_take: whether the locks of an image on a file server may be taken for a moment. A QEMU that starts at that moment is refused. Without it, an
      NFS 3 server that does not report shared locks makes a locked image look free.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return LockFinding(UNPROVABLE, f"{path} cannot be opened: {error.strerror}")
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return LockFinding(UNPROVABLE, f"{path} is not a regular file: QEMU locks only regular files")
        held = any(_is_byte_held(handle, byte) for byte in _BYTES)
        return LockFinding(LOCKED if held or (may_take and _is_remote(handle) and _is_refused(path)) else FREE)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return LockFinding(UNPROVABLE, f"the file system of {path} does not report locks: {error.strerror}")
    finally:
        os.close(handle)


def _is_byte_held(handle: int, byte: int) -> bool:
    answer = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _write_lock(byte)))
    return bool(answer[0] != fcntl.F_UNLCK)


def _is_remote(handle: int) -> bool:
    """Whether the file is on a file system without a block device of its own, such as NFS, CephFS or FUSE."""
    return os.major(os.fstat(handle).st_dev) == 0


def _is_refused(path: str) -> bool:
    """Whether the locks cannot be taken. They are taken for a moment because an NFS 3 server may not report a shared lock (Debian's Linux 6.1.0-50)."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        for byte in _BYTES:
            fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _write_lock(byte))
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    finally:
        os.close(handle)
    return False


def _write_lock(byte: int) -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)


# LEASED: the locks end by themselves. KEPT: they stay until their host is back. LOCAL: only their host knows them.
LEASED, KEPT, LOCAL = "leased", "kept", "local"

_LEASE_SECONDS = {"ceph": 300, "fuse.ceph": 300, "fuse.ceph-fuse": 300}
_USUAL_SECONDS = 90
# Servers check for expired leases from time to time.
_SLACK_SECONDS = 15
_NFS_WITHOUT_LEASES = ("vers=2", "vers=3")
_NOT_SENT = ("nolock", "local_lock=all", "local_lock=posix")


def classify_locks(mount: Mount) -> str:
    """Return L(LEASED), L(KEPT) or L(LOCAL) for QEMU's locks on images there."""
    options = mount.options.split(",")
    if not mount.kind.startswith("nfs") or not any(option in _NFS_WITHOUT_LEASES for option in options):
        return LEASED
    return LOCAL if any(option in _NOT_SENT for option in options) else KEPT


def has_kept_locks(disk: SavedDisk) -> bool:
    """Whether the locks on a saved disk outlive their host."""
    return disk.locks == KEPT


def lease_seconds(disks: t.Iterable[SavedDisk]) -> int:
    """Return after how long the locks of a dead host on all of these saved disks have ended, apart from locks that do not end."""
    kinds = [disk.mount.kind if disk.mount else "" for disk in disks if not has_kept_locks(disk)]
    return max((_LEASE_SECONDS.get(kind, _USUAL_SECONDS) + _SLACK_SECONDS for kind in kinds), default=0)
