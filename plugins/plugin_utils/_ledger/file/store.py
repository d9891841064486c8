# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The ledger as a folder of JSON files on the control node.

A transaction holds the lock of the ledger, completes a unit that a crash left behind, then reads and writes documents.
"""

from __future__ import annotations

import contextlib
import os
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from ..audit import AuditEntry, make_audit_line, read_link
from ..changes import DocumentWrite, Transaction, check_unchanged
from ..contents import LedgerContents, RawDocument
from ..copying import Step, no_step
from ..document_bytes import Unreadable, decode_document, encode_document
from ..documents import Document, Stored
from ..identity import IDENTITY_NAME, LedgerIdentity, refuse_moved
from ..ledger import Ledger
from ..parsed import ParsedDocuments
from ..rules import CLOSED, HOSTS, SET_ASIDE, DocumentPath, check_lock_key, refuse_unsettled
from ..selection import Selection, make_selection
from ..unreadable_hosts import LedgerHosts, make_hosts
from . import folder, reader
from .copying import FileContents
from .folder import GATE_NAME, LOCK_NAME, LOCK_SECONDS, Folder, hold_file_lock, report_disk_errors
from .index import DomainIndex, closed_records_of
from .journal import AuditFile, Journal, JournalUnit, JournalWrite
from .reader import DocumentReader, closed_ids_since, open_records


class FileTransaction(Transaction):
    """:arg step: called with the name of each step of a unit after the step; tests end the process at that point."""

    def __init__(self, root: Folder, identity: LedgerIdentity, report: Callable[[str], None], step: Step, parsed: ParsedDocuments) -> None:
        self.root = root
        self.reader = DocumentReader(root, report, parsed)
        self.journal = Journal(root)
        self.audit = AuditFile(root, report)
        self.index = DomainIndex(root)
        self._genesis = identity.genesis_hash
        self._step = step

    def read_document(self, path: DocumentPath) -> t.Optional[Document]:
        return self.reader.read_document(path)

    def read_all(self, parts: Sequence[str]) -> Iterator[Document]:
        return self.reader.read_all(parts)

    @property
    def unreadable(self) -> t.Mapping[DocumentPath, t.Optional[JsonObject]]:
        return self.reader.unreadable

    def find_holder(self, domain_uuid: str) -> t.Optional[Stored]:
        return reader.find_holder(self.reader, domain_uuid)

    def find_record(self, record_id: str) -> t.Optional[Stored]:
        return reader.find_record(self.reader, record_id)

    def every_record(self) -> Iterator[MoveRecord]:
        yield from (document.record for document in reader.open_records(self.reader))
        yield from (document.record for document in reader.closed_records(self.root.path, make_selection(), lambda sentence: None))

    def read_hosts(self) -> LedgerHosts:
        # What this reading sets aside is among the names afterwards.
        documents = list(self.read_all(HOSTS))
        return make_hosts(documents, self.aside_names(), self.unreadable)

    def aside_names(self) -> list[str]:
        return self.reader.list_folder(SET_ASIDE)

    def write_document(self, write: DocumentWrite) -> None:
        with self.root.open_folder(*write.path[:-1], create=True) as folder:
            folder.write_file(write.path[-1], encode_document(write.content, write.version))

    def commit_unit(
        self,
        writes: Sequence[DocumentWrite],
        removes: Sequence[DocumentPath] = (),
        audited: t.Optional[AuditEntry] = None,
    ) -> None:
        line = self._previous_line()
        if audited is not None:
            line = make_audit_line(audited, self._last_hash(line))[0]
        texts = tuple(JournalWrite(tuple(write.path), write.version, encode_document(write.content, write.version).decode("ascii")) for write in writes)
        unit = JournalUnit(texts, tuple(tuple(path) for path in removes), line)
        for write in writes:
            if write.path[:2] == CLOSED:
                self.index.ensure_begin(write.path)
        self._step("begin")
        self.journal.write_unit(unit)
        self._step("journal")
        self._apply_unit(unit)

    def remove_closed(self, entries: Sequence[RawDocument]) -> None:
        # Not synced: a record that a crash brings back is archived again.
        for entry in entries:
            with contextlib.suppress(FileNotFoundError), self.root.open_folder(*entry.path[:-1]) as folder:
                check_unchanged(entry, folder.read_file(entry.path[-1]), os.path.join(self.root.path, *entry.path))
                folder.remove_file(entry.path[-1])

    def finish_pending(self) -> None:
        """Complete a change that a crash interrupted. Needs the exclusive lock."""
        if not self.journal.is_pending():
            return
        unit = self.journal.read_last()
        if unit is None:
            self.journal.drop_torn()
        else:
            self._apply_unit(unit)

    def _apply_unit(self, unit: JournalUnit) -> None:
        for write in unit.writes:
            self._index_write(write)
            self._apply_write(write)
            self._step(f"write {write.path[0]}")
        for path in unit.removes:
            with contextlib.suppress(FileNotFoundError), self.root.open_folder(*path[:-1]) as folder:
                if folder.remove_file(path[-1]):
                    folder.sync_names()
            self._step(f"remove {path[0]}")
        if unit.line:
            self.audit.append_once(unit.line)
            self._step("audit")
        self.journal.mark_applied()
        self._step("applied")

    def _index_write(self, write: JournalWrite) -> None:
        """Add the index entries of a record that is closed. A unit that a version without an index has left was begun before the index."""
        if write.path[:2] == CLOSED and self.index.read_begin() is not None:
            try:
                record = decode_document(write.text.encode("ascii")).record
            except Unreadable as error:
                raise self.journal.make_foreign_error(error) from error
            self.index.add_record(write.path, record)
            self._step("index")

    def _apply_write(self, write: JournalWrite) -> None:
        # If a mark did not reach the disk, a unit is applied again: later writes must stay.
        present = self.reader.read_document(write.path)
        if present is None or present.version < write.version:
            with self.root.open_folder(*write.path[:-1], create=True) as folder:
                folder.write_file(write.path[-1], write.text.encode("ascii"))

    def _previous_line(self) -> t.Optional[str]:
        """Return the last written line; it is restored first if the file has lost it."""
        last = self.journal.read_last()
        if last is None or last.line is None:
            self.audit.repair_end()
            return None
        self.audit.append_once(last.line)
        return last.line

    def _last_hash(self, line: t.Optional[str]) -> str:
        link = read_link(line) if line else self.audit.read_last_link()
        return link.own if link else self._genesis


@contextlib.contextmanager
def _hold_ledger_lock(root: Folder, exclusive: bool) -> Iterator[None]:
    """Hold the ledger's lock. Waiting processes hold the gate, so that a continuous sequence of readers does not starve a writer."""
    with contextlib.ExitStack() as stack:
        with hold_file_lock(root, GATE_NAME, True, LOCK_SECONDS):
            stack.enter_context(hold_file_lock(root, LOCK_NAME, exclusive, LOCK_SECONDS))
        yield


@contextlib.contextmanager
def open_transaction(
    path: str, identity: LedgerIdentity, exclusive: bool, report: Callable[[str], None], step: Step, parsed: ParsedDocuments
) -> Iterator[FileTransaction]:
    """Open the ledger's folder and hold its lock.

    Raises L(InvalidState) if it is opened for writing, and is no longer the same ledger; L(TimedOut), and what L(report_disk_errors) makes of
    any C(OSError).
    """
    with report_disk_errors(path), Folder.open_path(path) as root:
        transaction = FileTransaction(root, identity, report, step, parsed)
        while True:
            with _hold_ledger_lock(root, exclusive):
                if exclusive:
                    refuse_moved(identity, path)
                    folder.check_unchanged(root, identity)
                    transaction.finish_pending()
                if exclusive or not transaction.journal.is_pending():
                    yield transaction
                    return
            with _hold_ledger_lock(root, exclusive=True):
                transaction.finish_pending()


_LOCKS = "locks"
_T = t.TypeVar("_T")


# Room for some ten thousand changes.
_LITTLE_MIB = 100
_FEW_FILES = 10_000
# What is written to find out whether changes can be; room for some hundred of them.
_PROBE_NAME = "room"
_PROBE_BYTES = 2**20


class FileLedger(Ledger):
    """:arg path: the folder; created with mode 0700 if it is missing and C(create) is set.

    :arg moved: whether to open also one that was moved elsewhere; it is read only.
    :arg step: called after each step of a unit with its name; for tests.
    """

    def __init__(self, path: str, create: bool = True, step: Step = no_step, moved: bool = False) -> None:
        self.path = os.path.abspath(path)
        super().__init__(self.path)
        self._step = step
        with report_disk_errors(self.path):
            self._identity = folder.ensure_ledger(self.path, create)
        if not moved:
            refuse_moved(self._identity, self.path)

    @property
    def identity(self) -> LedgerIdentity:
        return self._identity

    def find_threats(self) -> list[str]:
        with report_disk_errors(self.path):
            found = os.statvfs(self.path)
        # A file system without a fixed number of files reports 0 of them.
        few_files = found.f_files > 0 and found.f_favail < _FEW_FILES
        if not few_files and found.f_bavail * found.f_frsize >= _LITTLE_MIB * 1024**2:
            return []
        left = f"{found.f_favail} files" if few_files else f"{found.f_bavail * found.f_frsize // 1024**2} MiB"
        text = (
            f"The file system of the ledger {self.path} has room for {left} only. When it is full, nothing can be moved or evacuated. "
            "Free space there, or archive old records on another disk (kvmfleet.migration.ledger_archive)."
        )
        return [text]

    def check_writable(self) -> None:
        with self._open_transaction(exclusive=True) as transaction:
            try:
                # Not zeros, which some file systems do not store.
                transaction.root.write_file(_PROBE_NAME, os.urandom(_PROBE_BYTES))
            finally:
                for name in (_PROBE_NAME, f".{_PROBE_NAME}.tmp"):
                    transaction.root.remove_file(name)

    def _open_transaction(self, exclusive: bool) -> contextlib.AbstractContextManager[FileTransaction]:
        return open_transaction(self.path, self._identity, exclusive, self.report_problem, self._step, self.parsed)

    def _run_reading(self, act: Callable[[Transaction], _T]) -> _T:
        with self._open_transaction(exclusive=False) as transaction:
            return act(transaction)

    def _run_change(self, act: Callable[[Transaction], _T]) -> _T:
        with self._open_transaction(exclusive=True) as transaction:
            return act(transaction)

    def _open_records(self) -> list[Document]:
        with self._open_transaction(exclusive=False) as transaction:
            return open_records(transaction.reader)

    def _select_records(self, selection: Selection) -> Iterator[Document]:
        found = self._open_records()
        yield from (document for document in found if selection.matches(document.record))
        if selection.reads_closed:
            # Closed records never change and need no lock. A record that was closed in the meantime was read as an open one.
            seen = {document.record.id for document in found}
            with report_disk_errors(self.path):
                yield from (document for document in closed_records_of(self.path, selection, self.report_problem) if document.record.id not in seen)

    def list_closed_ids(self) -> set[str]:
        with report_disk_errors(self.path):
            return closed_ids_since(self.path, make_selection())

    def list_closed_since(self, since: str) -> set[str]:
        with report_disk_errors(self.path):
            return closed_ids_since(self.path, make_selection(since=since))

    @contextlib.contextmanager
    def hold_lock(self, key: str, timeout_seconds: float = 30) -> Iterator[None]:
        name = f"{check_lock_key(key)}.lock"
        with contextlib.ExitStack() as stack:
            with report_disk_errors(self.path):
                root = stack.enter_context(Folder.open_path(self.path))
                folder = stack.enter_context(root.open_folder(_LOCKS, create=True))
                stack.enter_context(hold_file_lock(folder, name, True, timeout_seconds))
            yield

    @contextlib.contextmanager
    def open_contents(self) -> Iterator[LedgerContents]:
        with report_disk_errors(self.path), Folder.open_path(self.path) as root:
            yield FileContents(root, self._identity)

    def examine_contents(self, act: Callable[[LedgerContents], _T]) -> _T:
        with self._open_transaction(exclusive=False) as transaction:
            is_archive = self._identity.archive_of is not None
            return act(FileContents(transaction.root, folder.reread_identity(transaction.root, self._identity) if is_archive else self._identity))

    def begin_move(self, to: str, by: str) -> None:
        with self._open_transaction(exclusive=True) as transaction:
            refuse_unsettled(self.name, (document.record for document in open_records(transaction.reader)))
            self._write_identity(transaction.root, self._identity.begin_move(to, by))

    def _replace_identity(self, after: LedgerIdentity) -> None:
        with report_disk_errors(self.path), Folder.open_path(self.path) as root, hold_file_lock(root, LOCK_NAME, True, LOCK_SECONDS):
            folder.check_unchanged(root, self._identity)
            self._write_identity(root, after)

    def _write_identity(self, root: Folder, after: LedgerIdentity) -> None:
        root.write_file(IDENTITY_NAME, after.data)
        self._identity = after
