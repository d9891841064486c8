# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""File ledgers with a long past, made quickly: closed records are written as the ledger writes them, but for the fsync."""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib
import time
import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import DEFAULTS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Sample
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import domain_index
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.folder import Folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.index import entries_path
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import closed_record_path
from ansible_collections.kvmfleet.migration.tests.simulator import facts

WAY = (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED)
HOSTS = 40
DOMAINS = 800
SAMPLES = 10
BY = "root@control pid 4711"


class Filled:
    """A ledger with its past.

    :arg closed: how many records, ten months of them, each as many as the others.
    :arg unsettled: how many.
    """

    months = 10

    def __init__(self, path: pathlib.Path, closed: int, unsettled: int) -> None:
        self.path = path
        self.closed = closed
        self.in_month = closed // self.months
        self.domain = "guest7"
        self.record_bytes = 0
        self._ledger = FileLedger(str(path))
        self._now = datetime.datetime.now(datetime.UTC)
        self._index: dict[str, list[str]] = {}
        for ago in range(self.months):
            self._fill_month(ago)
        self._write_index()
        for number in range(unsettled):
            self._ledger.open_record(_record(number))

    @property
    def moves_of_domain(self) -> int:
        """How many closed records the domain has."""
        return len(self._index[domain_index.index_key(self.domain)])

    def month(self, ago: int) -> tuple[str, str]:
        """Return the first moment of the month so many months ago, and that of the next one."""
        return self._first(ago).isoformat(), self._first(ago - 1).isoformat()

    def last_minutes(self, minutes: int) -> str:
        """Return the time so many minutes before the ledger was made."""
        return (self._now - datetime.timedelta(minutes=minutes)).isoformat()

    def unsettled(self) -> list[MoveRecord]:
        """Ask as a task does that opens a ledger and wants to know what is going on."""
        return list(FileLedger(str(self.path), create=False).list_records(unsettled_only=True))

    def seconds_of_a_transition(self) -> float:
        """Take a move from its opening to its end; return the mean of the six writes."""
        record = dataclasses.replace(_record(0), domain=DomainRef(str(uuid.uuid4()), "moved"))
        begin = time.monotonic()
        stored = self._ledger.open_record(record)
        seconds = time.monotonic() - begin
        for status in WAY:
            changed = stored.record.advance(status, BY)
            begin = time.monotonic()
            stored = self._ledger.update_record(stored, changed)
            seconds += time.monotonic() - begin
        return seconds / (1 + len(WAY))

    def seconds_of(self, conditions: t.Mapping[str, t.Any]) -> float:
        """Return how long a query takes whose records are looked at one after the other."""
        begin = time.monotonic()
        for _record in self._ledger.list_records(**conditions):
            pass
        return time.monotonic() - begin

    def replace_durably(self) -> None:
        """Replace a file of a record's size, with no ledger around it."""
        with Folder.open_path(str(self.path.parent)) as folder:
            folder.write_file("bare.json", b"x" * self.record_bytes)

    def _first(self, ago: int) -> datetime.datetime:
        months = self._now.year * 12 + self._now.month - 1 - ago
        return datetime.datetime(months // 12, months % 12 + 1, 1, tzinfo=datetime.UTC)

    def _fill_month(self, ago: int) -> None:
        begin, end = self._first(ago), min(self._first(ago - 1), self._now)
        folder = self.path / "migrations" / "closed" / f"{begin:%Y}" / f"{begin:%m}"
        folder.mkdir(parents=True)
        for number in range(self.in_month):
            at = begin + (end - begin) * number / self.in_month
            record = _ended(number, at)
            data = encode_document(record, 1 + len(WAY))
            self.record_bytes = len(data)
            file = folder / f"{record.id}.json"
            file.write_bytes(data)
            os.utime(file, (at.timestamp(), at.timestamp()))
            for key in domain_index.index_keys(record):
                self._index.setdefault(key, []).append(f"{domain_index.make_entry(closed_record_path(record))}\n")

    def _write_index(self) -> None:
        for key, lines in self._index.items():
            file = self.path.joinpath(*entries_path(key))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(lines), encoding="ascii")
        (self.path / domain_index.FOLDER / domain_index.BEGIN).write_text(domain_index.FROM_THE_FIRST, encoding="ascii")


def _record(number: int) -> MoveRecord:
    name, source, destination = f"guest{number % DOMAINS}", f"kvm{number % HOSTS}", f"kvm{(number + 1) % HOSTS}"
    policy = {key: {"source": "default", "value": value} for key, value in DEFAULTS.items()}
    return new_record(s.LIVE_MIGRATION, DomainRef(facts.uuid_of(name), name), _place(source), _place(destination), policy, BY, facts.request())


def _place(host: str) -> HostRef:
    return HostRef(host, facts.uuid_of(f"{host}.id"), facts.uuid_of(host))


def _ended(number: int, at: datetime.datetime) -> MoveRecord:
    """Return the record of a move as it is kept, with the figures of a few seconds."""
    record = _record(number)
    for status in WAY:
        record = record.advance(status, BY, "The destination was verified and booked." if status == s.SCHEDULED else "")
    samples = [Sample(1000 * tick, 1073741824 - 100000000 * tick, 117440512, 8388608, 300, 0, 2) for tick in range(SAMPLES)]
    result = dataclasses.replace(record.result, elapsed_ms=9730, downtime_ms=61, bytes=1098907648, iterations=3, mode="pre-copy", setup_ms=4)
    stamp = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
    return dataclasses.replace(record, samples=tuple(samples), result=result, created_at=stamp, updated_at=stamp)
