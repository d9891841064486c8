# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Who may act on a domain at its source host: the holder of the lock whose generation is the newest."""

from __future__ import annotations

import fcntl
import json
import os
import typing as t

from .._errors import Conflict, Internal
from .files import RUN_FOLDER, lock_path


class Watched(Conflict):
    """Another process holds the lock: a watcher lives."""


def is_locked(domain_uuid: str, folder: str = RUN_FOLDER) -> bool:
    """Whether a process holds the lock of that domain. Makes no lock."""
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


class Ownership:
    """The lock of one domain, held until L(release) or the end of the process."""

    def __init__(self, domain_uuid: str, folder: str = RUN_FOLDER) -> None:
        """Take the lock. Raises L(Watched) at once where another process has it."""
        self._domain_uuid = domain_uuid
        self._descriptor = os.open(lock_path(domain_uuid, folder), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise Watched(f"The move of domain {domain_uuid} is already watched on this host.") from error

    def begin(self, record_id: str, generation: int) -> None:
        """Write that this record acts now. Raises L(Conflict) where it, or a newer one, was begun here before."""
        record, newest = self._read()
        if generation <= newest:
            self.release()
            raise Conflict(
                f"Record {record_id} (generation {generation}) of domain {self._domain_uuid} came too late: "
                f"record {record} (generation {newest}) was begun on this host.",
                "Nothing was started. Run the task again.",
            )
        self._write(record_id, generation)

    def take_over(self, record_id: str, generation: int) -> int:
        """Write a generation newer than any before for this record, and return it."""
        newest = max(self._read()[1], generation) + 1
        self._write(record_id, newest)
        return newest

    def release(self) -> None:
        """Give the lock up; what was written in it stays."""
        os.close(self._descriptor)

    def _read(self) -> t.Tuple[t.Optional[str], int]:
        content = os.pread(self._descriptor, 4096, 0)
        if not content:
            return None, 0
        try:
            document = json.loads(content)
            return document["record"], int(document["generation"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise Internal(
                f"The lock file of domain {self._domain_uuid} is damaged, so it cannot be told which move is the newest.",
                "Make sure that no migration of the domain runs, remove the file under /run/kvmfleet and run again.",
            ) from error

    def _write(self, record_id: str, generation: int) -> None:
        content = json.dumps({"record": record_id, "generation": generation}).encode()
        try:
            os.pwrite(self._descriptor, content.ljust(128) + b"\n", 0)
        except OSError as error:
            self.release()
            raise Internal(
                f"The lock file of domain {self._domain_uuid} cannot be written: {error.strerror}.",
                "Nothing was started. Make room under /run/kvmfleet on this host and run the task again.",
            ) from error
