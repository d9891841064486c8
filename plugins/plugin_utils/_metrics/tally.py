# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Counting each ended record once: what was counted is kept on the control node, so that only new records are read and no counter ever falls."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
from collections.abc import Iterator
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.file.folder import Folder
from .._ledger.file.locks import flocked
from .._ledger.keys import is_uuid
from .._ledger.store import Body, Ledger
from .totals import Totals, is_countable

_SCHEMA = 1
_LOCK_SECONDS = 60.0
# From so many on it is faster to read all closed records in their order than these one by one.
_MANY = 200


@dataclass
class Tally:
    """:arg counted: the ids of the records in C(totals)."""

    totals: Totals = field(default_factory=Totals)
    counted: set[str] = field(default_factory=set)

    def catch_up(self, ledger: Ledger, open_records: t.Iterable[Body]) -> None:
        """Count what has ended since: closed records, and evacuations that are C(done)."""
        for record in (*_closed_since(ledger, self.counted), *open_records):
            if is_countable(record) and record["id"] not in self.counted:
                self.totals.add(record)
                self.counted.add(record["id"])

    @classmethod
    def read(cls, data: bytes, ledger_id: str) -> Tally:
        """Return what was saved for that ledger; an empty one where it was for another, by another version, or damaged."""
        try:
            saved = json.loads(data)
            if saved["schema"] == _SCHEMA and saved["ledger_id"] == ledger_id and all(map(is_uuid, saved["counted"])):
                return cls(Totals.read(saved["totals"]), set(saved["counted"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        return cls()

    def text(self, ledger_id: str) -> bytes:
        """Return what L(read) reads."""
        saved = {"schema": _SCHEMA, "ledger_id": ledger_id, "totals": self.totals.as_dict(), "counted": sorted(self.counted)}
        return json.dumps(saved, separators=(",", ":")).encode("ascii")


def counted(ledger: Ledger, open_records: list[Body], folder: str) -> Totals:
    """Return the totals of the ledger as it is now, and keep them in the folder; where they cannot be kept, C(ledger.problems) says so."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with Folder.at(folder) as root, flocked(root, f"{ledger.ledger_id}.lock", True, _LOCK_SECONDS):
            return _kept(ledger, open_records, root)
    except OSError as error:
        ledger.report(f"What was counted cannot be kept in {folder}: {error.strerror or error}. All records were read, and will be again.")
        return predicted(ledger, open_records, None)


def predicted(ledger: Ledger, open_records: list[Body], folder: str | None) -> Totals:
    """Return what L(counted) would, and keep nothing.

    :arg folder: None counts all records.
    """
    tally = Tally()
    if folder is not None:
        with contextlib.suppress(OSError), Folder.at(folder) as root:
            tally = _saved(ledger, root)
    tally.catch_up(ledger, open_records)
    return tally.totals


def _kept(ledger: Ledger, open_records: list[Body], root: Folder) -> Totals:
    tally = _saved(ledger, root)
    before = len(tally.counted)
    tally.catch_up(ledger, open_records)
    if len(tally.counted) != before:
        root.write(_name(ledger), tally.text(ledger.ledger_id))
    return tally.totals


def _saved(ledger: Ledger, root: Folder) -> Tally:
    try:
        return Tally.read(root.read(_name(ledger)), ledger.ledger_id)
    except FileNotFoundError:
        return Tally()


def _name(ledger: Ledger) -> str:
    return f"{ledger.ledger_id}.json"


def _closed_since(ledger: Ledger, known: set[str]) -> Iterator[Body]:
    """Yield the closed records that are not known; one that cannot be read is left to the next time."""
    fresh = ledger.closed_ids() - known
    if len(fresh) >= _MANY:
        yield from (record for record in ledger.records(statuses=sorted(s.CLOSED)) if record["id"].lower() in fresh)
        return
    for record_id in sorted(fresh):
        with contextlib.suppress(NotFound, NotSupported):
            yield ledger.get(record_id).record
