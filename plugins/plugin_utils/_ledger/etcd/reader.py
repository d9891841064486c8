# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reads an etcd ledger at one revision. Values are cached by key, with the revision that a write requires to be unchanged.

A damaged document is reported and set aside. A document of a later version is reported and left. Neither affects other documents.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, NotSupported

from ..document_bytes import Damaged, Newer, decode_document, decode_envelope, open_envelope
from ..documents import Document
from ..parsed import Parsed, ParsedDocuments
from ..rules import SET_ASIDE, DocumentPath, aside_name, check_document, may_be_selected
from ..selection import PreFilter
from .client import Client
from .messages import KeyValue, Message, delete_key, is_at_revision, is_unchanged, key_read, nested_read, put_key, range_end, range_read

PAGE_KEYS = 500
# A transaction of etcd has at most 128 reads.
_BATCH_KEYS = 100
# For so many keys at most, the names of all are read in one request.
_MAX_KNOWN_KEYS = 5_000


class Snapshot:
    """Keys are named without the ledger's prefix, which is added and removed here.

    :arg at_one_revision: otherwise each page is read at its own revision, for keys that never change.
    """

    def __init__(self, client: Client, at_one_revision: bool = True) -> None:
        self._client = client
        self._is_fixed = at_one_revision
        self._prefix = client.address.prefix
        self._revision = 0
        self._known: dict[str, t.Optional[KeyValue]] = {}
        self._used: set[str] = set()
        self._ranges: list[Message] = []
        self._names: dict[str, list[str]] = {}

    def fetch_keys(self, *keys: str) -> None:
        """Read keys in one request that will be read one by one later. Raises L(Overtaken) if the revision was compacted."""
        missing = [key for key in keys if key not in self._known]
        if not missing:
            return
        done = self._client.run_transaction([], [nested_read(key_read(self._prefix + key, self._revision)) for key in missing], [])
        if self._is_fixed:
            self._revision = self._revision or done.revision
        self._known.update(zip(missing, (found[0] if found else None for found in done.found), strict=True))

    def get_key(self, key: str) -> t.Optional[KeyValue]:
        """Return the key as it was at the revision, or None. From here on it counts as read."""
        self.fetch_keys(key)
        self._used.add(key)
        return self._known[key]

    def forget_key(self, key: str) -> None:
        """Treat the key as deleted."""
        self._known[key] = None

    def each_key(
        self, start: str, end: t.Optional[str] = None, keys_only: bool = False, counts: bool = True, written_since: int = 0
    ) -> Iterator[tuple[str, KeyValue]]:
        """Yield the keys from C(start) to before C(end), page by page; without an end all that begin with C(start).

        :arg counts: whether the range counts as read from here on.
        :arg written_since: only keys that were written at this revision or later.
        """
        last = self._prefix + end if end is not None else range_end(self._prefix + start)
        for found in self._read_pages(self._prefix + start, last, keys_only, written_since):
            yield found.key[len(self._prefix) :], found
        if counts:
            self._ranges.append(is_unchanged(self._prefix + start, last, self._revision))

    def list_names(self, start: str) -> list[str]:
        """Return the keys that begin with C(start)."""
        if start not in self._names:
            self._names[start] = [key for key, _found in self.each_key(start, keys_only=True, counts=False)]
        return self._names[start]

    def each_known_key(self, start: str, known: Mapping[str, Parsed], counts: bool = True, beside: str = "") -> Iterator[tuple[str, KeyValue]]:
        """Yield the keys that begin with C(start), as L(each_key) does, but read only those values that have changed.

        :arg known: by key, what was read before; not empty.
        :arg beside: the beginning of further keys, whose names are read in the same request, see L(list_names).
        """
        first, last = self._prefix + start, range_end(self._prefix + start)
        since = 1 + max(parsed.revision for parsed in known.values())
        reads = [range_read(first, last, self._revision, keys_only=True), range_read(first, last, self._revision, written_since=since)]
        if beside:
            reads.append(range_read(self._prefix + beside, range_end(self._prefix + beside), self._revision, keys_only=True))
        done = self._client.run_transaction([], [nested_read(read) for read in reads], [])
        if self._is_fixed:
            self._revision = self._revision or done.revision
        there, written, *named = done.found
        for names in named:
            self._names[beside] = [found.key[len(self._prefix) :] for found in names]
        values = {found.key: found for found in written}
        for found in there:
            key = found.key[len(self._prefix) :]
            before = known.get(key)
            if before is not None and before.revision == found.mod_revision:
                yield key, found._replace(value=before.data)
            elif found.key in values:
                yield key, values[found.key]
            else:
                # It could not be read before.
                self.fetch_keys(key)
                yield key, self._known[key] or found
        if counts:
            self._ranges.append(is_unchanged(first, last, self._revision))

    def _read_pages(self, first: str, last: str, keys_only: bool, written_since: int) -> Iterator[KeyValue]:
        more = True
        while more:
            page = self._client.read_range(range_read(first, last, self._revision, PAGE_KEYS, keys_only, written_since))
            if self._is_fixed:
                self._revision = self._revision or page.revision
            yield from page.found
            more = page.more and bool(page.found)
            # The next possible key.
            first = f"{page.found[-1].key}\0" if more else last

    def unchanged_comparisons(self) -> Sequence[Message]:
        """Return the comparisons that hold as long as nothing that was read has changed."""
        revisions = {key: found.mod_revision if found else 0 for key in sorted(self._used) for found in (self._known[key],)}
        return [*(is_at_revision(self._prefix + key, revision) for key, revision in revisions.items()), *self._ranges]


_EVERYTHING: t.Final = PreFilter()


def join_path(parts: Sequence[str]) -> str:
    """Return the key, without the ledger's prefix, of a document or a folder."""
    return "/".join(parts)


def describe_key(client: Client, path: Sequence[str]) -> str:
    """Return the name of the key for a person."""
    return f"The key {client.address.prefix}{join_path(path)} of {client.address}"


class DocumentReader:
    """:arg report: receives a sentence about a document that could not be read.

    :arg parsed: what this task has read before.
    """

    def __init__(self, client: Client, snapshot: Snapshot, report: Callable[[str], None], parsed: t.Optional[ParsedDocuments] = None) -> None:
        self._client = client
        self._snapshot = snapshot
        self._report = report
        self._parsed = parsed or ParsedDocuments()
        self.unreadable: dict[DocumentPath, t.Optional[JsonObject]] = {}
        """The documents that were found damaged, or of a later version, with the content of the latter."""

    def read_document(self, path: DocumentPath) -> t.Optional[Document]:
        """Return the document; None if it does not exist or was damaged. Raises L(NotSupported) for a newer schema."""
        found = self._snapshot.get_key(join_path(path))
        try:
            return self._read_document(path, found) if found else None
        except Newer as error:
            raise NotSupported(self._report_newer(path, error), "Update the collection on this control node.", document=error.body) from error

    def read_all(self, parts: Sequence[str], counts: bool = True, beside: str = "") -> Iterator[Document]:
        """Yield all documents of a folder that can be read.

        :arg counts: whether the folder counts as read from here on.
        :arg beside: the beginning of further keys, whose names are read in the same request if possible.
        """
        start, known = f"{join_path(parts)}/", {join_path(path): parsed for path, parsed in self._parsed.list_folder(parts).items()}
        is_known = 0 < len(known) <= _MAX_KNOWN_KEYS
        keys = self._snapshot.each_known_key(start, known, counts, beside) if is_known else self._snapshot.each_key(start, counts=counts)
        return self._read_documents(keys, _EVERYTHING)

    def read_written(self, parts: Sequence[str], since: int) -> Iterator[Document]:
        """Yield the documents of a folder that can be read and were written at this revision of etcd or later."""
        return self._read_documents(self._snapshot.each_key(f"{join_path(parts)}/", counts=False, written_since=since), _EVERYTHING)

    def read_between(self, start: str, end: str, prefilter: PreFilter) -> Iterator[Document]:
        """Yield the documents from a key to before another that can be read.

        :arg prefilter: excludes documents that need not be parsed.
        """
        return self._read_documents(self._snapshot.each_key(start, end, counts=False), prefilter)

    def read_paths(self, paths: Iterable[DocumentPath], prefilter: PreFilter) -> Iterator[Document]:
        """Yield those of these documents that exist and can be read, in few requests.

        :arg prefilter: excludes documents that need not be parsed.
        """
        names = [join_path(path) for path in paths]
        for batch in (names[first : first + _BATCH_KEYS] for first in range(0, len(names), _BATCH_KEYS)):
            self._snapshot.fetch_keys(*batch)
            yield from self._read_documents(((name, found) for name in batch if (found := self._snapshot.get_key(name))), prefilter)

    def _read_documents(self, keys: Iterable[tuple[str, KeyValue]], prefilter: PreFilter) -> Iterator[Document]:
        for key, found in keys:
            path = tuple(key.split("/"))
            try:
                document = self._read_document(path, found, prefilter)
            except Newer as error:
                self._report_newer(path, error)
                continue
            if document:
                yield document

    def _read_document(self, path: DocumentPath, found: KeyValue, prefilter: PreFilter = _EVERYTHING) -> t.Optional[Document]:
        if known := self._parsed.find(path, found.value):
            self._parsed.keep(path, found.value, known, found.mod_revision)
            return known
        try:
            envelope = open_envelope(found.value)
            if envelope and not may_be_selected(path, envelope.text, prefilter):
                return None
            document = decode_envelope(envelope) if envelope else decode_document(found.value)
            check_document(path, document)
            self._parsed.keep(path, found.value, document, found.mod_revision)
            return document
        except Damaged as error:
            self._set_aside(path, found, str(error))
        return None

    def _report_newer(self, path: DocumentPath, error: Newer) -> str:
        self.unreadable[path] = error.body
        sentence = f"{describe_key(self._client, path)} was left as it is: {error}."
        self._report(sentence)
        return sentence

    def _set_aside(self, path: DocumentPath, found: KeyValue, why: str) -> None:
        if path in self.unreadable:
            return
        self.unreadable[path] = None
        aside = join_path((*SET_ASIDE, aside_name(path, time.time_ns())))
        acts = [put_key(f"{self._client.address.prefix}{aside}", found.value), delete_key(found.key)]
        try:
            self._client.run_transaction([is_at_revision(found.key, found.mod_revision)], acts, [])
        except Forbidden:
            self._report(f"{describe_key(self._client, path)} could not be read: {why}. It was left where it is.")
        else:
            self._report(f"{describe_key(self._client, path)} could not be read: {why}. It was moved to {aside}.")
        self._snapshot.forget_key(join_path(path))
