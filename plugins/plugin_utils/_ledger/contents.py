# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The contents of a ledger, byte by byte, under the names that both stores use; whether all of it is readable; and its size. Nothing is changed."""

from __future__ import annotations

import abc
import collections
import contextlib
import hashlib
import typing as t
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, ShapeError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .audit import ArchivedChain
from .document_bytes import Damaged, Newer, Unreadable, decode_document
from .identity import LedgerIdentity
from .rules import (
    BALANCES,
    BRAKE,
    CLOSED,
    DOMAINS,
    HOSTS,
    MAINTENANCE,
    OPEN,
    PROTECTED,
    SET_ASIDE,
    SETTINGS,
    SIGHT_FOLDERS,
    DocumentPath,
    check_document,
    is_document_path,
)

DOCUMENT_FOLDERS = (OPEN, CLOSED, DOMAINS, HOSTS, *SIGHT_FOLDERS, PROTECTED, SETTINGS, BRAKE, MAINTENANCE, BALANCES)


class RawDocument(t.NamedTuple):
    """A document as it is kept."""

    path: DocumentPath
    data: bytes

    @property
    def digest(self) -> str:
        """The digest of its bytes."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def record(self) -> t.Optional[MoveRecord]:
        """The record, if the document is a readable record at its path."""
        try:
            document = decode_document(self.data)
            check_document(self.path, document)
        except Unreadable:
            return None
        return document.record if is_document_path(self.path) else None


class LedgerContents(abc.ABC):
    """Reads and changes nothing; damaged documents are returned unchanged."""

    @abc.abstractmethod
    def list_paths(self, folder: DocumentPath) -> Iterator[DocumentPath]:
        """Yield the locations of the documents of a folder, including those of the folders below it."""

    @abc.abstractmethod
    def read_documents(self, folder: DocumentPath) -> Iterator[RawDocument]:
        """Yield the documents of a folder; one that is not a regular file has no bytes."""

    @abc.abstractmethod
    def read_chains(self) -> Iterator[tuple[ArchivedChain, Iterator[bytes]]]:
        """Yield all audit chains that are not empty, as they are kept once the ledger was moved from this location, each with its lines, without line ends."""

    @abc.abstractmethod
    def audit_problems(self) -> list[str]:
        """Return the problems of the audit chains."""

    @abc.abstractmethod
    def describe_location(self, path: DocumentPath) -> str:
        """Return the name of the document for a person."""

    def index_problems(self) -> Iterator[str]:
        """Yield the problems of the index by which documents are found."""
        yield from ()

    def read_all_documents(self) -> Iterator[RawDocument]:
        """Yield all documents, those that were set aside included."""
        for folder in (*DOCUMENT_FOLDERS, SET_ASIDE):
            yield from self.read_documents(folder)


Fingerprint = dict[t.Union[DocumentPath, str], str]


def compute_fingerprint(contents: LedgerContents) -> Fingerprint:
    """Return a digest of each document, by path, and of each audit chain, by name."""
    found: Fingerprint = {entry.path: entry.digest for entry in contents.read_all_documents()}
    return found | {chain.name: _digest_chain(chain, lines) for chain, lines in contents.read_chains()}


def _digest_chain(chain: ArchivedChain, lines: Iterator[bytes]) -> str:
    found = hashlib.sha256(chain.encode_ends())
    for line in lines:
        found.update(line + b"\n")
    return found.hexdigest()


# The maximum number of problems in a sentence.
_MAX_SHOWN = 5


class LedgerProblems(t.NamedTuple):
    """Sentences about the problems, each with the file or the key, and the next step.

    :arg documents: those that cannot be read or found.
    :arg audit: lines that are changed or missing.
    """

    documents: tuple[str, ...]
    audit: tuple[str, ...]

    @property
    def all_problems(self) -> list[str]:
        """All problems, in order."""
        return [*self.documents, *self.audit]


def find_problems(contents: LedgerContents) -> LedgerProblems:
    """Return all problems of a ledger."""
    found = (_document_problem(contents, entry) for folder in DOCUMENT_FOLDERS for entry in contents.read_documents(folder))
    return LedgerProblems((*(problem for problem in found if problem), *contents.index_problems()), tuple(contents.audit_problems()))


def _document_problem(contents: LedgerContents, entry: RawDocument) -> t.Optional[str]:
    location = contents.describe_location(entry.path)
    if not is_document_path(entry.path):
        return f"{location} is not a document of a ledger: its name is not a UUID. Remove it."
    try:
        check_document(entry.path, decode_document(entry.data))
    except Newer as error:
        return f"{location} cannot be read: {error}. Update the collection on this control node."
    except Damaged as error:
        then = "gives that host no guests" if entry.path[:-1] == HOSTS else "continues without it"
        return f"{location} cannot be read: {error}. Restore it from a backup; otherwise the next task that needs it sets it aside and {then}."
    return None


def join_problems(problems: t.Sequence[str]) -> str:
    """Return the first problems as one text, with the number of the others."""
    more = f" And {len(problems) - _MAX_SHOWN} more." if len(problems) > _MAX_SHOWN else ""
    return f"{' '.join(problems[:_MAX_SHOWN])}{more}"


_UNREADABLE = "unreadable"


@dataclass(frozen=True)
class DocumentCounts:
    """The number of documents of each kind, and of open records for each status."""

    unsettled: int
    done: int
    closed: int
    hosts: int
    domains: int
    set_aside: int
    open_by_status: t.Mapping[str, int]

    def as_text(self) -> str:
        """Return the counts as text."""
        aside = f", {self.set_aside} set aside" if self.set_aside else ""
        return f"{self.unsettled} unsettled, {self.done} done and {self.closed} closed records, {self.hosts} hosts, {self.domains} domains{aside}"


def count_documents(contents: LedgerContents) -> DocumentCounts:
    """Count the documents of a ledger."""
    statuses = collections.Counter(_read_status(entry) for entry in contents.read_documents(OPEN))
    done = sum(statuses[status] for status in s.TOMBSTONE)
    closed, hosts, domains, aside = (sum(1 for _path in contents.list_paths(folder)) for folder in (CLOSED, HOSTS, DOMAINS, SET_ASIDE))
    return DocumentCounts(sum(statuses.values()) - done, done, closed, hosts, domains, aside, dict(sorted(statuses.items())))


def _read_status(entry: RawDocument) -> str:
    try:
        return str(decode_document(entry.data).body.get("status"))
    except Unreadable:
        return _UNREADABLE


def describe_identity(identity: LedgerIdentity, name: str) -> dict[str, t.Optional[str]]:
    """Return the identity of a ledger, where it was copied from and where it was moved to; of an archive, the ledger that it is of."""
    is_ledger = identity.archive_of is None
    copied_from, moved_to = (identity.copied_from, identity.moved.to if identity.moved else None) if is_ledger else (None, None)
    return {"ledger": name, "ledger_id": identity.ledger_id, "copied_from": copied_from, "moved_to": moved_to, "archive_of": identity.archive_of}


def list_archives(contents: LedgerContents) -> list[JsonObject]:
    """Return where records of the ledger were archived, as L(LedgerSettings) has it; none if the settings cannot be read."""
    for entry in contents.read_documents(SETTINGS):
        with contextlib.suppress(Unreadable, ShapeError):
            return list(decode_document(entry.data).settings.archives or ())
    return []


def format_summary(identity: LedgerIdentity, name: str, counts: DocumentCounts) -> str:
    """Return a short text on a ledger of that name."""
    if identity.archive_of is not None:
        return f"The archive {name} of the ledger {identity.archive_of} ({identity.ledger_id}): {counts.closed} closed records."
    gone = f" It was moved to {identity.moved.to}, and is no longer written." if identity.moved else ""
    return f"The ledger {name} ({identity.ledger_id}): {counts.as_text()}.{gone}"
