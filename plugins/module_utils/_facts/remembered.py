# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a host remembers of the moves that were begun on it: the last one of each domain, until its next boot."""

from __future__ import annotations

import typing as t

from .._errors import Internal, InvalidArgument
from .._records import schema
from .._watcher.files import RUN_FOLDER, record_in
from .._watcher.process import is_alive
from .migrations import canonical_uuid, read_files

_TOLD = ("id", "generation", "type", "status", "updated_at", "domain", "source", "destination")


def remembered(folder: str = RUN_FOLDER) -> t.Optional[t.List[schema.Record]]:
    """Return of each move what a ledger can be compared with, its C(ledger_id) with it; null where this user may not read the state files."""
    states = _states(folder)
    if states is None:
        return None
    return [{**{key: state[key] for key in _TOLD}, "ledger_id": state.get("ledger_id")} for state in states]


def recalled(record_id: str, folder: str = RUN_FOLDER) -> t.Optional[t.Dict[str, t.Any]]:
    """Return C(record), whole, and C(watched), whether its watcher still lives; null where this host remembers no such record."""
    state = next((state for state in _states(folder) or () if state["id"] == record_id), None)
    return None if state is None else {"record": record_in(state), "watched": is_alive(state.get("watcher"))}


def _states(folder: str) -> t.Optional[t.List[schema.Record]]:
    found = read_files(folder)
    return None if found is None else [state for uuid, state in sorted(found.items()) if _is_of(state, uuid)]


def _is_of(state: t.Any, uuid: str) -> bool:
    try:
        record = schema.check_record(state)
        return canonical_uuid(record["id"]) == record["id"] and canonical_uuid(uuid) == record["domain"]["uuid"] == uuid
    except (Internal, InvalidArgument):
        return False
