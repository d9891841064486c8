# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The notices of records, and of acts of others: which events a change of a record has, and whether an event is true by the record or the domain."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import HistoryLine, Result
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, is_aborting
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef

from .._ledger.documents import DomainEntry
from .cloud_events import MAX_DETAIL_CHARACTERS, CloudEvent, data_of_event, encode_event, kind_of_event

_DOMAIN_KIND = "domain"
_IN_FLIGHT = (s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY)


@dataclass(frozen=True)
class NoticeHost:
    """The source or the destination of a record.

    :arg host: its inventory name; null if it is not known.
    :arg host_id: the collection's own ID of the host; null if it is not known.
    """

    host: t.Optional[str]
    host_id: t.Optional[str]


@dataclass(frozen=True)
class NoticeData:
    """What happened to a record, or to a domain by an act of others, which has no record.

    :arg record: its ID in the ledger; null for an act of others.
    :arg record_type: C(live-migration), C(cold-migration) or C(evacuation); null for an act of others.
    :arg generation: of the record.
    :arg status: of the record with this event, or the word of its line of history; for an act of others, the state of the domain that was found.
    :arg reason: of the status; null while the record is not closed.
    :arg forced: C(FORCED_MIGRATE) or C(FORCED_REBUILD); null if nothing was forced.
    :arg by: who wrote the line of history: user, control node and process.
    :arg detail: the text of the line of history, at most 1000 characters.
    :arg result: the figures of a move that has ended; null before its end, and for an evacuation.
    """

    record: t.Optional[str]
    record_type: t.Optional[str]
    generation: int
    status: str
    reason: t.Optional[str]
    forced: t.Optional[str]
    domain: DomainRef
    source: NoticeHost
    destination: NoticeHost
    by: t.Optional[str]
    detail: str
    result: t.Optional[Result]


@dataclass(frozen=True)
class Notice(CloudEvent):
    """A notice: an event of CloudEvents 1.0."""

    data: NoticeData


def events_of_change(before: t.Optional[MoveRecord], after: MoveRecord, ledger_id: str) -> list[JsonObject]:
    """Return an event for each line of history that C(before) (None: the record is new) does not have and that is sent to receivers."""
    known = {(line.at, line.status) for line in before.history} if before else set()
    fresh = [number for number, line in enumerate(after.history) if (line.at, line.status) not in known]
    return [make_event(after, kind, after.history[number], ledger_id) for number in fresh for kind in _event_kinds(after, number)]


def make_event(record: MoveRecord, kind: str, line: HistoryLine, ledger_id: str) -> JsonObject:
    """Return the event of that kind, e.g. C(move.started).

    :arg line: of the record's history; a line without a status describes an event in the current status.
    """
    is_last_word = line.status == record.status and line.status in s.FINAL | s.TOMBSTONE
    data = NoticeData(
        record=record.id,
        record_type=record.type,
        generation=record.generation,
        status=line.status,
        reason=record.reason if is_last_word else None,
        forced=record.forced,
        domain=DomainRef(record.domain.uuid, record.domain.name),
        source=NoticeHost(record.source.host, record.source.host_id),
        destination=NoticeHost(record.destination.host, record.destination.host_id),
        by=line.writer,
        detail=(line.detail or "")[:MAX_DETAIL_CHARACTERS],
        result=record.result if is_last_word and record.type in s.MOVE_TYPES else None,
    )
    return encode_event(Notice, data, kind, record.domain.uuid, line.at, ledger_id, key=record.record_id)


def make_domain_event(domain: DomainEntry, act: ForeignAct, ledger_id: str) -> JsonObject:
    """Return the event of an act without a record, e.g. C(domain.moved). Its keys are those of the other events."""
    kind, before = f"{_DOMAIN_KIND}.{act.act}", act.source or act.host
    data = NoticeData(
        record=None,
        record_type=None,
        generation=act.generation,
        status=act.state or "",
        reason=act.reason or None,
        forced=None,
        domain=DomainRef(domain.uuid, domain.name),
        source=NoticeHost(before.host, before.host_id),
        destination=NoticeHost(act.host.host, act.host.host_id),
        by=act.by,
        detail=f"It {act.description}."[:MAX_DETAIL_CHARACTERS],
        result=None,
    )
    return encode_event(Notice, data, kind, domain.uuid, act.at, ledger_id)


def has_happened(event: JsonObject, record: MoveRecord) -> bool:
    """Whether the record's history has the line that the event was made from."""
    return any((line.at, line.status) == (event["time"], data_of_event(event)["status"]) for line in record.history)


def has_act(event: JsonObject, domain: DomainEntry) -> bool:
    """Whether the document of the domain has the act that the event was made from."""
    acts = domain.foreign_acts or ()
    return any((act.at, f"{_DOMAIN_KIND}.{act.act}") == (event["time"], kind_of_event(event)) for act in acts)


def _event_kinds(record: MoveRecord, number: int) -> list[str]:
    earlier, status = record.history[:number], record.history[number].status
    words = [line.status for line in earlier]
    return _move_kinds(status, words, is_aborting(earlier)) if record.type in s.MOVE_TYPES else _evacuation_kinds(status, words)


def _move_kinds(status: str, earlier: list[str], aborting: bool) -> list[str]:
    if status in _IN_FLIGHT:
        return [] if set(_IN_FLIGHT) & set(earlier) else ["move.started"]
    if status == s.ABORT_START:
        return [] if aborting else [s.ABORT_START]
    if status not in s.FINAL:
        return []
    return [*([s.ABORT_END] if aborting else []), f"move.{status}"]


def _evacuation_kinds(status: str, earlier: list[str]) -> list[str]:
    if status == s.PRE_MIGRATING:
        return [] if status in earlier else ["evacuation.started"]
    if status == s.DONE:
        return ["evacuation.completed"]
    if status == s.COMPLETED:
        return ["cleanup.completed" if s.DONE in earlier else "evacuation.completed"]
    return [f"evacuation.{status}"] if status in s.FINAL else []
