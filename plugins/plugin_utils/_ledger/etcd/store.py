# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The ledger under a prefix of an etcd cluster, shared by any number of control nodes."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import TimedOut

from ..contents import Contents
from ..document_ledger import DocumentLedger
from ..identity import Identity, refuse_moved
from ..keys import check_lock_key
from ..layout import CLOSED, OPEN
from ..rules import refuse_unsettled
from ..selection import Selection, select
from ..store import Body
from . import identity, locks
from .address import Address
from .client import Client
from .contents import EtcdContents
from .failures import Overtaken
from .messages import end_of, put
from .options import Options
from .reader import Reader, path_of
from .session import CLOSED_AT, MONTHS, Session
from .snapshot import Snapshot
from .writer import Fence, Writer

_T = t.TypeVar("_T")
# So long others may come first, again and again.
CHANGE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.1


class EtcdLedger(DocumentLedger):
    """:arg create: whether to make a ledger where there is none; else that is L(NotFound).

    :arg moved: whether to open also one that was moved elsewhere; it is read only.
    """

    def __init__(self, address: Address, options: Options, create: bool = True, moved: bool = False) -> None:
        super().__init__(str(address))
        self._client = Client(address, options)
        self._identity = identity.ensure(self._client, create)
        if not moved:
            refuse_moved(self._identity.known, self.name)
        self._writer = Writer(self._client, self._identity)
        self._own = threading.local()

    @property
    def identity(self) -> Identity:
        return self._identity.known

    @property
    def _fences(self) -> tuple[Fence, ...]:
        """The locks that this thread holds."""
        return getattr(self._own, "fences", ())

    def _session(self) -> Session:
        return Session(self._client, self._writer, self._fences, self._identity, self.report)

    def _read(self, act: Callable[[Session], _T]) -> _T:
        return self._change(act)

    def _change(self, act: Callable[[Session], _T]) -> _T:
        deadline, pause = time.monotonic() + CHANGE_SECONDS, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return act(self._session())
            except Overtaken as error:
                if time.monotonic() >= deadline:
                    raise TimedOut(f"The ledger {self.name} was written by others for {CHANGE_SECONDS:g} s: {error}.", "Run the task again.") from error
            time.sleep(pause * random.random())  # noqa: S311  spreads those that write
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _records(self, selection: Selection) -> Iterator[Body]:
        found = self._read(lambda current: [document.body for document in current.read_all(OPEN)])
        yield from (record for record in found if selection.wants(record))
        if selection.reads_closed:
            seen = {record["id"] for record in found}
            yield from (record for record in self._closed(selection) if record["id"] not in seen and selection.wants(record))

    def _closed(self, selection: Selection) -> Iterator[Body]:
        """Yield the closed records of the months that the selection wants. They never change, so that they need not be read at one revision."""
        folder = path_of((*CLOSED, ""))
        start, end = (f"{folder}{at[:7].replace('-', '/')}/" if at else folder for at in (selection.since, selection.until))
        reader = Reader(self._client, Snapshot(self._client, at_one_revision=False), self.report)
        for document in reader.read_between(start, end_of(end), selection.screen):
            yield document.body

    def closed_ids(self) -> set[str]:
        snapshot = Snapshot(self._client, at_one_revision=False)
        return {key.rpartition("/")[2] for key, _found in snapshot.each(f"{MONTHS}/", keys_only=True, counts=False)}

    def closed_since(self, since: str) -> set[str]:
        start = f"{CLOSED_AT}/{select(since=since).since}"
        snapshot = Snapshot(self._client, at_one_revision=False)
        return {key.rpartition("/")[2] for key, _found in snapshot.each(start, end_of(f"{CLOSED_AT}/"), keys_only=True, counts=False)}

    @contextlib.contextmanager
    def locked(self, key: str, timeout_seconds: float = 30) -> Iterator[None]:
        with locks.held(self._client, check_lock_key(key), timeout_seconds) as fence:
            before = self._fences
            self._own.fences = (*before, fence)
            try:
                yield
            finally:
                self._own.fences = before

    @contextlib.contextmanager
    def contents(self) -> Iterator[Contents]:
        yield EtcdContents(self._client, Snapshot(self._client, at_one_revision=False), self._identity)

    def examine(self, act: Callable[[Contents], _T]) -> _T:
        return self._read(lambda _current: act(EtcdContents(self._client, Snapshot(self._client), self._identity)))

    def leave(self, to: str, by: str) -> None:
        self._change(lambda current: self._leave(current, self.identity.leaving(to, by)))

    def _leave(self, current: Session, after: Identity) -> None:
        refuse_moved(self.identity, self.name)
        refuse_unsettled(self.name, (document.body for document in current.read_all(OPEN)))
        self._write_identity(current, after)

    def _become(self, after: Identity) -> None:
        self._change(lambda current: self._write_identity(current, after))

    def _write_identity(self, current: Session, after: Identity) -> None:
        self._writer.write(current.snapshot.unchanged(), [put(self._identity.key, after.data)], self._fences)
        self._identity = self._identity._replace(known=after)
        self._writer = Writer(self._client, self._identity)
