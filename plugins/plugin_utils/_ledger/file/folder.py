# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""An open folder: what lies below it is reached through its descriptor, no symbolic link is followed, and what is written is durable."""

from __future__ import annotations

import contextlib
import errno
import os
import typing as t

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_MODE = 0o600
# What opening says of what a person put in a file's place.
NOT_A_FILE = (errno.ELOOP, errno.EISDIR, errno.ENXIO)
_FOLDER_MODE = 0o700


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes where the descriptor stands."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_all(fd: int, size: int) -> bytes:
    data = os.read(fd, size)
    while len(data) < size and (more := os.read(fd, size - len(data))):
        data += more
    return data


def _is_as_new(entry: os.DirEntry[str], unix_time: float) -> bool:
    # What has gone meanwhile is left to whoever opens it.
    with contextlib.suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_mtime >= unix_time
    return True


class Folder:
    """Raises C(OSError) as the operating system gives it; a folder is closed by C(with)."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def at(cls, path: str) -> Folder:
        """Open an existing folder; the last part of the path may be a link, since a person chose it."""
        return cls(os.open(path, _FOLDER), path)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *args: t.Any) -> None:
        os.close(self.fd)

    def sub(self, *parts: str, create: bool = False) -> Folder:
        """Open the folder below, part by part, making what is missing where C(create)."""
        folder = Folder(os.dup(self.fd), self.path)
        for part in parts:
            with folder:
                folder = folder._child(part, create)
        return folder

    def _child(self, name: str, create: bool) -> Folder:
        try:
            fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.fd)
        except FileNotFoundError:
            if not create:
                raise
            fd = self._make(name)
        return Folder(fd, os.path.join(self.path, name))

    def _make(self, name: str) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, _FOLDER_MODE, dir_fd=self.fd)
            os.chmod(name, _FOLDER_MODE, dir_fd=self.fd)  # a umask may have taken our own rights
            self.sync()
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.fd)

    def names(self) -> list[str]:
        """Return what the folder holds, sorted."""
        return sorted(os.listdir(self.fd))

    def each_name(self, written_since: t.Optional[float] = None) -> t.Iterator[str]:
        """Yield what the folder holds, in no order; of very many names never all at once.

        :arg written_since: Unix time; what was last written before it is left out.
        """
        with os.scandir(self.fd) as entries:
            for entry in entries:
                if written_since is None or _is_as_new(entry, written_since):
                    yield entry.name

    def open(self, name: str, flags: int) -> int:
        """Return a descriptor of a file here, made with mode 0600 whatever the umask; never through a link, never waiting for a pipe."""
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _FILE_MODE, dir_fd=self.fd)
        if flags & os.O_CREAT:
            os.fchmod(fd, _FILE_MODE)
        return fd

    def read(self, name: str) -> bytes:
        """Return the whole content of a file."""
        fd = self.open(name, os.O_RDONLY)
        try:
            return _read_all(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes) -> None:
        """Replace a file at once: its old content or its new one is there after a crash, never a part."""
        temporary = f".{name}.tmp"
        self.remove(temporary)
        fd = self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        self.sync()

    def remove(self, name: str) -> bool:
        """Remove a file; return whether it was there. Not durable before L(sync)."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def move(self, name: str, other: Folder, new_name: str) -> None:
        """Move an entry, a link itself included, to another folder of the same file system."""
        os.rename(name, new_name, src_dir_fd=self.fd, dst_dir_fd=other.fd)
        other.sync()
        self.sync()

    def sync(self) -> None:
        """Make the folder's list of names durable."""
        os.fsync(self.fd)
