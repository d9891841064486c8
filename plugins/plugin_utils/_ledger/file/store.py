# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The ledger as a folder of JSON files on the control node."""

from __future__ import annotations

import contextlib
import os
import typing as t
from collections.abc import Callable, Iterator

from ..access import Access
from ..contents import Contents
from ..document_ledger import DocumentLedger
from ..identity import NAME, Identity, refuse_moved
from ..keys import check_lock_key
from ..rules import refuse_unsettled
from ..selection import Selection, select
from ..store import Body
from . import creation
from .contents import FileContents
from .disk_errors import reported
from .locks import LOCK_NAME, LOCK_SECONDS, flocked
from .records import closed_records, closed_since, open_records
from .session import Session, Step, session

_LOCKS = "locks"
_T = t.TypeVar("_T")


def _no_step(_name: str) -> None:
    return None


class FileLedger(DocumentLedger):
    """:arg path: the folder; made, with mode 0700, where it is missing and C(create).

    :arg moved: whether to open also one that was moved elsewhere; it is read only.
    :arg step: called after each step of a unit with its name; for tests.
    """

    def __init__(self, path: str, create: bool = True, step: Step = _no_step, moved: bool = False) -> None:
        self.path = os.path.abspath(path)
        super().__init__(self.path)
        self._step = step
        with reported(self.path):
            self._identity = creation.ensure(self.path, create)
        if not moved:
            refuse_moved(self._identity, self.path)

    @property
    def identity(self) -> Identity:
        return self._identity

    def _session(self, exclusive: bool) -> contextlib.AbstractContextManager[Session]:
        return session(self.path, self._identity, exclusive, self.report, self._step)

    def _read(self, act: Callable[[Access], _T]) -> _T:
        with self._session(exclusive=False) as current:
            return act(current)

    def _change(self, act: Callable[[Access], _T]) -> _T:
        with self._session(exclusive=True) as current:
            return act(current)

    def _open_records(self) -> list[Body]:
        with self._session(exclusive=False) as current:
            return open_records(current.shelf)

    def _records(self, selection: Selection) -> Iterator[Body]:
        found = self._open_records()
        yield from (record for record in found if selection.wants(record))
        if selection.reads_closed:
            # Closed ones never change, so they need no lock; one that was closed meanwhile was seen as an open one.
            seen = {record["id"] for record in found}
            with reported(self.path):
                yield from (record for record in closed_records(self.path, selection, self.report) if record["id"] not in seen)

    def closed_ids(self) -> set[str]:
        with reported(self.path):
            return closed_since(self.path, select())

    def closed_since(self, since: str) -> set[str]:
        with reported(self.path):
            return closed_since(self.path, select(since=since))

    @contextlib.contextmanager
    def locked(self, key: str, timeout_seconds: float = 30) -> Iterator[None]:
        name = f"{check_lock_key(key)}.lock"
        with contextlib.ExitStack() as stack:
            with reported(self.path):
                root = stack.enter_context(creation.Folder.at(self.path))
                folder = stack.enter_context(root.sub(_LOCKS, create=True))
                stack.enter_context(flocked(folder, name, True, timeout_seconds))
            yield

    @contextlib.contextmanager
    def contents(self) -> Iterator[Contents]:
        with reported(self.path), creation.Folder.at(self.path) as root:
            yield FileContents(root, self._identity)

    def examine(self, act: Callable[[Contents], _T]) -> _T:
        with self._session(exclusive=False) as current:
            return act(FileContents(current.root, self._identity))

    def leave(self, to: str, by: str) -> None:
        with self._session(exclusive=True) as current:
            refuse_unsettled(self.name, open_records(current.shelf))
            self._write_identity(current.root, self._identity.leaving(to, by))

    def _become(self, after: Identity) -> None:
        with reported(self.path), creation.Folder.at(self.path) as root, flocked(root, LOCK_NAME, True, LOCK_SECONDS):
            creation.check_unchanged(root, self._identity)
            self._write_identity(root, after)

    def _write_identity(self, root: creation.Folder, after: Identity) -> None:
        root.write(NAME, after.data)
        self._identity = after
