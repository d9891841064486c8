# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Notices on disk until they were sent: a file each, and a lock that says whether the process that will send them is alive."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
import typing as t
import uuid
from collections.abc import Iterator

from .._ledger.file.folder import Folder
from .._ledger.store import Body

MOST = 1000
_OLDEST_SECONDS = 7 * 86400
_NAME = re.compile(r"(\d{20})-([0-9a-f]{32})\.json")


class Kept(t.NamedTuple):
    """An event, and its file where it has one.

    :arg sure: what it tells has happened; else the ledger has to be asked.
    """

    event: Body
    name: str | None
    sure: bool


class Spool:
    """:arg path: the folder, made where it is missing. Raises C(OSError), also for somebody else's folder.

    Notices of a process that has ended are left to the next one; at most L(MOST) are kept, for a week.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)
        self.path = path
        self.dropped = 0
        self._folder = Folder.at(path)
        if os.fstat(self._folder.fd).st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to somebody else")
        self._owner = uuid.uuid4().hex
        self._lock: int | None = None

    def keep(self, event: Body, sure: bool) -> Kept:
        """Write the event, so that it outlives this process. Raises C(OSError)."""
        if self._lock is None:
            self._lock = self._claim(self._owner)
        self._make_room()
        name = f"{time.time_ns():020d}-{self._owner}.json"
        self._folder.write(name, json.dumps({"sure": sure, "event": event}).encode("ascii"))
        return Kept(event, name, sure)

    def drop(self, kept: Kept) -> None:
        """Forget a notice that was sent, or that is for nobody."""
        if kept.name is not None:
            self._folder.remove(kept.name)

    def names(self) -> list[str]:
        """Return the files of all notices, oldest first."""
        return [name for name in self._folder.names() if _NAME.fullmatch(name)]

    def left(self) -> Iterator[Kept]:
        """Yield what processes that have ended did not send; nobody else takes it as long as the iterator lives."""
        for owner in sorted({_owner_of(name) for name in self.names()} - {self._owner}):
            lock = self._claim(owner)
            if lock is None:
                continue
            try:
                yield from self._of(owner)
                self._clear(owner)
            finally:
                os.close(lock)

    def close(self) -> None:
        """Leave to others what is still here."""
        if self._lock is not None:
            self._clear(self._owner)
            os.close(self._lock)
            self._lock = None

    def _claim(self, owner: str) -> int | None:
        lock = self._folder.open(f"{owner}.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _of(self, owner: str) -> Iterator[Kept]:
        for name in [name for name in self.names() if _owner_of(name) == owner]:
            kept = self._read(name)
            if kept is not None:
                yield kept

    def _read(self, name: str) -> Kept | None:
        """Return the notice; one that is too old or cannot be read is removed."""
        try:
            found = json.loads(self._folder.read(name))
            if time.time_ns() - int(name[:20]) < _OLDEST_SECONDS * 10**9:
                return Kept(found["event"], name, found["sure"] is True)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            pass
        self._folder.remove(name)
        self.dropped += 1
        return None

    def _clear(self, owner: str) -> None:
        """Remove an owner's lock where nothing of it is left; what a crash left half written goes with it."""
        if not any(_owner_of(name) == owner for name in self.names()):
            for name in self._folder.names():
                if owner in name:
                    self._folder.remove(name)

    def _make_room(self) -> None:
        names = self.names()
        for name in names[: max(0, len(names) - MOST + 1)]:
            self._folder.remove(name)
            self.dropped += 1


def waiting_in(path: str) -> int:
    """Return how many notices a folder keeps; 0 where there is none. Raises C(OSError)."""
    try:
        return sum(bool(_NAME.fullmatch(name)) for name in os.listdir(path))
    except FileNotFoundError:
        return 0


def _owner_of(name: str) -> str:
    return name[21:53]
