# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""From a change of a record to the events that a receiver hears of: CloudEvents 1.0, with ids that are the same whoever tells of the change."""

from __future__ import annotations

import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import is_aborting

from .._ledger.store import Body

PREFIX = "io.github.kvmfleet.migration"
_IN_FLIGHT = (s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY)
_MOST_CHARACTERS = 1000


def events_of(before: t.Optional[Body], after: Body, ledger_id: str) -> list[Body]:
    """Return an event for each line of history that C(before) (None: the record is new) does not have and that a receiver is told of."""
    known = {(line["at"], line["status"]) for line in before["history"]} if before else set()
    history = after["history"]
    fresh = [number for number, line in enumerate(history) if (line["at"], line["status"]) not in known]
    return [event_of(after, kind, history[number], ledger_id) for number in fresh for kind in _kinds(after, number)]


def event_of(record: Body, kind: str, line: t.Mapping[str, t.Any], ledger_id: str) -> Body:
    """Return the event of that kind, e.g. C(move.started).

    :arg line: of the record's history; one that is no status of a record says what happens to it in its present one.
    """
    is_last_word = line["status"] == record["status"] and line["status"] in s.FINAL | s.TOMBSTONE
    return {
        "specversion": "1.0",
        "id": str(uuid.uuid5(uuid.UUID(record["id"]), f"{kind} {line['at']}")),
        "source": f"urn:uuid:{ledger_id}",
        "type": f"{PREFIX}.{kind}",
        "subject": record["domain"]["uuid"],
        "time": line["at"],
        "datacontenttype": "application/json",
        "data": {
            "record": record["id"],
            "record_type": record["type"],
            "generation": record["generation"],
            "status": line["status"],
            "reason": record["reason"] if is_last_word else None,
            "forced": record["forced"],
            "domain": {"uuid": record["domain"]["uuid"], "name": record["domain"].get("name")},
            "source": _place(record["source"]),
            "destination": _place(record["destination"]),
            "by": line.get("by"),
            "detail": str(line.get("detail") or "")[:_MOST_CHARACTERS],
            "result": dict(record["result"]) if is_last_word and record["type"] == s.LIVE_MIGRATION else None,
        },
    }


def has_happened(event: t.Mapping[str, t.Any], record: Body) -> bool:
    """Whether the record's history has the line that the event was made from."""
    return any((line["at"], line["status"]) == (event["time"], event["data"]["status"]) for line in record["history"])


def _place(end: Body) -> Body:
    return {"host": end["host"], "host_id": end["host_id"]}


def _kinds(record: Body, number: int) -> list[str]:
    earlier, status = record["history"][:number], record["history"][number]["status"]
    words = [line["status"] for line in earlier]
    return _of_move(status, words, is_aborting(earlier)) if record["type"] == s.LIVE_MIGRATION else _of_evacuation(status, words)


def _of_move(status: str, earlier: list[str], aborting: bool) -> list[str]:
    if status in _IN_FLIGHT:
        return [] if set(_IN_FLIGHT) & set(earlier) else ["move.started"]
    if status == s.ABORT_START:
        return [] if aborting else ["abort.started"]
    if status not in s.FINAL:
        return []
    aborted = ["abort.completed" if status == s.CANCELLED else "abort.failed"] if aborting else []
    return [*aborted, f"move.{status}"]


def _of_evacuation(status: str, earlier: list[str]) -> list[str]:
    if status == s.PRE_MIGRATING:
        return [] if status in earlier else ["evacuation.started"]
    if status == s.DONE:
        return ["evacuation.completed"]
    if status == s.COMPLETED:
        return ["cleanup.completed" if s.DONE in earlier else "evacuation.completed"]
    return [f"evacuation.{status}"] if status in s.FINAL else []
