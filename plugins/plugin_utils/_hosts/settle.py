# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Records that a person settles, where no host can be asked any more or none could prove anything."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.transitions import may_follow

from .._evacuation.cleanup_tombstones import ending, is_done_from, is_given_up
from .._ledger.rules import describe
from .._ledger.store import Body, Ledger, Stored

REASON_SOURCE_DISCARDED = "source_discarded"


def settled(stored: Stored, status: str, said: str, by: str) -> Body | None:
    """Return the record with the status that a person gives it, None where it has that already.

    Raises L(InvalidState) for a record that can still be settled by asking, or is closed; L(InvalidArgument) for a status that it cannot get.
    """
    record = stored.record
    if record["status"] == status and status != s.ERROR:
        return None
    is_discarded = record["status"] == s.DONE and status == s.COMPLETED
    if not (record["status"] == s.ERROR or is_discarded or (_is_given_up(record) and status == s.FAILED)):
        raise InvalidState(
            f"{_titled(record)} has the status '{record['status']}': a person settles one that is 'error', one that was given up for a newer one "
            "(as 'failed'), or one that is 'done' and whose source will not return (as 'completed').",
            "Nothing was changed.",
        )
    if not may_follow(record["type"], record["status"], status):
        raise InvalidArgument(f"{_titled(record)} cannot become '{status}' from '{record['status']}'.", "Nothing was changed.")
    reason = REASON_SOURCE_DISCARDED if is_discarded else s.REASON_OPERATOR if status == s.CANCELLED else None
    return _written(record, status, said, by, reason)


def discarded(ledger: Ledger, host_id: str | None, said: str, by: str) -> Iterator[tuple[Stored, Body]]:
    """Yield the records that a host which will not return withholds, as they were read and as they are to be."""
    for record in ledger.records(types=[s.EVACUATION], statuses=[s.DONE, s.PRE_MIGRATING, s.ERROR]):
        if host_id and (is_done_from(record, host_id) or is_given_up(record, host_id)):
            stored = ledger.get(record["id"])
            yield stored, _written(stored.record, ending(stored.record), said, by, REASON_SOURCE_DISCARDED)


def _is_given_up(record: Body) -> bool:
    return bool(record["status"] == s.PRE_MIGRATING and record["superseded_by"])


def _written(record: Body, status: str, said: str, by: str, reason: str | None) -> Body:
    after = schema.copied(record)
    schema.advance(after, status, by, f"Settled by a person: {said}", reason)
    return after


def _titled(record: Body) -> str:
    what = describe(record)
    return f"{what[0].upper()}{what[1:]}"
