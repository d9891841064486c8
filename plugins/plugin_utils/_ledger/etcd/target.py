# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A prefix that a ledger is copied under: every transaction compares the marker of this run, so that none comes after another run took over."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

from ..archive import Chain
from ..contents import Contents, Entry
from ..identity import COPYING, NAME, Identity
from ..layout import CLOSED, Place
from ..target import Seen, Target, batches, changed_meanwhile, taken_over
from .address import Address
from .chain import LINES, head_key
from .client import Client
from .contents import EtcdContents
from .identity import checked, first_values, read
from .messages import Message, delete, delete_all, end_of, has_value, is_empty, one, put
from .options import Options
from .reader import path_of
from .session import closed_keys
from .snapshot import Snapshot


class EtcdTarget(Target):
    """:arg options: how to speak to the cluster."""

    def __init__(self, address: Address, options: Options) -> None:
        super().__init__(str(address))
        self._client = Client(address, options)
        self._prefix = address.prefix

    def look(self) -> Seen:
        there = read(self._client)
        if there.known is not None:
            return Seen(identity=checked(self._client, there).known)
        copying = there.copying.value if there.copying else None
        return Seen(copying=copying, foreign=there.first.key if there.first and copying is None else None)

    def mark(self, marker: bytes, seen: Seen) -> None:
        key = f"{self._prefix}{COPYING}"
        before = is_empty(self._prefix, end_of(self._prefix)) if seen.copying is None else has_value(key, seen.copying)
        if not self._client.transaction([before], [put(key, marker)], []).succeeded and not self._is_at(COPYING, marker):
            raise changed_meanwhile(self.name)
        self._marker = marker

    @contextlib.contextmanager
    def contents(self) -> Iterator[Contents]:
        yield EtcdContents(self._client, Snapshot(self._client, at_one_revision=False), None)

    def put(self, entries: Iterable[Entry]) -> None:
        for batch in batches(entries, lambda entry: len(entry.data)):
            self._write([act for entry in batch for act in self._acts(entry)])

    def put_chain(self, chain: Chain, lines: Iterable[bytes]) -> None:
        self.remove_chain(chain.name)
        numbered = ((f"{LINES}/{chain.name}/{number:012d}", line) for number, line in zip(itertools.count(1), lines))
        for batch in batches(numbered, lambda line: len(line[1])):
            self._write([self._put(*line) for line in batch])
        self._write([self._put(head_key(chain.name), chain.encoded())])

    def remove(self, place: Place) -> None:
        found = self._client.range(one(f"{self._prefix}{path_of(place)}")).found
        keys = [key for each in found for key in _found_by(Entry(place, each.value))]
        self._write([delete(f"{self._prefix}{key}") for key in (path_of(place), *keys)])

    def remove_chain(self, name: str) -> None:
        self._write([delete_all(f"{self._prefix}{LINES}/{name}/"), delete(f"{self._prefix}{head_key(name)}")])

    def finish(self, identity: Identity) -> None:
        values = first_values(self._client, identity)
        acts = [*(self._put(key, value) for key, value in values.items()), delete(f"{self._prefix}{COPYING}")]
        if not self._sent(acts) and not self._is_at(NAME, identity.data):
            raise taken_over(self.name)

    def _acts(self, entry: Entry) -> Iterator[Message]:
        yield self._put(path_of(entry.place), entry.data)
        yield from (self._put(key, value.encode("ascii")) for key, value in _found_by(entry).items())

    def _put(self, key: str, value: bytes) -> Message:
        return put(f"{self._prefix}{key}", value)

    def _write(self, acts: Sequence[Message]) -> None:
        if not self._sent(acts):
            raise taken_over(self.name)

    def _sent(self, acts: Sequence[Message]) -> bool:
        return self._client.transaction([has_value(f"{self._prefix}{COPYING}", self._marker)], list(acts), []).succeeded

    def _is_at(self, key: str, value: bytes) -> bool:
        found = self._client.range(one(f"{self._prefix}{key}")).found
        return bool(found) and found[0].value == value


def _found_by(entry: Entry) -> dict[str, str]:
    """Return the keys by which the document is found, with their values."""
    record = entry.document if entry.place[:2] == CLOSED else None
    return closed_keys(entry.place, record) if record else {}
