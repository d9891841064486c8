# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The index of closed records by domain in a file ledger: a file for each key, with a line for each record."""

from __future__ import annotations

import contextlib
import os
import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from ..documents import Document
from ..domain_index import BEGIN, FOLDER, first_month, index_key, index_keys, make_entry, month_of, read_begin, read_entry
from ..rules import CLOSED, DocumentPath
from ..selection import Selection
from .folder import Folder, read_if_present, write_all
from .reader import DocumentReader, closed_records

_GROUP_DIGITS = 2


def entries_path(key: str) -> DocumentPath:
    """Return the location of the entries of a key."""
    return (FOLDER, key[:_GROUP_DIGITS], key)


class DomainIndex:
    """Entries are added under the lock of the ledger, and are read without it: they are never changed or removed."""

    def __init__(self, root: Folder) -> None:
        self._root = root

    def read_begin(self) -> t.Optional[str]:
        """Return the first month of the index; None if there is no index."""
        try:
            with self._root.open_folder(FOLDER) as folder:
                return read_begin(read_if_present(folder, BEGIN))
        except FileNotFoundError:
            return None

    def ensure_begin(self, path: DocumentPath) -> None:
        """Begin the index, if there is none, before the record at that location is closed."""
        if self.read_begin() is None:
            self.write_begin(first_month(path, self._has_closed()))

    def write_begin(self, month: str) -> None:
        """Write the first month of the index."""
        with self._root.open_folder(FOLDER, create=True) as folder:
            folder.write_file(BEGIN, month.encode("ascii"))

    def add_record(self, path: DocumentPath, record: MoveRecord, sync: bool = True) -> None:
        """Add the entries of a closed record, which may be there already."""
        line = f"{make_entry(path)}\n".encode("ascii")
        for key in index_keys(record):
            location = entries_path(key)
            with self._root.open_folder(*location[:-1], create=True) as folder:
                _append_once(folder, location[-1], line, sync)

    def find_paths(self, domain: str) -> list[DocumentPath]:
        """Return the locations of the closed records that the index has for a UUID or a name."""
        return self.read_paths(index_key(domain))

    def read_paths(self, key: str) -> list[DocumentPath]:
        """Return the locations that the index has for a key, each once. Damaged lines are ignored."""
        location = entries_path(key)
        try:
            with self._root.open_folder(*location[:-1]) as folder:
                data = read_if_present(folder, location[-1]) or b""
        except FileNotFoundError:
            return []
        found = (read_entry(line) for line in data.decode("ascii", "replace").split("\n"))
        return list(dict.fromkeys(path for path in found if path))

    def _has_closed(self) -> bool:
        with contextlib.suppress(FileNotFoundError), self._root.open_folder(*CLOSED) as folder:
            return bool(folder.list_names())
        return False


def _append_once(folder: Folder, name: str, line: bytes, sync: bool) -> None:
    """Append a line unless it is there. A line that a crash has torn is ended first; it is ignored."""
    is_new = read_if_present(folder, name) is None
    fd = folder.open_file(name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        before = os.pread(fd, os.fstat(fd).st_size, 0)
        if line not in before.splitlines(keepends=True):
            write_all(fd, line if not before or before.endswith(b"\n") else b"\n" + line)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    if is_new and sync:
        folder.sync_names()


def closed_records_of(path: str, selection: Selection, report: Callable[[str], None]) -> Iterator[Document]:
    """Yield the documents of the selected closed records: by the index those of a domain, as far as the index reaches back."""
    if selection.domain is None:
        yield from closed_records(path, selection, report)
        return
    with Folder.open_path(path) as root:
        index, reader = DomainIndex(root), DocumentReader(root, report)
        begin = index.read_begin()
        for location in index.find_paths(selection.domain) if begin else ():
            if month_of(location) >= str(begin) and selection.includes_month(*location[len(CLOSED) : -1]):
                document = reader.read_selected(location, selection.prefilter)
                if document and selection.matches(document.record):
                    yield document
    yield from closed_records(path, selection, report, before=begin)
