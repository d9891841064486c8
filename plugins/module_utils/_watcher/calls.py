# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The libvirt calls of a move apart from its decisions.

The migrate call, which blocks until the move has ended, runs in a thread and on a connection of its own. The targets of copied disks are prepared here.
"""

from __future__ import annotations

import os
import re
import threading
import typing as t

from .._libvirt.interface import Folder, Host, OpenHost
from .._logins import DROPPED_LOGIN
from .._migration.flags import check_call
from .._migration.shared_storage import compare_folders
from .._model.clock import utc_now
from .._model.definition_files import SEPARATE
from .._model.errors import Conflict, Internal, KvmfleetError, NotFound, Unreachable, Unsafe
from .._model.record_parts import FILL, REPLACE, DiskCopy
from .._model.records import MoveRecord
from .._model.watched_moves import StartOrder


def open_again(open_host: OpenHost) -> OpenHost:
    """Return what opens hosts for a watcher. If this host has no process or memory left for a connection, it raises L(Unreachable), and is called again.

    Only a process that watches a guest has to go on then. Elsewhere, this error must not pass for the silence of the other host, which is evidence.
    """

    def open_one(uri: str, timeout_seconds: t.Optional[float] = None) -> Host:
        try:
            return open_host(uri, timeout_seconds)
        except RuntimeError as error:
            raise Unreachable(f"libvirt at {uri} cannot be asked: {error}.", "Check the number of processes and the free memory of the source host.") from error

    return open_one


class MigrateCall(threading.Thread):
    """Runs L(Host.migrate_domain); C(error) is what it raised, once it has ended.

    :arg definitions: parameters with the definitions for the destination, which no record keeps.
    """

    def __init__(self, host: Host, order: StartOrder, flags: t.Optional[t.Sequence[str]] = None, definitions: t.Optional[t.Mapping[str, str]] = None) -> None:
        super().__init__(name=f"migrate-{order.uuid}", daemon=True)
        self.error: t.Optional[KvmfleetError] = None
        self._host = host
        self._order = order
        self._flags = order.flags if flags is None else flags
        self._definitions = definitions or {}

    def start(self) -> None:
        """Begin the call. Raises L(Internal) if this host has no process or memory left for it."""
        try:
            super().start()
        except RuntimeError as error:
            self._host.close()
            raise Internal(f"The migrate call cannot begin: {error}.", "Check the number of processes and the free memory of the source host.") from error

    def run(self) -> None:
        order = self._order
        try:
            check_call(order.flags, order.parameters)
            self._host.migrate_domain(order.uuid, order.destination_uri, self._flags, {**order.parameters, **self._definitions})
        except KvmfleetError as error:
            self.error = error
        finally:
            self._host.close()


_DROPPED_LOGIN = re.compile(DROPPED_LOGIN)

MAX_TRIES = 5
_FIRST_PAUSE_SECONDS = 2.0


def is_worth_another_try(message: str, tries: int, record: MoveRecord) -> bool:
    """Whether a migrate call that failed is repeated: libvirt's own login to the destination was dropped, and nothing of the guest has moved.

    :arg message: the error message of the call.
    :arg tries: the number of calls so far.
    """
    has_moved = record.progress.memory_processed_bytes or record.progress.disk_processed_bytes
    was_ended = any(one.act.startswith("abort") for one in record.acts)
    return tries < MAX_TRIES and not has_moved and not was_ended and bool(_DROPPED_LOGIN.search(message))


def retry_pause_seconds(tries: int, share: float) -> float:
    """Return how long to wait before the next try: twice as long each time, and with a random share, so that simultaneously dropped logins are not repeated
    simultaneously.

    :arg share: a random number from 0 to 1.
    """
    return t.cast(float, _FIRST_PAUSE_SECONDS * 2 ** (tries - 1) * (0.5 + share))


class ArrivalEvents:
    """Listens at the destinations, on one connection to each for all moves of a watcher.

    The events only free a slot earlier: if a destination sends none, or is cut off, a move has arrived when it has ended.
    """

    def __init__(self, open_host: t.Callable[[str], Host]) -> None:
        self._open_host = open_host
        self._listening: t.Dict[str, Host] = {}
        self._at: t.Dict[str, str] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()

    def expect_at(self, uri: str) -> None:
        """Listen at that destination from now on. Does nothing if it is listened to already, or cannot be reached."""
        with self._lock:
            host = self._listening.get(uri)
            if host is not None and host.is_connected():
                return
            try:
                self._listening[uri] = self._open_host(uri)
                self._listening[uri].listen_for_arrivals(self._note_arrival)
            except KvmfleetError:
                self._listening.pop(uri, None)
            finally:
                if host is not None:
                    host.close()

    def arrival_of(self, uuid: str) -> t.Optional[str]:
        """Return when that guest began to run at its destination with all of its memory (RFC 3339, UTC); null if no event said so."""
        return self._at.get(uuid)

    def wake_up(self) -> None:
        """End L(wait_for_news): something else has changed."""
        self._news.set()

    def wait_for_news(self, seconds: float) -> None:
        """Sleep for that time, or until a guest arrives or L(wake_up) is called."""
        self._news.wait(seconds)
        self._news.clear()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for host in self._listening.values():
                host.close()
            self._listening.clear()

    def _note_arrival(self, uuid: str) -> None:
        self._at[uuid] = utc_now()
        self._news.set()


TARGET_ACT = "make_target"
_NOTHING = "Nothing was started."


class TargetJournal(t.Protocol):
    """Keeps the record of the move."""

    record: MoveRecord

    def intend_act(self, act: str, detail: str) -> None:
        """Write the next act to the record, and the record to disk."""


def make_targets(journal: TargetJournal, destination: Host) -> None:
    """Make the images that are to be copied into, and mark in the record each one that this move has made.

    The conditions of the plan are checked again, because the move may have waited in a queue. Raises L(Unsafe) or L(Conflict) if it no longer holds.
    """
    for copy in journal.record.disk_copies:
        with destination.open_folder(os.path.dirname(copy.path)) as folder:
            _check_target(copy, folder, destination)
            if copy.action != FILL:
                _make_target(copy, folder, journal)


def remove_targets(journal: TargetJournal, destination: Host) -> t.List[str]:
    """Remove the images that this move has created; return their paths. A file that a domain uses now is not removed."""
    removed = []
    for copy in journal.record.disk_copies:
        if copy.made and not destination.users_of(copy.path):
            with destination.open_folder(os.path.dirname(copy.path)) as folder:
                folder.remove_file(os.path.basename(copy.path))
            journal.record = journal.record.mark_target(copy.target, is_made=False)
            removed.append(copy.path)
    return removed


def has_made(record: MoveRecord) -> bool:
    """Whether images that this move has made are at the destination."""
    return any(copy.made for copy in record.disk_copies)


def _check_target(copy: DiskCopy, folder: Folder, destination: Host) -> None:
    path = copy.path
    finding = compare_folders(path, folder)
    if finding.verdict != SEPARATE:
        raise Unsafe(f"The folder of {path} is no longer proved separate on the two hosts ({finding.why or finding.verdict}).", _NOTHING)
    users = [*destination.users_of(path), *folder.find_users(path)]
    if users:
        raise Conflict(f"{', '.join(users)} uses {path} at the destination now.", _NOTHING)
    existing = folder.find_volume(os.path.basename(path))
    if copy.action == FILL and existing is None:
        raise NotFound(f"The target {path} no longer exists on the destination.", _NOTHING)
    if copy.bytes > folder.available_bytes() + (existing.allocation_bytes if existing else 0):
        raise Conflict(f"There is no longer enough space for {path} at the destination: {copy.bytes} bytes are needed.", _NOTHING)


def _make_target(copy: DiskCopy, folder: Folder, journal: TargetJournal) -> None:
    name = os.path.basename(copy.path)
    journal.intend_act(TARGET_ACT, f"{copy.path} ({copy.action})")
    if copy.action == REPLACE:
        # Removed, not overwritten: if the file is a link, only the link is removed.
        folder.remove_file(name)
    try:
        folder.create_image(name, copy.format, copy.capacity_bytes)
    except KvmfleetError as error:
        raise type(error)(f"The target of disk {copy.target} could not be created on the destination: {error.message}", _NOTHING) from error
    journal.record = journal.record.mark_target(copy.target, is_made=True)
    journal.intend_act(f"{TARGET_ACT}_done", copy.target)
