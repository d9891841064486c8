# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a ledger keeps, byte by byte, under the names that are the same in a folder and in etcd."""

from __future__ import annotations

import abc
import hashlib
import typing as t
from collections.abc import Iterator

from .archive import Chain
from .encoding import Unreadable, decode
from .layout import CLOSED, DOMAINS, HOSTS, OPEN, SET_ASIDE, Place, check_document, is_place
from .store import Body

DOCUMENTS = (OPEN, CLOSED, DOMAINS, HOSTS)


class Entry(t.NamedTuple):
    """A document as it is kept."""

    place: Place
    data: bytes

    @property
    def digest(self) -> str:
        """What tells its bytes from others."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def document(self) -> t.Optional[Body]:
        """The document, where it can be read and lies where such a one does."""
        try:
            body = decode(self.data).body
            check_document(self.place, body)
        except Unreadable:
            return None
        return body if is_place(self.place) else None


class Contents(abc.ABC):
    """Reads and changes nothing; what is damaged is handed out as it is."""

    @abc.abstractmethod
    def places(self, folder: Place) -> Iterator[Place]:
        """Yield where the documents of a folder lie, those of the folders below it included."""

    @abc.abstractmethod
    def entries(self, folder: Place) -> Iterator[Entry]:
        """Yield the documents of a folder; one that is no regular file has no bytes."""

    @abc.abstractmethod
    def chains(self) -> Iterator[tuple[Chain, Iterator[bytes]]]:
        """Yield all audit chains that are not empty, as they are kept once the ledger has left this place, each with its lines, without their ends."""

    @abc.abstractmethod
    def audit_problems(self) -> list[str]:
        """Return what is wrong with the audit chains."""

    @abc.abstractmethod
    def where(self, place: Place) -> str:
        """Return what a person calls the document."""

    def index_problems(self) -> Iterator[str]:
        """Yield what is wrong with what is kept beside documents so that they are found."""
        yield from ()

    def all_entries(self) -> Iterator[Entry]:
        """Yield all documents, those that were set aside included."""
        for folder in (*DOCUMENTS, SET_ASIDE):
            yield from self.entries(folder)


def fingerprint(contents: Contents) -> dict[t.Union[Place, str], str]:
    """Return a digest of each document, by place, and of each audit chain, by name."""
    found: dict[t.Union[Place, str], str] = {entry.place: entry.digest for entry in contents.all_entries()}
    return found | {chain.name: _chain_digest(chain, lines) for chain, lines in contents.chains()}


def _chain_digest(chain: Chain, lines: Iterator[bytes]) -> str:
    found = hashlib.sha256(chain.encoded())
    for line in lines:
        found.update(line + b"\n")
    return found.hexdigest()
