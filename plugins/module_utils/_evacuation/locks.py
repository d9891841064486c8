# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether some QEMU, on this host or another, has an image open for writing: asked of QEMU's own locks.

A held lock forbids. A free one proves nothing: not every file system carries locks between hosts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import typing as t

LOCKED = "locked"
FREE = "free"
UNPROVABLE = "unprovable"

# What a person does about locks that outlive their host.
FREE_KEPT = (
    "Free the lock on the storage: on an NFS 3 server, tell its statd that the dead host has lost its locks (an SM_NOTIFY in that host's name), or give the"
    " image a new file (copy it there, and rename the copy). The guide on evacuation shows both. Then evacuate again."
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
    """C(state) is LOCKED, FREE or UNPROVABLE; C(why) says, for a person, why it could not be told."""

    state: str
    why: str = ""


def probe(path: str, may_take: bool = False) -> LockFinding:
    """Return whether the image is locked. Reads no byte of it and changes nothing; a path that is no regular file is unprovable.

    :arg may_take: whether the locks of an image on a file server may be taken for a moment, which a QEMU that starts just then is refused by. Without it
      an NFS 3 server is believed that does not tell of shared locks.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return LockFinding(UNPROVABLE, f"{path} cannot be opened: {error.strerror}")
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return LockFinding(UNPROVABLE, f"{path} is no regular file: QEMU locks no other")
        held = any(_is_held(handle, byte) for byte in _BYTES)
        return LockFinding(LOCKED if held or (may_take and _is_remote(handle) and _is_refused(path)) else FREE)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return LockFinding(UNPROVABLE, f"the file system of {path} tells nothing of locks: {error.strerror}")
    finally:
        os.close(handle)


def _is_held(handle: int, byte: int) -> bool:
    answer = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _write_lock(byte)))
    return bool(answer[0] != fcntl.F_UNLCK)


def _is_remote(handle: int) -> bool:
    """Whether the file's system has no block device of its own here, as NFS, CephFS and FUSE have none."""
    return os.major(os.fstat(handle).st_dev) == 0


def _is_refused(path: str) -> bool:
    """Whether the locks cannot be had. They are taken for a moment: asked for a shared lock, an NFS 3 server may not tell of it (Debian's Linux 6.1.0-50)."""
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
