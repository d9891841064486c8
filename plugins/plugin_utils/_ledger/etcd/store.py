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

from ..access import Access
from ..audit import genesis
from ..document_ledger import DocumentLedger
from ..keys import check_lock_key
from ..layout import CLOSED, OPEN
from ..selection import Selection, select
from ..store import Body
from . import chain, identity, locks
from .address import Address
from .client import Client
from .failures import Overtaken
from .messages import end_of
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
    """:arg create: whether to make a ledger where there is none; else that is L(NotFound)."""

    def __init__(self, address: Address, options: Options, create: bool = True) -> None:
        super().__init__(str(address))
        self._client = Client(address, options)
        self._identity = identity.ensure(self._client, create)
        self._genesis = genesis(self._identity.ledger_id)
        self._writer = Writer(self._client, self._identity)
        self._own = threading.local()

    @property
    def ledger_id(self) -> str:
        return self._identity.ledger_id

    @property
    def _fences(self) -> tuple[Fence, ...]:
        """The locks that this thread holds."""
        return getattr(self._own, "fences", ())

    def _session(self) -> Session:
        return Session(self._client, self._writer, self._fences, self._genesis, self.report)

    def _read(self, act: Callable[[Access], _T]) -> _T:
        return self._change(act)

    def _change(self, act: Callable[[Access], _T]) -> _T:
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

    def verify_audit(self) -> list[str]:
        return self._read(lambda _current: chain.verified(Snapshot(self._client), self._genesis))
