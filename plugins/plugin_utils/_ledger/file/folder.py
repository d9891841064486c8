# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The folder of a file ledger, and the folders below it.

All files are reached through descriptors, no symbolic link is followed, and writes are durable.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import time
import types
import typing as t
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, Internal, InvalidArgument, KvmfleetError, TimedOut

from ..identity import (
    COPYING_NAME,
    IDENTITY_NAME,
    IdentitySource,
    LedgerIdentity,
    decode_identity,
    lost_identity_step,
    missing_ledger_error,
    new_identity,
    replaced_error,
    unfinished_copy_error,
)

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_MODE = 0o600
# The errors if a path is not a regular file.
NOT_A_FILE = (errno.ELOOP, errno.EISDIR, errno.ENXIO)
_FOLDER_MODE = 0o700


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes at the descriptor's position."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_bytes(fd: int, size: int) -> bytes:
    data = os.read(fd, size)
    while len(data) < size and (more := os.read(fd, size - len(data))):
        data += more
    return data


def _is_written_since(entry: os.DirEntry[str], unix_time: float) -> bool:
    # A file that has disappeared in the meantime is reported when it is opened.
    with contextlib.suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_mtime >= unix_time
    return True


class Folder:
    """Raises C(OSError) as the operating system gives it; a folder is closed by C(with)."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def open_path(cls, path: str) -> Folder:
        """Open an existing folder; the last part of the path may be a link, because a person chose it."""
        return cls(os.open(path, _FOLDER_FLAGS), path)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, kind: t.Optional[type[BaseException]], error: t.Optional[BaseException], traceback: t.Optional[types.TracebackType]) -> None:
        os.close(self.fd)

    def open_folder(self, *parts: str, create: bool = False) -> Folder:
        """Open the folder below, part by part; missing folders are created if C(create) is set."""
        folder = Folder(os.dup(self.fd), self.path)
        for part in parts:
            with folder:
                folder = folder._open_child(part, create)
        return folder

    def _open_child(self, name: str, create: bool) -> Folder:
        try:
            fd = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=self.fd)
        except FileNotFoundError:
            if not create:
                raise
            fd = self._make_child(name)
        return Folder(fd, os.path.join(self.path, name))

    def _make_child(self, name: str) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, _FOLDER_MODE, dir_fd=self.fd)
            os.chmod(name, _FOLDER_MODE, dir_fd=self.fd)  # A umask may have removed the owner's permissions.
            self.sync_names()
        return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=self.fd)

    def list_names(self) -> list[str]:
        """Return the names in the folder, sorted."""
        return sorted(os.listdir(self.fd))

    def each_name(self, written_since: t.Optional[float] = None) -> t.Iterator[str]:
        """Yield the names in the folder, in no order, without reading all of them at once.

        :arg written_since: Unix time; files that were last written before it are omitted.
        """
        with os.scandir(self.fd) as entries:
            for entry in entries:
                if written_since is None or _is_written_since(entry, written_since):
                    yield entry.name

    def open_file(self, name: str, flags: int) -> int:
        """Return a descriptor of a file here, created with mode 0600 whatever the umask; never follows a link, never waits for a pipe."""
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _FILE_MODE, dir_fd=self.fd)
        if flags & os.O_CREAT:
            os.fchmod(fd, _FILE_MODE)
        return fd

    def read_file(self, name: str) -> bytes:
        """Return the whole content of a file."""
        fd = self.open_file(name, os.O_RDONLY)
        try:
            return _read_bytes(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def write_file(self, name: str, data: bytes) -> None:
        """Replace a file atomically: after a crash it has its old or its new content, never a part."""
        temporary = f".{name}.tmp"
        self.remove_file(temporary)
        fd = self.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        self.sync_names()

    def remove_file(self, name: str) -> bool:
        """Remove a file. Return whether it existed. Not durable before L(sync_names)."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def move_file(self, name: str, other: Folder, new_name: str) -> None:
        """Move an entry, a link itself included, to another folder of the same file system."""
        os.rename(name, new_name, src_dir_fd=self.fd, dst_dir_fd=other.fd)
        other.sync_names()
        self.sync_names()

    def sync_names(self) -> None:
        """Make the folder's list of names durable."""
        os.fsync(self.fd)


def sync_file_system(folder: Folder) -> None:
    """Wait until all that was written to its file system is on the disk. Where the system can do that, no other one is waited for: a server may hang."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
    elif syncfs(folder.fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), folder.path)


_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_UNUSABLE = (errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT)


def _translate_error(error: OSError, path: str) -> KvmfleetError:
    cause = error.strerror or str(error)
    if os.path.isdir(path):
        # A new ledger in another folder would know nothing of the moves in this one.
        if error.errno == errno.EROFS:
            return Forbidden(f"Failed to use the ledger {path}: {cause}.", "Repair the file system, or mount it for writing, then run the task again.")
        if error.errno in _FORBIDDEN:
            own_it = "Run as the owner of the ledger, or change the owner of the folder and its contents (chown -R)."
            return Forbidden(f"Failed to use the ledger {path}: {cause}.", own_it)
        if error.errno in _UNUSABLE:
            return InvalidArgument(f"Failed to use the ledger {path}: {cause}.", "Restore what is missing there, or is a link or no folder, from a backup.")
    if error.errno in _FORBIDDEN:
        return Forbidden(f"Failed to use the ledger {path}: {cause}.", "Run as a user who may write there, or set 'ledger' to another folder.")
    if error.errno in _UNUSABLE:
        return InvalidArgument(f"Failed to use the ledger {path}: {cause}.", "Set 'ledger' to a folder that can be created or used.")
    # A unit whose journal was complete is finished by the next access; one whose journal was not has changed nothing.
    return Internal(f"Failed to write the ledger {path}: {cause}.", "Free space or repair the file system; the next access completes or discards the change.")


@contextlib.contextmanager
def report_disk_errors(path: t.Union[str, os.PathLike[str]]) -> Iterator[None]:
    """Turn any C(OSError) inside into L(Forbidden), L(InvalidArgument) or L(Internal) that names the ledger's folder."""
    try:
        yield
    except OSError as error:
        raise _translate_error(error, str(path)) from error


# The lock of the ledger itself, the gate for waiting processes, and how long they wait.
LOCK_NAME = "ledger.lock"
GATE_NAME = "ledger.gate"
LOCK_SECONDS = 60.0
_FIRST_WAIT_SECONDS = 0.001
_LONGEST_WAIT_SECONDS = 0.02


def _try_lock(fd: int, operation: int, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    wait = _FIRST_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        time.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)


@contextlib.contextmanager
def hold_file_lock(folder: Folder, name: str, exclusive: bool, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock file of that name in the folder. Raises L(TimedOut) that names the file if it is not obtained in time."""
    fd = folder.open_file(name, os.O_RDWR | os.O_CREAT)
    try:
        if not _try_lock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, timeout_seconds):
            path = os.path.join(folder.path, name)
            raise TimedOut(
                f"The lock {path} was held by another process for more than {timeout_seconds:g} s; nothing was changed.",
                f"Wait for the run that holds it ('fuser {path}' shows its process) and try again.",
            )
        yield
    finally:
        os.close(fd)


ALLOWED_BEFORE = {IDENTITY_NAME, LOCK_NAME, GATE_NAME, f".{IDENTITY_NAME}.tmp"}


def ensure_ledger(path: str, create: bool) -> LedgerIdentity:
    """Return the identity of the ledger at the path, creating both if C(create) is set.

    Raises L(NotFound) if it is missing and must not be created, L(InvalidArgument) for a folder with other data, L(InvalidState) for a damaged ledger and an
    unfinished copy of one, L(NotSupported) for one of a later version, L(Forbidden) for another user's folder, and C(OSError).
    """
    if create:
        make_folder(path)
    try:
        root = Folder.open_path(path)
    except FileNotFoundError as error:
        raise missing_ledger_error(path) from error
    with root:
        check_owner(root)
        return _read_identity(root) or _found_ledger(root, create)


def make_folder(path: str) -> None:
    """Create the folder and its missing parents, accessible to the user only."""
    with contextlib.suppress(FileExistsError):
        _make_parents(os.path.dirname(path))
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)


def _make_parents(path: str) -> None:
    """Create the parent folders, accessible to the user only: a user who can write to one of them could replace the ledger."""
    if path and not os.path.isdir(path):
        _make_parents(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)


def check_owner(root: Folder) -> None:
    """Raise L(Forbidden) for another user's folder."""
    owner = os.fstat(root.fd).st_uid
    if owner != os.geteuid():
        raise Forbidden(
            f"The folder {root.path} belongs to the user ID {owner}, but this process runs as {os.geteuid()}: its owner could change the ledger. "
            "Nothing was written there.",
            "Run this as its owner, or change the owner of the folder and its contents (chown -R).",
        )


def _found_ledger(root: Folder, create: bool) -> LedgerIdentity:
    names = set(root.list_names())
    if COPYING_NAME in names:
        raise unfinished_copy_error(root.read_file(COPYING_NAME), root.path)
    foreign = sorted(names - ALLOWED_BEFORE)
    if foreign:
        raise InvalidArgument(
            f"The folder {root.path} is not a ledger and contains other data (e.g. {foreign[0]!r}); nothing was written there.",
            lost_identity_step("file", "an empty or a new folder"),
        )
    if not create:
        raise missing_ledger_error(root.path)
    os.fchmod(root.fd, 0o700)
    with hold_file_lock(root, LOCK_NAME, True, LOCK_SECONDS):
        found = _read_identity(root)
        return found or _write_identity(root)


def _write_identity(root: Folder) -> LedgerIdentity:
    made = new_identity()
    root.write_file(IDENTITY_NAME, made.data)
    return made


def identity_source(path: str) -> IdentitySource:
    """Return the location of the identity of a ledger in that folder."""
    return IdentitySource(path, os.path.join(path, IDENTITY_NAME), "Restore that file from a backup.")


def read_if_present(root: Folder, name: str = IDENTITY_NAME) -> t.Optional[bytes]:
    """Return the bytes of the ledger's identity, or of another file next to it; None if it does not exist."""
    try:
        return root.read_file(name)
    except FileNotFoundError:
        return None


def check_unchanged(root: Folder, identity: LedgerIdentity) -> None:
    """Raise L(InvalidState) if the ledger is another one than when it was opened, or was moved elsewhere since."""
    now = read_if_present(root)
    if now != identity.data:
        raise replaced_error(now, identity_source(root.path))


def reread_identity(root: Folder, identity: LedgerIdentity) -> LedgerIdentity:
    """Return the identity of an archive as it is now: a run may have added to the archive. Raises L(InvalidState) if it is another one, or none any more."""
    now = _read_identity(root)
    if now is None or now.archive_of is None or now.ledger_id != identity.ledger_id:
        raise replaced_error(None, identity_source(root.path))
    return now


def _read_identity(root: Folder) -> t.Optional[LedgerIdentity]:
    document = read_if_present(root)
    if document is None:
        return None
    identity = decode_identity(document, identity_source(root.path))
    # Definitions contain passwords: permissions that a copy or a restore widened are restricted again.
    if stat.S_IMODE(os.fstat(root.fd).st_mode) & 0o077:
        os.fchmod(root.fd, 0o700)
    return identity
