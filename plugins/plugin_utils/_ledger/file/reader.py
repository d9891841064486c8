# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reads the documents of a file ledger, and finds records among them: open ones, and closed ones in the folders of their months.

A damaged document is reported and set aside. A document of a later version is reported and left. Neither affects other documents.
"""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotSupported

from ..document_bytes import Damaged, Newer, decode_document, decode_envelope, open_envelope
from ..documents import Document, Stored
from ..parsed import ParsedDocuments
from ..rules import CLOSED, OPEN, SET_ASIDE, DocumentPath, aside_name, check_document, document_key, document_path, holds_domain, is_uuid, may_be_selected
from ..selection import PreFilter, Selection
from .folder import NOT_A_FILE, Folder

_EVERYTHING: t.Final = PreFilter()


class DocumentReader:
    """:arg report: receives a sentence about a document that could not be read.

    :arg parsed: what this task has read before.
    """

    def __init__(self, root: Folder, report: Callable[[str], None], parsed: t.Optional[ParsedDocuments] = None) -> None:
        self._root = root
        self._report = report
        self._parsed = parsed or ParsedDocuments()
        self.unreadable: dict[DocumentPath, t.Optional[JsonObject]] = {}
        """The documents that were found damaged, or of a later version, with the content of the latter."""

    def read_document(self, path: DocumentPath) -> t.Optional[Document]:
        """Return the document; None if it does not exist or was damaged. Raises L(NotSupported) for a newer schema."""
        try:
            with self._root.open_folder(*path[:-1]) as folder:
                return self._read_from(folder, path)
        except FileNotFoundError:
            return None
        except Newer as error:
            sentence = self._report_newer(path, error)
            raise NotSupported(sentence, "Update the collection on this control node.", document=error.body) from error

    def read_all(self, parts: Sequence[str], newer: t.Optional[list[JsonObject]] = None, prefilter: PreFilter = _EVERYTHING) -> Iterator[Document]:
        """Yield all documents of a folder that can be read; the bodies of newer ones are added to C(newer).

        :arg prefilter: excludes documents that need not be parsed; with a filter, documents come in no order.
        """
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(self._root.open_folder(*parts))
            except FileNotFoundError:
                return
            for name in folder.list_names() if prefilter is _EVERYTHING else folder.each_name(prefilter.written_since):
                if name.endswith(".json") and not name.startswith("."):
                    document = self._read_or_newer(folder, (*parts, name), newer, prefilter)
                    if document:
                        yield document

    def read_selected(self, path: DocumentPath, prefilter: PreFilter) -> t.Optional[Document]:
        """Return the document; None if it does not exist, was damaged, is newer, or is excluded."""
        try:
            with self._root.open_folder(*path[:-1]) as folder:
                return self._read_or_newer(folder, path, None, prefilter)
        except FileNotFoundError:
            return None

    def _read_or_newer(self, folder: Folder, path: DocumentPath, newer: t.Optional[list[JsonObject]], prefilter: PreFilter) -> t.Optional[Document]:
        try:
            return self._read_from(folder, path, prefilter)
        except Newer as error:
            self._report_newer(path, error)
            if newer is not None:
                newer.append(error.body)
        return None

    def list_folder(self, parts: Sequence[str]) -> list[str]:
        """Return the names in a folder of folders, or none if it is missing."""
        try:
            with self._root.open_folder(*parts) as folder:
                return folder.list_names()
        except FileNotFoundError:
            return []

    def _read_from(self, folder: Folder, path: DocumentPath, prefilter: PreFilter = _EVERYTHING) -> t.Optional[Document]:
        """Return the document; None if it does not exist, was damaged, or is excluded."""
        try:
            data = folder.read_file(path[-1])
            if known := self._parsed.find(path, data):
                return known
            envelope = open_envelope(data)
            if envelope and not may_be_selected(path, envelope.text, prefilter):
                return None
            document = decode_envelope(envelope) if envelope else decode_document(data)
            check_document(path, document)
            self._parsed.keep(path, data, document)
            return document
        except FileNotFoundError:
            return None
        except Damaged as error:
            self._set_aside(path, str(error))
        except OSError as error:
            if error.errno not in NOT_A_FILE:
                raise
            self._set_aside(path, "it is not a regular file")
        return None

    def _report_newer(self, path: DocumentPath, error: Newer) -> str:
        self.unreadable[path] = error.body
        sentence = f"{os.path.join(self._root.path, *path)} was left as it is: {error}."
        self._report(sentence)
        return sentence

    def _set_aside(self, path: DocumentPath, why: str) -> None:
        self.unreadable[path] = None
        new_name = aside_name(path, time.time_ns())
        with contextlib.suppress(FileNotFoundError), self._root.open_folder(*path[:-1]) as folder, self._root.open_folder(*SET_ASIDE, create=True) as aside:
            folder.move_file(path[-1], aside, new_name)
        full_path = os.path.join(self._root.path, *path)
        self._report(f"{full_path} could not be read: {why}. It was moved to {os.path.join(self._root.path, *SET_ASIDE, new_name)}.")


def open_records(reader: DocumentReader) -> list[Document]:
    """Return the documents of all open records."""
    return list(reader.read_all(OPEN))


def closed_records(path: str, selection: Selection, report: Callable[[str], None], before: t.Optional[str] = None) -> Iterator[Document]:
    """Yield the documents of the selected closed records, and read no other months.

    :arg before: as yyyy/mm; only earlier months are read.
    """
    with Folder.open_path(path) as root:
        reader = DocumentReader(root, report)
        for year in reader.list_folder(CLOSED):
            for month in reader.list_folder((*CLOSED, year)):
                if selection.includes_month(year, month) and (before is None or f"{year}/{month}" < before):
                    found = reader.read_all((*CLOSED, year, month), None, selection.prefilter)
                    yield from (document for document in found if selection.matches(document.record))


def closed_ids_since(path: str, selection: Selection) -> set[str]:
    """Return the ids of the closed records that were written since, by the names and times of their files."""
    found: set[str] = set()
    with Folder.open_path(path) as root:
        reader = DocumentReader(root, lambda sentence: None)
        for year in reader.list_folder(CLOSED):
            for month in reader.list_folder((*CLOSED, year)):
                if selection.includes_month(year, month):
                    with root.open_folder(*CLOSED, year, month) as folder:
                        found.update(key for name in folder.each_name(selection.prefilter.written_since) if is_uuid(key := document_key((name,))))
    return found


def find_holder(reader: DocumentReader, domain_uuid: str) -> t.Optional[Stored]:
    """Return the record that holds the domain. Raises L(NotSupported) if one of a newer schema might."""
    newer: list[JsonObject] = []
    for document in reader.read_all(OPEN, newer):
        if document.record.domain.uuid.lower() == domain_uuid and holds_domain(document.record):
            return document.stored
    for body in newer:
        domain = body.get("domain")
        if not isinstance(domain, dict) or str(domain.get("uuid", domain_uuid)).lower() == domain_uuid:
            raise NotSupported(
                f"The record {body.get('id')} of a later version may hold the domain {domain_uuid}; nothing was changed.",
                "Update the collection on this control node.",
            )
    return None


def find_record(reader: DocumentReader, record_id: str) -> t.Optional[Stored]:
    """Return the record of that ID, from any folder."""
    for path in _record_paths(reader, record_id):
        document = reader.read_document(path)
        if document:
            return document.stored
    return None


def _record_paths(reader: DocumentReader, record_id: str) -> Iterator[DocumentPath]:
    yield document_path(OPEN, record_id)
    for year in reversed(reader.list_folder(CLOSED)):
        for month in reversed(reader.list_folder((*CLOSED, year))):
            yield document_path((*CLOSED, year, month), record_id)
