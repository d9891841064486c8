# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a ledger in etcd keeps, byte by byte."""

from __future__ import annotations

import shlex
import typing as t
from collections.abc import Iterator

from .. import archive
from ..archive import Chain
from ..contents import Contents, Entry
from ..layout import CLOSED, OPEN, Place, key_of
from ..rules import holds_domain
from . import chain
from .client import Client
from .identity import Identity
from .messages import KeyValue
from .reader import key_name, path_of
from .session import CLOSED_KEYS, HOLDERS, closed_keys, holder_key
from .snapshot import Snapshot


class EtcdContents(Contents):
    """:arg identity: None for a copy that is unfinished, which has no chains of its own yet."""

    def __init__(self, client: Client, snapshot: Snapshot, identity: t.Optional[Identity]) -> None:
        self._client = client
        self._snapshot = snapshot
        self._identity = identity

    def places(self, folder: Place) -> Iterator[Place]:
        return (tuple(key.split("/")) for key, _found in self._snapshot.each(f"{path_of(folder)}/", keys_only=True, counts=False))

    def entries(self, folder: Place) -> Iterator[Entry]:
        return (Entry(tuple(key.split("/")), found.value) for key, found in self._all(path_of(folder)))

    def chains(self) -> Iterator[tuple[Chain, Iterator[bytes]]]:
        for ended in archive.readable(self._archived()):
            yield ended, self._lines(ended.name)
        for name, own in self._own_chains():
            if not own.is_empty:
                yield own, self._lines(name)

    def audit_problems(self) -> list[str]:
        if self._identity is None:
            return []
        return [*chain.verified(self._snapshot, self._identity.genesis), *archive.verified(self._archived(), self._lines, self._identity.known.seal)]

    def where(self, place: Place) -> str:
        return key_name(self._client, place)

    def index_problems(self) -> Iterator[str]:
        found = {key: value.value.decode("utf-8", "replace") for folder in (*CLOSED_KEYS, HOLDERS) for key, value in self._all(folder)}
        for key, value, consequence in self._wanted():
            if found.get(key) != value:
                restore = f"Restore it: 'etcdctl put {self._client.address.prefix}{key} {shlex.quote(value)}'."
                yield f"{key_name(self._client, (key,))} is missing or wrong: {consequence}. {restore}"

    def _wanted(self) -> Iterator[tuple[str, str, str]]:
        """Yield the keys that have to be there beside documents, with their values, and what comes of it where one is not."""
        for entry in self.entries(CLOSED):
            if record := entry.document:
                yield from ((key, value, "the closed record is not found by it") for key, value in closed_keys(entry.place, record).items())
        for entry in self.entries(OPEN):
            if (record := entry.document) and holds_domain(record):
                yield holder_key(record["domain"]["uuid"].lower()), key_of(entry.place), "a second record of its domain could be opened"

    def _all(self, folder: str) -> Iterator[tuple[str, KeyValue]]:
        return self._snapshot.each(f"{folder}/", counts=False)

    def _own_chains(self) -> Iterator[tuple[str, Chain]]:
        return chain.ended(self._snapshot, self._identity.known.home, self._identity.genesis) if self._identity else iter(())

    def _archived(self) -> dict[str, t.Optional[Chain]]:
        names = {key.rpartition("/")[2]: found.value for key, found in self._all(chain.HEADS)}
        return {name: archive.chain_in(name, data) for name, data in names.items() if archive.is_archived(name)}

    def _lines(self, name: str) -> Iterator[bytes]:
        return (found.value for _key, found in self._all(f"{chain.LINES}/{name}"))
