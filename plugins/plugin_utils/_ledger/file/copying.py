# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The contents of a file ledger, byte by byte, and a folder to which a ledger is copied.

The folder is not a ledger before the copy is complete, and a run that another one has replaced never writes to it.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import typing as t
from collections.abc import Iterable, Iterator

from .. import audit
from ..audit import ArchivedChain, AuditLink, read_link, verify_lines
from ..contents import LedgerContents, RawDocument
from ..copying import CopyTarget, TargetState, changed_error, split_batches, taken_over_error
from ..domain_index import BEGIN, FOLDER, FROM_THE_FIRST, hole_problem, index_keys, month_of
from ..identity import COPYING_NAME, IDENTITY_NAME, LedgerIdentity, decode_identity
from ..rules import CLOSED, DocumentPath
from . import folder
from .folder import LOCK_NAME, LOCK_SECONDS, NOT_A_FILE, Folder, hold_file_lock, report_disk_errors, write_all
from .index import DomainIndex, entries_path
from .journal import AuditFile, Journal, read_lines

ARCHIVE = "audit.archive"
LINES = ".jsonl"
ENDS = ".json"
_OWN_CHAIN = "file"
# The keys of the index that are kept in memory while all records are compared with it.
_MAX_KEYS = 10_000


class FileContents(LedgerContents):
    """:arg identity: None for a copy that is unfinished, which has no chain of its own yet."""

    def __init__(self, root: Folder, identity: t.Optional[LedgerIdentity]) -> None:
        self._root = root
        self._identity = identity

    def list_paths(self, folder: DocumentPath) -> Iterator[DocumentPath]:
        for parts in self._list_months() if folder == CLOSED else (folder,):
            yield from ((*parts, name) for name in self._list_names(parts) if name.endswith(".json") and not name.startswith("."))

    def read_documents(self, folder: DocumentPath) -> Iterator[RawDocument]:
        for path in self.list_paths(folder):
            with contextlib.suppress(FileNotFoundError):
                yield RawDocument(path, self._read_bytes(path))

    def read_chains(self) -> Iterator[tuple[ArchivedChain, Iterator[bytes]]]:
        for chain in audit.require_readable(self._read_archive()):
            yield chain, self._read_archived_lines(chain.name)
        if self._identity and not (own := self._own_chain(self._identity)).is_empty:
            yield own, read_lines(self._root, AuditFile.NAME)

    def audit_problems(self) -> list[str]:
        if self._identity is None:
            return []
        link = self._last_written()
        own = verify_lines(read_lines(self._root, AuditFile.NAME), self._identity.genesis_hash, link.own if link else None)
        return [
            *(f"{self.describe_location((AuditFile.NAME,))}: {problem}" for problem in own),
            *audit.verify_archive(self._read_archive(), self._read_archived_lines, self._identity.seal, self._identity.archive_of is not None),
        ]

    def index_problems(self) -> Iterator[str]:
        index = DomainIndex(self._root)
        begin, known = index.read_begin(), functools.lru_cache(maxsize=_MAX_KEYS)(lambda key: frozenset(index.read_paths(key)))
        for entry in self.read_documents(CLOSED) if begin else ():
            if (record := entry.record) and month_of(entry.path) >= str(begin):
                missing = [key for key in index_keys(record) if entry.path not in known(key)]
                yield from (hole_problem(self.describe_location(entries_path(key)), entry.path, self.describe_location((FOLDER, BEGIN))) for key in missing)

    def describe_location(self, path: DocumentPath) -> str:
        return os.path.join(self._root.path, *path)

    def _list_months(self) -> Iterator[DocumentPath]:
        return ((*CLOSED, year, month) for year in self._list_names(CLOSED) for month in self._list_names((*CLOSED, year)))

    def _list_names(self, parts: DocumentPath) -> list[str]:
        try:
            with self._root.open_folder(*parts) as folder:
                return folder.list_names()
        except FileNotFoundError:
            return []

    def _read_bytes(self, path: DocumentPath) -> bytes:
        try:
            with self._root.open_folder(*path[:-1]) as folder:
                return folder.read_file(path[-1])
        except OSError as error:
            if error.errno not in NOT_A_FILE:
                raise
            return b""

    def _read_archive(self) -> dict[str, t.Optional[ArchivedChain]]:
        names = [name.removesuffix(ENDS) for name in self._list_names((ARCHIVE,)) if name.endswith(ENDS) and not name.startswith(".")]
        return {name: audit.decode_chain(name, self._read_bytes((ARCHIVE, f"{name}{ENDS}"))) for name in names}

    def _read_archived_lines(self, name: str) -> Iterator[bytes]:
        with self._root.open_folder(ARCHIVE) as folder:
            yield from read_lines(folder, f"{name}{LINES}")

    def _own_chain(self, identity: LedgerIdentity) -> ArchivedChain:
        link = self._last_written() or AuditFile(self._root, lambda sentence: None).read_last_link()
        count = sum(1 for dummy in read_lines(self._root, AuditFile.NAME))
        return ArchivedChain(audit.archived_name(identity.home, _OWN_CHAIN), identity.genesis_hash, count, link.own if link else identity.genesis_hash)

    def _last_written(self) -> t.Optional[AuditLink]:
        last = Journal(self._root).read_last()
        return read_link(last.line) if last and last.line else None


_ALLOWED_BEFORE = folder.ALLOWED_BEFORE | {f".{COPYING_NAME}.tmp"}


class FileTarget(CopyTarget):
    """:arg path: the folder; it need not exist yet."""

    def __init__(self, path: str) -> None:
        super().__init__(os.path.abspath(path))

    def read_state(self) -> TargetState:
        with report_disk_errors(self.name):
            try:
                root = Folder.open_path(self.name)
            except FileNotFoundError:
                return TargetState()
            with root:
                folder.check_owner(root)
                return self._read_state_in(root)

    def mark_copy(self, marker: bytes, seen: TargetState) -> None:
        with report_disk_errors(self.name):
            folder.make_folder(self.name)
            with Folder.open_path(self.name) as root, hold_file_lock(root, LOCK_NAME, True, LOCK_SECONDS):
                if self._read_state_in(root) != seen:
                    raise changed_error(self.name)
                os.fchmod(root.fd, 0o700)
                root.write_file(COPYING_NAME, marker)
        self._marker = marker

    @contextlib.contextmanager
    def open_contents(self) -> Iterator[LedgerContents]:
        with report_disk_errors(self.name), Folder.open_path(self.name) as root:
            yield FileContents(root, None)

    def write_documents(self, entries: Iterable[RawDocument]) -> None:
        for batch in split_batches(entries, lambda entry: len(entry.data)):
            with self._hold_copy() as root:
                for entry in batch:
                    index_document(root, entry)
                    write_parts(root, entry.path, [entry.data], closed_at(entry))

    def write_chain(self, chain: ArchivedChain, lines: Iterable[bytes]) -> None:
        with self._hold_copy() as root:
            write_parts(root, (ARCHIVE, f"{chain.name}{LINES}"), (line + b"\n" for line in lines))
            write_parts(root, (ARCHIVE, f"{chain.name}{ENDS}"), [chain.encode_ends()])

    def remove_document(self, path: DocumentPath) -> None:
        with self._hold_copy() as root:
            _remove_file(root, path)

    def remove_chain(self, name: str) -> None:
        with self._hold_copy() as root:
            for end in (LINES, ENDS):
                _remove_file(root, (ARCHIVE, f"{name}{end}"))

    def finish_copy(self, identity: LedgerIdentity) -> None:
        with self._hold_copy() as root:
            # The files that were written so far were not synced one by one.
            folder.sync_file_system(root)
            DomainIndex(root).write_begin(FROM_THE_FIRST)
            root.write_file(IDENTITY_NAME, identity.data)
            root.remove_file(COPYING_NAME)
            root.sync_names()

    @contextlib.contextmanager
    def _hold_copy(self) -> Iterator[Folder]:
        """Hold the ledger's lock, as its writers do, while this run owns the copy."""
        with report_disk_errors(self.name), Folder.open_path(self.name) as root, hold_file_lock(root, LOCK_NAME, True, LOCK_SECONDS):
            if folder.read_if_present(root, COPYING_NAME) != self._marker or folder.read_if_present(root) is not None:
                raise taken_over_error(self.name)
            yield root

    def _read_state_in(self, root: Folder) -> TargetState:
        data, copying = folder.read_if_present(root), folder.read_if_present(root, COPYING_NAME)
        if data is not None:
            return TargetState(identity=decode_identity(data, folder.identity_source(self.name)))
        foreign = sorted(set(root.list_names()) - _ALLOWED_BEFORE) if copying is None else []
        return TargetState(copying=copying, foreign=foreign[0] if foreign else None)


def index_document(root: Folder, entry: RawDocument) -> None:
    """Add the entries of a closed record to the index by domain, not synced."""
    record = entry.record if entry.path[:2] == CLOSED else None
    if record:
        DomainIndex(root).add_record(entry.path, record, sync=False)


def closed_at(entry: RawDocument) -> t.Optional[float]:
    """Return when a closed record was written, as Unix time: queries for later records use the times of files."""
    record = entry.record if entry.path[:2] == CLOSED else None
    try:
        return datetime.datetime.fromisoformat(record.updated_at).timestamp() if record else None
    except ValueError:
        return None


def write_parts(root: Folder, path: DocumentPath, parts: Iterable[bytes], written_at: t.Optional[float] = None) -> None:
    """Write a file that is not used before it was compared."""
    with root.open_folder(*path[:-1], create=True) as folder:
        folder.remove_file(path[-1])
        fd = folder.open_file(path[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for part in parts:
                write_all(fd, part)
            if written_at is not None:
                os.utime(fd, (written_at, written_at))
        finally:
            os.close(fd)


def _remove_file(root: Folder, path: DocumentPath) -> None:
    with contextlib.suppress(FileNotFoundError), root.open_folder(*path[:-1]) as folder:
        folder.remove_file(path[-1])
