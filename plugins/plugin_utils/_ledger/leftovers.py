# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The records that may have left a copy of a domain on a host: which they are, and what becomes of them when the host was cleaned up or will not return."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .ledger import Ledger
from .rules import holds_domain


def list_leftovers(ledger: Ledger, host_id: str | None) -> list[MoveRecord]:
    """Return the records that may have left a copy on this host, by its own ID alone: a record or a host without an ID matches nothing."""
    records = ledger.list_records(statuses=sorted(s.UNSETTLED | s.TOMBSTONE)) if host_id else ()
    return [record for record in records if host_id and is_left_on(record, host_id)]


def list_begun(ledger: Ledger, host_id: str | None) -> list[MoveRecord]:
    """Return the evacuations from this host whose results are not known, by its own ID alone, as L(list_leftovers)."""
    records = ledger.list_records(types=[s.EVACUATION], unsettled_only=True) if host_id else ()
    return [record for record in records if record.source.host_id == host_id and holds_domain(record)]


def is_left_on(record: MoveRecord, host_id: str) -> bool:
    """Whether the record may have left a copy on this host."""
    return is_done_from(record, host_id) or is_given_up_on(record, host_id)


def is_done_from(record: MoveRecord, host_id: str) -> bool:
    """Whether the record is C(done), and this host is its source."""
    return record.status == s.DONE and record.source.host_id == host_id


def is_given_up_on(record: MoveRecord, host_id: str) -> bool:
    """Whether a newer record has taken over from this one, which may have left a copy on this host."""
    return is_superseded(record) and any(host.host_id == host_id for host in list_uncleaned_hosts(record))


def is_superseded(record: MoveRecord) -> bool:
    """Whether a newer record has taken over from this one, which is not closed yet."""
    return record.is_unsettled and bool(record.superseded_by)


def list_uncleaned_hosts(record: MoveRecord) -> list[HostRef]:
    """Return the ends of a superseded record, whose result is not known, that may have a copy which nobody has cleaned up yet."""
    return [host for host, event in _list_events_of_cleanup(record) if host.is_known and not record.has_status(event)]


def _list_events_of_cleanup(record: MoveRecord) -> list[tuple[HostRef, str]]:
    """Return each host that needs a cleanup, with the event that ends this."""
    return [(record.source, s.SOURCE_CLEANED), (record.destination, s.DESTINATION_CLEANED)]


def without_host(record: MoveRecord, host_id: str, by: str, detail: str, reason: str | None = None) -> MoveRecord:
    """Return the record after this host was cleaned up, or will not return. It is closed unless it may have left a copy on another host, too."""
    if is_superseded(record):
        for event in [event for host, event in _list_events_of_cleanup(record) if host.host_id == host_id and not record.has_status(event)]:
            record = record.note(event, by, detail)
        if list_uncleaned_hosts(record):
            return record
    return record.advance(closing_status(record), by, detail, reason)


def closing_status(record: MoveRecord) -> str:
    """Return the status of the record after its hosts were cleaned up."""
    return s.COMPLETED if record.status == s.DONE else s.FAILED
