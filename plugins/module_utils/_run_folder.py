# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The folder /run/kvmfleet on a source host: its files, and the locks that decide which process may act on a domain."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import typing as t
import uuid

from ._files import replace_volatile_file
from ._model.codec import ABSENT, Absent, Json
from ._model.errors import Conflict, Forbidden, Internal
from ._model.references import parse_uuid

RUN_FOLDER = "/run/kvmfleet"


def prepare_run_folder(folder: str = RUN_FOLDER) -> str:
    """Return the folder, and create it if it is missing. Raises L(Forbidden) if other users own it or can write to it."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except PermissionError as error:
        raise Forbidden(f"{folder} cannot be used: {error.strerror}.", "The module needs root on the host: set become.") from error
    except OSError as error:
        raise Forbidden(f"{folder} cannot be used: {error.strerror}.", "Check /run on this host, which may be full or read-only.") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise Forbidden(f"{folder} is not a folder that only this user can write.", "Remove it and run again.")
    if status.st_mode & 0o077:
        # If the boot guard of version 0.1.0 ran first, it has made the folder readable for all users.
        os.chmod(folder, 0o700)
    return folder


def state_path(domain_uuid: str, folder: str = RUN_FOLDER) -> str:
    """Return the path of the state file of that domain."""
    return os.path.join(folder, f"{parse_uuid(domain_uuid)}.json")


def lock_path(domain_uuid: str, folder: str = RUN_FOLDER) -> str:
    """Return the path of the lock of that domain."""
    return os.path.join(folder, f"{parse_uuid(domain_uuid)}.lock")


def heartbeat_path(run_id: str, folder: str = RUN_FOLDER) -> str:
    """Return the path of the heartbeat of a run."""
    return os.path.join(folder, f"{parse_uuid(run_id)}.heartbeat")


def admissions_path(run_id: str, folder: str = RUN_FOLDER) -> str:
    """Return the path of the file in which a run lists which of its waiting moves are admitted."""
    return os.path.join(folder, f"{parse_uuid(run_id)}.turns")


def seen_path(run_id: str, folder: str = RUN_FOLDER) -> str:
    """Return the path of the file in which a run's watcher writes, at its end, the facts of the hosts of its moves."""
    return os.path.join(folder, f"{parse_uuid(run_id)}.seen")


def orders_path(run_id: str, pid: int, folder: str = RUN_FOLDER) -> str:
    """Return the path of the file in which a run leaves the orders for the spare watcher with this process ID."""
    return os.path.join(folder, f"{parse_uuid(run_id)}.{pid}.orders")


def taken_path(run_id: str, pid: int, folder: str = RUN_FOLDER) -> str:
    """Return the path that a spare watcher gives the file of its orders when it takes them."""
    return os.path.join(folder, f"{parse_uuid(run_id)}.{pid}.taken")


def started_path(run_id: str, pid: int, folder: str = RUN_FOLDER) -> str:
    """Return the path of the file in which a spare watcher reports what it took."""
    return os.path.join(folder, f"{parse_uuid(run_id)}.{pid}.started")


def log_path(run_id: str, folder: str = RUN_FOLDER) -> str:
    """Return the path of the log of a run's watchers."""
    return os.path.join(folder, f"{parse_uuid(run_id)}.log")


def act_path(domain_uuid: str, folder: str = RUN_FOLDER) -> str:
    """Return the path of the file with the last start or stop of that domain by this collection."""
    return os.path.join(folder, f"{parse_uuid(domain_uuid)}.act")


def note_own_act(domain_uuid: str, folder: str = RUN_FOLDER) -> None:
    """Note, before a domain is started or asked to stop, that this is done by the collection, so that it is not taken for an act of others.

    Without space for the file, the domain is started or stopped all the same.
    """
    with contextlib.suppress(OSError):
        write_json(act_path(domain_uuid, folder), {"id": str(uuid.uuid4())})


def read_own_act(domain_uuid: str, folder: str = RUN_FOLDER) -> t.Union[str, Absent, None]:
    """Return the ID of the last start or stop by this collection in this boot; null for none, C(ABSENT) if this user may not know."""
    try:
        noted = read_json(act_path(domain_uuid, folder))
    except PermissionError:
        return ABSENT
    return str(noted.get("id")) if isinstance(noted, dict) else None


def write_json(path: str, document: Json) -> None:
    """Replace the file in one step: a reader sees the old document or the new one, on one line."""
    replace_volatile_file(path, json.dumps(document, separators=(",", ":")) + "\n", 0o600)


def read_json(path: str) -> Json:
    """Return the document of a file; null if the file does not exist or is not JSON."""
    try:
        with open(path, encoding="utf-8") as stream:
            document: Json = json.load(stream)
            return document
    except (FileNotFoundError, ValueError, RecursionError):
        return None


class AlreadyWatched(Conflict):
    """Another process holds the lock: a watcher lives."""


def is_locked(domain_uuid: str, folder: str = RUN_FOLDER) -> bool:
    """Whether a process holds the lock of that domain. Creates no lock."""
    try:
        descriptor = os.open(lock_path(domain_uuid, folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_newest(record_id: str, generation: int, domain_uuid: str, folder: str = RUN_FOLDER) -> bool:
    """Whether the last record that has begun for that domain on this host is this one, in this generation. Does not need the lock.

    An order that would begin it has come before then, for example because SSH has repeated its command.
    """
    return read_json(lock_path(domain_uuid, folder)) == {"record": record_id, "generation": generation}


def has_begun_last(record_id: str, domain_uuid: str, folder: str = RUN_FOLDER) -> bool:
    """Whether the last record that has begun for that domain on this host is this one, in whatever generation. Does not need the lock."""
    last = read_json(lock_path(domain_uuid, folder))
    return isinstance(last, dict) and last.get("record") == record_id


class Ownership:
    """The lock of one domain, held until L(release_lock) or the end of the process."""

    def __init__(self, domain_uuid: str, folder: str = RUN_FOLDER) -> None:
        """Take the lock. Raises L(AlreadyWatched) at once if another process has it, L(Internal) if its file cannot be opened."""
        self._domain_uuid = domain_uuid
        try:
            self._descriptor = os.open(lock_path(domain_uuid, folder), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Internal(
                f"The lock file of domain {domain_uuid} cannot be opened under {folder}: {error.strerror}.",
                "Nothing was started. Correct this on the host, then run the task again.",
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise AlreadyWatched(f"The move of domain {domain_uuid} is already watched on this host.") from error

    def begin_record(self, record_id: str, generation: int) -> None:
        """Write that this process acts for this record now.

        Raises L(Conflict) if the record, or a newer one, has already begun on this host. Whatever it raises, the lock is still held.
        """
        record, newest = self._read_generation()
        if generation <= newest:
            raise Conflict(
                f"Record {record_id} (generation {generation}) of domain {self._domain_uuid} came too late: "
                f"record {record} (generation {newest}) was started on this host.",
                "Nothing was started. Run the task again.",
            )
        self._write_generation(record_id, generation)

    def take_over(self, record_id: str, generation: int) -> int:
        """Write a generation newer than any before for this record, and return it."""
        newest = max(self._read_generation()[1], generation) + 1
        self._write_generation(record_id, newest)
        return newest

    def release_lock(self) -> None:
        """Release the lock; its content stays."""
        os.close(self._descriptor)

    def _read_generation(self) -> t.Tuple[t.Optional[str], int]:
        content = os.pread(self._descriptor, 4096, 0)
        if not content:
            return None, 0
        try:
            document = json.loads(content)
            return document["record"], int(document["generation"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise Internal(
                f"The lock file of domain {self._domain_uuid} is damaged, so the newest move is not known.",
                "Make sure that no migration of the domain runs, remove the file under /run/kvmfleet and run again.",
            ) from error

    def _write_generation(self, record_id: str, generation: int) -> None:
        content = json.dumps({"record": record_id, "generation": generation}).encode()
        try:
            os.pwrite(self._descriptor, content.ljust(128) + b"\n", 0)
        except OSError as error:
            raise Internal(
                f"The lock file of domain {self._domain_uuid} cannot be written: {error.strerror}.",
                "Nothing was started. Free space under /run/kvmfleet on this host, then run the task again.",
            ) from error
