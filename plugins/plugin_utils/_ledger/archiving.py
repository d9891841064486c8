# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Moves closed records that nothing needs any more, and old audit lines, from a ledger to an archive.

They are removed from the ledger after they were written to the archive and read back. After a run that ended in between they are in both, and the next run
continues.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .archive_notes import check_noted, note_archive
from .audit import ChainPart
from .contents import LedgerContents, RawDocument
from .copying import COPY_LOCK, COPY_LOCK_SECONDS, Step, no_step, split_batches
from .host_entries import displacing_since
from .ledger import Ledger
from .rules import CLOSED, DocumentPath

if t.TYPE_CHECKING:
    from .file.archive import ArchiveFolder  # pragma: no cover

# Why a record stays in the ledger.
NEWEST = "newest_of_domain"
LEFTOVERS = "leftovers"
IN_PROGRESS = "domain_in_progress"
DISPLACED = "host_out_of_service"
REASONS = (NEWEST, LEFTOVERS, IN_PROGRESS, DISPLACED)
# The records that are written before the disk is waited for.
_AT_ONCE = 250


class ClosedRecord(t.NamedTuple):
    """What the choice needs of a closed record.

    :arg domain: the UUID of its domain, in lower case.
    :arg is_superseded: whether an evacuation has taken over from it.
    """

    id: str
    domain: str
    type: str
    status: str
    generation: int
    updated_at: str
    is_superseded: bool


class NeededRecords(t.NamedTuple):
    """What the ledger still needs of its closed records.

    :arg last: the IDs of those that documents of domains name.
    :arg domains: the UUIDs of the domains that have an open record, in lower case.
    :arg since: from then on, records can displace a domain from a host that is out of service; null if all hosts are enabled.
    """

    last: frozenset[str]
    domains: frozenset[str]
    since: t.Optional[str]


class ArchiveOutcome(t.NamedTuple):
    """What was archived, or would be.

    :arg bytes: of records and lines.
    :arg kept: the number of records of the same age that stay, by reason.
    :arg problems: sentences about audit lines that were left because of a line before them.
    """

    records: int
    lines: int
    bytes: int
    kept: Mapping[str, int]
    problems: tuple[str, ...]


def archive_ledger(ledger: Ledger, archive: ArchiveFolder, until: str, by: str, check: bool = False, step: Step = no_step) -> ArchiveOutcome:
    """Move what was closed before that time to the archive.

    :arg until: in the form of records.
    :arg by: who does it, as records name it.
    :arg check: change nothing, and return the expected result.
    :arg step: called after each step with its name; for tests.

    Raises L(InvalidArgument) if there is something else at the archive, L(InvalidState) if the archive is missing or of an old backup, and L(InvalidState) or
    L(NotSupported) while documents of hosts or open records cannot be read, because they may need what would be archived.
    """
    check_noted(ledger, archive.name, archive.read_identity(ledger.identity))
    if check:
        return _Run(ledger, None, until, step).archive()
    with ledger.hold_lock(COPY_LOCK, COPY_LOCK_SECONDS):
        # Another run may have had the lock until now.
        check_noted(ledger, archive.name, archive.read_identity(ledger.identity))
        target = _Target(ledger, archive, until, by, step)
        done = _Run(ledger, target, until, step).archive()
        target.finish_run()
        return done


class _Target:
    """The archive to which a run moves something. It is begun when there is something to move: a run without that changes nothing."""

    def __init__(self, ledger: Ledger, archive: ArchiveFolder, until: str, by: str, step: Step) -> None:
        self._ledger = ledger
        self._archive = archive
        self._until = until
        self._by = by
        self._step = step
        self._is_open = False

    def open_archive(self) -> ArchiveFolder:
        """Return the archive, which the ledger has a note on."""
        if not self._is_open:
            identity = self._archive.open_archive(self._ledger.identity, self._ledger.name, self._until, self._by)
            self._step("opened")
            note_archive(self._ledger, self._archive.name, identity, self._by)
            self._step("noted")
            self._is_open = True
        return self._archive

    def finish_run(self) -> None:
        """Note how far the archive is."""
        if self._is_open:
            note_archive(self._ledger, self._archive.name, self._archive.finish_run(), self._by)


def find_newest(records: Iterable[ClosedRecord]) -> frozenset[str]:
    """Return the IDs of the newest record of each domain, and of the newest one by which it arrived somewhere.

    If the document of the domain is damaged, its generation and its location are found by them.
    """
    newest: dict[tuple[str, bool], ClosedRecord] = {}
    for record in records:
        for key in ((record.domain, False), (record.domain, record.status == s.COMPLETED)):
            before = newest.get(key)
            if before is None or (record.generation, record.updated_at) >= (before.generation, before.updated_at):
                newest[key] = record
    return frozenset(record.id for record in newest.values())


def find_reason(record: ClosedRecord, needed: NeededRecords, newest: frozenset[str]) -> t.Optional[str]:
    """Return why the record stays; None if nothing needs it.

    Records of evacuations, of what they have superseded, and of cold migrations stay: quarantines and memories of hosts refer to them.
    """
    if record.type != s.LIVE_MIGRATION or record.is_superseded:
        return LEFTOVERS
    if record.id in newest or record.id in needed.last:
        return NEWEST
    if record.domain in needed.domains:
        return IN_PROGRESS
    return DISPLACED if needed.since is not None and record.updated_at >= needed.since else None


class _Run:
    """:arg target: None to change nothing."""

    def __init__(self, ledger: Ledger, target: t.Optional[_Target], until: str, step: Step) -> None:
        self._ledger = ledger
        self._target = target
        self._until = until
        self._step = step
        self._records = self._bytes = 0
        self._kept = dict.fromkeys(REASONS, 0)
        self._problems: list[str] = []

    def archive(self) -> ArchiveOutcome:
        """Archive the records, then the lines."""
        needed = _find_needed(self._ledger)
        with self._ledger.open_contents() as contents:
            newest = find_newest(summary for _entry, summary in self._read_old(contents))
            self._move_records(contents, needed, newest)
        lines = sum(self._move_lines(chain) for chain in self._ledger.chains)
        return ArchiveOutcome(self._records, lines, self._bytes, self._kept, tuple(self._problems))

    def _read_old(self, contents: LedgerContents) -> Iterator[tuple[RawDocument, ClosedRecord]]:
        """Yield the records that were closed before the time, one by one. One that cannot be read stays, and C(verify) reports it."""
        for folder in self._list_months(contents):
            for entry in contents.read_documents(folder):
                record = entry.record
                if record is not None and record.updated_at < self._until:
                    yield entry, _summarize(record)

    def _list_months(self, contents: LedgerContents) -> list[DocumentPath]:
        months = {path[len(CLOSED) : -1] for path in contents.list_paths(CLOSED)}
        return [(*CLOSED, *month) for month in sorted(months) if "-".join(month) <= self._until[:7]]

    def _move_records(self, contents: LedgerContents, needed: NeededRecords, newest: frozenset[str]) -> None:
        found: list[RawDocument] = []
        for entry, summary in self._read_old(contents):
            reason = find_reason(summary, needed, newest)
            if reason is None:
                found.append(entry)
            else:
                self._kept[reason] += 1
            if len(found) >= _AT_ONCE:
                self._move_batch(found)
                found = []
        self._move_batch(found)

    def _move_batch(self, entries: Sequence[RawDocument]) -> None:
        self._records += len(entries)
        self._bytes += sum(len(entry.data) for entry in entries)
        if self._target is None or not entries:
            return
        self._target.open_archive().add_documents(entries)
        self._step("records written")
        for batch in split_batches(entries, lambda entry: len(entry.data)):
            self._ledger.remove_closed(batch)
            self._step("records removed")

    def _move_lines(self, chain: str) -> int:
        """Return the number of lines that were archived. Lines after one that was changed stay."""
        moved, after = 0, None
        while True:
            part, problem = self._ledger.read_part(chain, self._until, after)
            if part:
                moved += len(part.lines)
                self._bytes += sum(map(len, part.lines))
                self._move_part(part)
            if problem:
                self._problems.append(f"Audit chain {chain}: {problem}")
            if not part or problem:
                return moved
            after = part if self._target is None else None

    def _move_part(self, part: ChainPart) -> None:
        if self._target is not None:
            self._target.open_archive().add_chain(part.as_archived(self._ledger.identity.home), part.lines)
            self._step("lines written")
            self._ledger.remove_part(part)
            self._step("lines removed")


def _summarize(record: MoveRecord) -> ClosedRecord:
    return ClosedRecord(
        record.record_id.lower(),
        record.domain.uuid.lower(),
        record.type,
        record.status,
        record.generation,
        record.updated_at,
        bool(record.superseded_by),
    )


def _find_needed(ledger: Ledger) -> NeededRecords:
    hosts, newer = ledger.read_hosts(), ledger.list_newer_records()
    if hosts.unreadable:
        raise InvalidState(
            f"{' '.join(one.problem for one in hosts.unreadable)} Records that such a host still needs cannot be told from the others. Nothing was archived.",
            "Restore its document, or state the state of the host (docs/ledger.md, A damaged document of a host).",
        )
    if newer:
        raise NotSupported(f"A later version wrote the open record {newer[0]}. Nothing was archived.", "Update the collection on this control node.")
    if damaged := ledger.list_damaged_records():
        raise InvalidState(
            f"The record {damaged[0]} was damaged and set aside, and may have been open: what its domain needs is not known. Nothing was archived.",
            f"Restore it from a backup, or find out where its domain is. Then remove migrations-{damaged[0]}-* from set_aside in the ledger.",
        )
    last = frozenset(str(document.domain.last_record).lower() for document in ledger.list_domains())
    domains = frozenset(record.domain.uuid.lower() for record in ledger.list_records(statuses=sorted(s.UNSETTLED | s.TOMBSTONE)))
    return NeededRecords(last, domains, displacing_since(document.host for document in hosts.documents))
