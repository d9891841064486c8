# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A folder that a ledger is copied into: no ledger before the copy is whole, and never written by a run that another one has taken over from."""

from __future__ import annotations

import contextlib
import datetime
import os
import typing as t
from collections.abc import Iterable, Iterator

from ..archive import Chain
from ..contents import Contents, Entry
from ..identity import COPYING, NAME, Identity, identity_in
from ..layout import CLOSED, Place
from ..target import Seen, Target, batches, changed_meanwhile, taken_over
from . import creation
from .contents import ARCHIVE, ENDS, LINES, FileContents
from .disk_errors import reported
from .folder import Folder, write_all
from .locks import LOCK_NAME, LOCK_SECONDS, flocked

_MAY_PRECEDE = creation.MAY_PRECEDE | {f".{COPYING}.tmp"}


class FileTarget(Target):
    """:arg path: the folder; it need not be there yet."""

    def __init__(self, path: str) -> None:
        super().__init__(os.path.abspath(path))

    def look(self) -> Seen:
        with reported(self.name):
            try:
                root = Folder.at(self.name)
            except FileNotFoundError:
                return Seen()
            with root:
                creation.check_owner(root)
                return self._look(root)

    def mark(self, marker: bytes, seen: Seen) -> None:
        with reported(self.name):
            creation.make(self.name)
            with Folder.at(self.name) as root, flocked(root, LOCK_NAME, True, LOCK_SECONDS):
                if self._look(root) != seen:
                    raise changed_meanwhile(self.name)
                os.fchmod(root.fd, 0o700)
                root.write(COPYING, marker)
        self._marker = marker

    @contextlib.contextmanager
    def contents(self) -> Iterator[Contents]:
        with reported(self.name), Folder.at(self.name) as root:
            yield FileContents(root, None)

    def put(self, entries: Iterable[Entry]) -> None:
        for batch in batches(entries, lambda entry: len(entry.data)):
            with self._ours() as root:
                for entry in batch:
                    _write(root, entry.place, [entry.data], _closed_at(entry))

    def put_chain(self, chain: Chain, lines: Iterable[bytes]) -> None:
        with self._ours() as root:
            _write(root, (ARCHIVE, f"{chain.name}{LINES}"), (line + b"\n" for line in lines))
            _write(root, (ARCHIVE, f"{chain.name}{ENDS}"), [chain.encoded()])

    def remove(self, place: Place) -> None:
        with self._ours() as root:
            _remove(root, place)

    def remove_chain(self, name: str) -> None:
        with self._ours() as root:
            for end in (LINES, ENDS):
                _remove(root, (ARCHIVE, f"{name}{end}"))

    def finish(self, identity: Identity) -> None:
        with self._ours() as root:
            # What was written so far was not synced one by one.
            os.sync()
            root.write(NAME, identity.data)
            root.remove(COPYING)
            root.sync()

    @contextlib.contextmanager
    def _ours(self) -> Iterator[Folder]:
        """Hold the ledger's lock, as its writers do, while the copy is this run's."""
        with reported(self.name), Folder.at(self.name) as root, flocked(root, LOCK_NAME, True, LOCK_SECONDS):
            if creation.read(root, COPYING) != self._marker or creation.read(root) is not None:
                raise taken_over(self.name)
            yield root

    def _look(self, root: Folder) -> Seen:
        data, copying = creation.read(root), creation.read(root, COPYING)
        if data is not None:
            return Seen(identity=identity_in(data, creation.found_at(self.name)))
        foreign = sorted(set(root.names()) - _MAY_PRECEDE) if copying is None else []
        return Seen(copying=copying, foreign=foreign[0] if foreign else None)


def _closed_at(entry: Entry) -> t.Optional[float]:
    """Return when a closed record was written, as Unix time: queries that ask for later ones go by the times of files."""
    record = entry.document if entry.place[:2] == CLOSED else None
    try:
        return datetime.datetime.fromisoformat(record["updated_at"]).timestamp() if record else None
    except ValueError:
        return None


def _write(root: Folder, place: Place, parts: Iterable[bytes], written_at: t.Optional[float] = None) -> None:
    """Write a file that nobody reads before it was compared."""
    with root.sub(*place[:-1], create=True) as folder:
        folder.remove(place[-1])
        fd = folder.open(place[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for part in parts:
                write_all(fd, part)
            if written_at is not None:
                os.utime(fd, (written_at, written_at))
        finally:
            os.close(fd)


def _remove(root: Folder, place: Place) -> None:
    with contextlib.suppress(FileNotFoundError), root.sub(*place[:-1]) as folder:
        folder.remove(place[-1])
