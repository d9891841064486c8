# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a host remembers of moves: the last one of each domain that was begun on it, until its next boot, and evacuations to it, for good."""

from __future__ import annotations

import typing as t

from .._errors import Internal, InvalidArgument
from .._evacuation.notes import FOLDER as NOTES_FOLDER
from .._records import schema
from .._watcher.files import RUN_FOLDER, record_in
from .._watcher.ownership import is_locked
from .._watcher.process import is_alive
from .migrations import canonical_uuid, read_files

_TOLD = ("id", "generation", "type", "status", "updated_at", "domain", "source", "destination")


def remembered(folder: str = RUN_FOLDER, notes_folder: str = NOTES_FOLDER) -> t.Optional[t.List[schema.Record]]:
    """Return of each move and evacuation what a ledger can be compared with, its C(ledger_id) with it; null where this user may not read that."""
    moves, notes = _records(folder), _records(notes_folder)
    if moves is None or notes is None:
        return None
    return [{**{key: one[key] for key in _TOLD}, "ledger_id": one.get("ledger_id")} for one in [*moves, *notes]]


def recalled(record_id: str, folder: str = RUN_FOLDER, notes_folder: str = NOTES_FOLDER) -> t.Optional[t.Dict[str, t.Any]]:
    """Return C(record), whole, and C(watched), whether a process here still acts for it; null where this host remembers no such record."""
    for one in _records(folder) or ():
        if one["id"] == record_id:
            return {"record": record_in(one), "watched": is_alive(one.get("watcher"))}
    for one in _records(notes_folder) or ():
        if one["id"] == record_id:
            return {"record": one, "watched": is_locked(one["domain"]["uuid"], folder)}
    return None


def _records(folder: str) -> t.Optional[t.List[schema.Record]]:
    found = read_files(folder)
    return None if found is None else [record for uuid, record in sorted(found.items()) if _is_of(record, uuid)]


def _is_of(record: t.Any, uuid: str) -> bool:
    try:
        schema.check_record(record)
        return canonical_uuid(record["id"]) == record["id"] and canonical_uuid(uuid) == record["domain"]["uuid"] == uuid
    except (Internal, InvalidArgument):
        return False
