# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a returned host has in quarantine and may delete, by the ledger's records and the control node's clock alone.

The clock of the returned host may have been stepped since it put a file aside: it is not asked. The record of a cleanup is closed by the control node after
the host has put all aside, so the retention counts from that. Where the control node's own clock was behind when it closed the record, an earlier line of the
record can be the later time: the latest of all counts, and nothing is deleted early.
"""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.store import Body, Ledger


def judge_retention(
    quarantined: Sequence[Body], ledger: Ledger, host_id: str, days: int, now: t.Optional[datetime.datetime] = None
) -> tuple[list[str], list[Body]]:
    """Return the IDs of the records whose retention is over, and what is kept because that cannot be told, each with C(reason).

    :arg quarantined: C(record), C(uuid), C(name), C(paths), as the host has them.
    :arg host_id: of that host.
    :arg now: by the clock of this control node.
    """
    at = now or datetime.datetime.now(datetime.UTC)
    due: list[str] = []
    kept: list[Body] = []
    for entry in quarantined:
        record = _record_of(entry["record"], ledger)
        reason = _why_unknown(record, entry["record"], host_id, at)
        if reason:
            kept.append({**entry, "reason": reason})
        elif record is not None and record["status"] in s.CLOSED and at - max(_times(record)) >= datetime.timedelta(days=days):
            due.append(entry["record"])
    return due, kept


def _record_of(record_id: str, ledger: Ledger) -> t.Optional[Body]:
    try:
        return ledger.get(record_id).record
    except NotFound:
        return None


def _why_unknown(record: t.Optional[Body], record_id: str, host_id: str, now: datetime.datetime) -> str:
    """Say why the record does not tell how long ago its cleanup ended; empty where it does, and where the cleanup goes on."""
    if record is None:
        return f"the ledger has no record {record_id}, so its age is not known: delete it by hand when nobody needs it"
    if record["type"] != s.EVACUATION or host_id not in (record["source"]["host_id"], record["destination"]["host_id"]):
        return f"the record {record_id} is not of an evacuation of this host"
    latest = max(_times(record), default=None)
    if latest is None:
        return f"the record {record_id} has no time that can be read"
    if latest > now:
        return f"the clock of the control node says {_told(now)}, which is before the last line of the record {record_id} ({_told(latest)}): set the clock"
    return ""


def _times(record: Body) -> Iterator[datetime.datetime]:
    for text in (record["created_at"], record["updated_at"], *(line["at"] for line in record["history"])):
        try:
            at = datetime.datetime.fromisoformat(text)
        except ValueError:
            continue
        if at.tzinfo is not None:
            yield at


def _told(at: datetime.datetime) -> str:
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
