# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One access to an etcd ledger: everything is read at one revision, and the unit is one transaction that compares all of it."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotSupported

from ..access import Access, Write
from ..encoding import encode
from ..identity import refuse_moved
from ..layout import CLOSED, DOMAINS, OPEN, SET_ASIDE, Place, key_of, place_of
from ..rules import holds_domain
from ..store import Body, Document, Stored
from . import chain
from .client import Client
from .identity import Identity
from .messages import Message, delete, put
from .reader import Reader, path_of
from .snapshot import Snapshot
from .writer import Fence, Writer

HOLDERS = "holders"
MONTHS = "months"
CLOSED_AT = "closed.at"
# Where the keys lie by which closed records are found.
CLOSED_KEYS = (MONTHS, CLOSED_AT)


class Session(Access):
    """:arg fences: the locks under which this is done."""

    def __init__(self, client: Client, writer: Writer, fences: Sequence[Fence], identity: Identity, report: Callable[[str], None]) -> None:
        self.snapshot = Snapshot(client)
        self.reader = Reader(client, self.snapshot, report)
        self._prefix = client.address.prefix
        self._writer = writer
        self._fences = fences
        self._identity = identity
        self._address = str(client.address)

    def expect(self, record_id: str, domain_uuid: str) -> None:
        places = (place_of(OPEN, record_id), place_of(DOMAINS, domain_uuid))
        self.snapshot.fetch(*map(path_of, places), month_key(record_id), holder_key(domain_uuid), chain.head_key(chain.name_of(domain_uuid)))

    def read(self, place: Place) -> t.Optional[Document]:
        return self.reader.read(place)

    def read_all(self, parts: Sequence[str]) -> Iterator[Document]:
        return self.reader.read_all(parts)

    def holder(self, domain_uuid: str) -> t.Optional[Stored]:
        record_id = self._text(holder_key(domain_uuid))
        try:
            document = self.read(place_of(OPEN, record_id)) if record_id else None
        except NotSupported as error:
            raise NotSupported(
                f"The record {record_id} of a later version may hold the domain {domain_uuid}; nothing was changed.",
                "Update the collection on this control node.",
            ) from error
        return Stored(document.body, document.version) if document and holds_domain(document.body) else None

    def find(self, record_id: str) -> t.Optional[Stored]:
        self.snapshot.fetch(path_of(place_of(OPEN, record_id)), month_key(record_id))
        document = self.read(place_of(OPEN, record_id))
        month = None if document else self._text(month_key(record_id))
        if month:
            document = self.read(place_of((*CLOSED, *month.split("/")), record_id))
        return Stored(document.body, document.version) if document else None

    def every_record(self) -> Iterator[Body]:
        for folder in (OPEN, CLOSED):
            yield from (document.body for document in self.reader.read_all(folder, counts=False))

    def set_aside(self) -> list[str]:
        return [key.rpartition("/")[2] for key, _found in self.snapshot.each(f"{SET_ASIDE[0]}/", keys_only=True)]

    def write(self, place: Place, version: int, body: Body) -> None:
        self.commit([(place, version, body)])

    def commit(
        self,
        writes: Sequence[Write],
        removes: Sequence[Place] = (),
        record: t.Optional[Body] = None,
        old_status: t.Optional[str] = None,
    ) -> None:
        refuse_moved(self._identity.known, self._address)
        acts = [self._put(path_of(place), encode(body, version)) for place, version, body in writes]
        acts += [self._delete(path_of(place)) for place in removes]
        for place, version, body in writes:
            if place[0] == OPEN[0]:
                acts += self._index(place, version, body)
        if record is not None:
            acts += [self._put(key, value) for key, value in chain.appended(self.snapshot, record, old_status, self._identity.genesis).items()]
        self._writer.write(self.snapshot.unchanged(), acts, self._fences)

    def _index(self, place: Place, version: int, record: Body) -> list[Message]:
        """Return what has to be written beside a record: who holds its domain, and by what it is found once it is closed."""
        acts = [self._put(*found_by) for found_by in closed_keys(place, record).items()] if place[:2] == CLOSED else []
        key = holder_key(record["domain"]["uuid"].lower())
        if holds_domain(record):
            return [*acts, self._put(key, key_of(place))] if version == 1 else acts
        return [*acts, self._delete(key)] if self._text(key) == key_of(place) else acts

    def _text(self, key: str) -> t.Optional[str]:
        found = self.snapshot.get(key)
        return found.value.decode("utf-8", "replace") if found else None

    def _put(self, key: str, value: t.Union[str, bytes]) -> Message:
        return put(self._prefix + key, value)

    def _delete(self, key: str) -> Message:
        return delete(self._prefix + key)


def holder_key(domain_uuid: str) -> str:
    """Return the key that says which record holds a domain."""
    return f"{HOLDERS}/{domain_uuid}"


def month_key(record_id: str) -> str:
    """Return the key that says where a closed record lies."""
    return f"{MONTHS}/{record_id}"


def closed_keys(place: Place, record: Body) -> dict[str, str]:
    """Return the keys by which a closed record that lies there is found, with their values."""
    return {month_key(key_of(place)): "/".join(place[2:4]), f"{CLOSED_AT}/{record['updated_at']}/{key_of(place)}": ""}
