# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Delivery of notices: the spool, which keeps each notice on disk until it was sent, and the thread that sends them during the task."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import itertools
import json
import os
import random
import re
import threading
import time
import typing as t
import uuid
from collections.abc import Callable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject

from .._ledger.file.folder import Folder
from .webhook import WebhookAnswer

MOST_NOTICES = 1000
_MAX_AGE_SECONDS = 7 * 86400
_FILE_NAME = re.compile(r"(\d{20})-([0-9a-f]{32})\.json")


class SpooledNotice(t.NamedTuple):
    """An event, and its file if it has one.

    :arg sure: whether its change has certainly happened; otherwise the ledger has to be checked.
    """

    event: JsonObject
    name: str | None
    sure: bool


class Spool:
    """:arg path: the folder, which is created if it is missing. Raises C(OSError), also for another user's folder.

    Notices of a process that has ended are left to the next one; at most L(MOST_NOTICES) are kept, for a week.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)
        self.path = path
        self.dropped = 0
        self._folder = Folder.open_path(path)
        if os.fstat(self._folder.fd).st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        self._owner = uuid.uuid4().hex
        self._lock: int | None = None

    def keep_event(self, event: JsonObject, sure: bool) -> SpooledNotice:
        """Write the event, so that it survives this process. Raises C(OSError)."""
        if self._lock is None:
            self._lock = self._lock_owner(self._owner)
        self._make_room()
        name = f"{time.time_ns():020d}-{self._owner}.json"
        self._folder.write_file(name, json.dumps({"sure": sure, "event": event}).encode("ascii"))
        return SpooledNotice(event, name, sure)

    def remove_notice(self, kept: SpooledNotice) -> None:
        """Remove a notice that was sent, or has no receiver."""
        if kept.name is not None:
            self._folder.remove_file(kept.name)

    def names(self) -> list[str]:
        """Return the files of all notices, oldest first."""
        return [name for name in self._folder.list_names() if _FILE_NAME.fullmatch(name)]

    def left_notices(self) -> Iterator[SpooledNotice]:
        """Yield the unsent notices of ended processes; no other process takes them while the iterator exists."""
        for owner in sorted({_owner_of(name) for name in self.names()} - {self._owner}):
            lock = self._lock_owner(owner)
            if lock is None:
                continue
            try:
                yield from self._read_owned(owner)
                self._clear_owner(owner)
            finally:
                os.close(lock)

    def close(self) -> None:
        """Leave the remaining notices to other processes."""
        if self._lock is not None:
            self._clear_owner(self._owner)
            os.close(self._lock)
            self._lock = None

    def _lock_owner(self, owner: str) -> int | None:
        lock = self._folder.open_file(f"{owner}.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _read_owned(self, owner: str) -> Iterator[SpooledNotice]:
        for name in [name for name in self.names() if _owner_of(name) == owner]:
            kept = self._read_notice(name)
            if kept is not None:
                yield kept

    def _read_notice(self, name: str) -> SpooledNotice | None:
        """Return the notice; one that is too old or cannot be read is removed."""
        try:
            found = json.loads(self._folder.read_file(name))
            if time.time_ns() - int(name[:20]) < _MAX_AGE_SECONDS * 10**9:
                return SpooledNotice(found["event"], name, found["sure"] is True)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            pass
        self._folder.remove_file(name)
        self.dropped += 1
        return None

    def _clear_owner(self, owner: str) -> None:
        """Remove the lock of an owner without notices, and files that a crash left half written."""
        if not any(_owner_of(name) == owner for name in self.names()):
            for name in self._folder.list_names():
                if owner in name:
                    self._folder.remove_file(name)

    def _make_room(self) -> None:
        names = self.names()
        for name in names[: max(0, len(names) - MOST_NOTICES + 1)]:
            self._folder.remove_file(name)
            self.dropped += 1


def count_spooled(path: str) -> int:
    """Return how many notices a folder contains; 0 if it does not exist. Raises C(OSError)."""
    try:
        return sum(bool(_FILE_NAME.fullmatch(name)) for name in os.listdir(path))
    except FileNotFoundError:
        return 0


def _owner_of(name: str) -> str:
    return name[21:53]


_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


class Sender:
    """:arg post: sends an event once.

    :arg drop: is called with each notice that needs no further try.
    :arg left: yields notices of ended processes; called in the thread when no own notices are waiting.
    """

    def __init__(
        self, post: Callable[[JsonObject], WebhookAnswer], retries: int, drop: Callable[[SpooledNotice], None], left: Callable[[], Iterator[SpooledNotice]]
    ) -> None:
        self.refused: list[str] = []
        self.failure = ""
        self._post = post
        self._retries = retries
        self._drop = drop
        self._left = left
        self._waiting: collections.deque[SpooledNotice] = collections.deque()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._unsent = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start with the notices that others left.

        If this machine has no process left for a thread, the next notice, or the end of the task, starts it. What was written to the ledger is not undone.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._send_all, name="kvmfleet notices", daemon=True)
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def add(self, kept: SpooledNotice) -> None:
        """Send this notice as soon as possible; returns at once."""
        with self._changed:
            self._waiting.append(kept)
            self._unsent += 1
            self._changed.notify_all()
        self.start()

    def finish(self, wait_seconds: float) -> int:
        """Wait for the notices that were added, but not longer than that, and stop; return how many were not sent."""
        if self._waiting:
            self.start()
        with self._changed:
            if self._thread and (self._waiting or self._unsent):
                self._changed.wait_for(lambda: not self._waiting and not self._busy, wait_seconds)
            self._stopped.set()
            self._changed.notify_all()
            return self._unsent

    _busy = False

    def _send_all(self) -> None:
        left: Iterator[SpooledNotice] | None = None
        while not self._stopped.is_set():
            own = self._next_own()
            if own is not None:
                self._send_own(own)
                continue
            left = self._left() if left is None else left
            kept = next(left, None)
            if kept is None:
                self._wait_for_own()
            else:
                self._send_notice(kept)

    def _next_own(self) -> SpooledNotice | None:
        with self._changed:
            self._busy = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None

    def _wait_for_own(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._stopped.is_set())

    def _send_own(self, kept: SpooledNotice) -> None:
        is_over = self._send_notice(kept)
        with self._changed:
            self._unsent -= is_over
            self._busy = False
            self._changed.notify_all()

    def _send_notice(self, kept: SpooledNotice) -> bool:
        """Send a notice, with retries if they may help; return whether it needs no further try."""
        for tried in itertools.count():
            answer = self._post(kept.event)
            if not answer.again:
                self._drop(kept)
                if not answer.sent:
                    self.refused.append(answer.said)
                return True
            self.failure = answer.said
            if tried >= self._retries or self._stopped.wait(max(_pause_seconds(tried), answer.pause_seconds)):
                return False
        raise AssertionError("unreachable")


def _pause_seconds(tried: int) -> float:
    """Return the seconds before the next try: twice as long each time, and different for each process that waits for one receiver."""
    longest = min(_FIRST_PAUSE_SECONDS * 2.0**tried, _LONGEST_PAUSE_SECONDS)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads those that wait
