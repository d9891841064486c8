# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reading an etcd ledger's documents: what is damaged is named and moved aside, what is newer is named and left, neither stops another."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, NotSupported

from ..encoding import Damaged, Newer, decode, decode_opened, opened
from ..layout import SET_ASIDE, Place, check_document, may_pass, name_aside
from ..screen import Screen
from ..store import Document
from .client import Client
from .messages import KeyValue, delete, is_at, put
from .snapshot import Snapshot

_EVERYTHING: t.Final = Screen()


def path_of(parts: Sequence[str]) -> str:
    """Return the key, without the ledger's prefix, of a place or a folder."""
    return "/".join(parts)


def key_name(client: Client, place: Sequence[str]) -> str:
    """Return what a person calls the key of that place."""
    return f"The key {client.address.prefix}{path_of(place)} of {client.address}"


class Reader:
    """:arg report: takes a sentence on what could not be read."""

    def __init__(self, client: Client, snapshot: Snapshot, report: Callable[[str], None]) -> None:
        self._client = client
        self._snapshot = snapshot
        self._report = report

    def read(self, place: Place) -> t.Optional[Document]:
        """Return the document, or None where there is none or it was damaged. Raises L(NotSupported) for a newer schema."""
        found = self._snapshot.get(path_of(place))
        try:
            return self._document(place, found) if found else None
        except Newer as error:
            raise NotSupported(self._newer(place, error), "Update the collection on this control node.", document=error.body) from error

    def read_all(self, parts: Sequence[str], counts: bool = True) -> Iterator[Document]:
        """Yield all documents of a folder that can be read.

        :arg counts: whether the folder counts as read from here on.
        """
        return self._readable(self._snapshot.each(f"{path_of(parts)}/", counts=counts), _EVERYTHING)

    def read_between(self, start: str, end: str, screen: Screen) -> Iterator[Document]:
        """Yield the documents from a key to before another that can be read.

        :arg screen: holds back what need not be parsed.
        """
        return self._readable(self._snapshot.each(start, end, counts=False), screen)

    def _readable(self, keys: Iterable[tuple[str, KeyValue]], screen: Screen) -> Iterator[Document]:
        for key, found in keys:
            place = tuple(key.split("/"))
            try:
                document = self._document(place, found, screen)
            except Newer as error:
                self._newer(place, error)
                continue
            if document:
                yield document

    def _document(self, place: Place, found: KeyValue, screen: Screen = _EVERYTHING) -> t.Optional[Document]:
        try:
            envelope = opened(found.value)
            if envelope and not may_pass(place, envelope.text, screen):
                return None
            document = decode_opened(envelope) if envelope else decode(found.value)
            check_document(place, document.body)
            return document
        except Damaged as error:
            self._set_aside(place, found, str(error))
        return None

    def _newer(self, place: Place, error: Newer) -> str:
        sentence = f"{key_name(self._client, place)} was left as it is: {error}."
        self._report(sentence)
        return sentence

    def _set_aside(self, place: Place, found: KeyValue, why: str) -> None:
        aside = path_of((*SET_ASIDE, name_aside(place, time.time_ns())))
        acts = [put(f"{self._client.address.prefix}{aside}", found.value), delete(found.key)]
        try:
            self._client.transaction([is_at(found.key, found.mod_revision)], acts, [])
        except Forbidden:
            self._report(f"{key_name(self._client, place)} could not be read: {why}. It was left where it is.")
        else:
            self._report(f"{key_name(self._client, place)} could not be read: {why}. It was moved to {aside}.")
        self._snapshot.forget(path_of(place))
