# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The notices of one task: events (CloudEvents 1.0) that notify a receiver of changes of records.

They are written to disk before the record, sent during the task, and left to the next task if the receiver does not answer.
"""

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ansible.errors import AnsibleError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, KvmfleetError, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import HistoryLine, Result
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, is_aborting
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef

from .._ledger.documents import DomainEntry, HostEntry
from .._ledger.ledger import Ledger, Witness
from .._ledger.locate import state_path
from .._settings.variables import Settings
from .host_notices import FENCING_KIND, HostNotice, HostNoticeData, is_in_entry, make_host_data
from .notice_delivery import Sender, Spool, SpooledNotice, count_spooled
from .run_notices import RunNotice, RunNoticeData, events_of_run, is_in_run
from .webhook import NOTICES_VARIABLE, Poster, WebhookConfig, parse_config

EVENT_TYPE_PREFIX = "io.github.kvmfleet.migration"
_DOMAIN_KIND = "domain"
_IN_FLIGHT = (s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY)
_MAX_DETAIL_CHARACTERS = 1000


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
class Notice:
    """A notice: an event of CloudEvents 1.0.

    :arg specversion: of CloudEvents.
    :arg id: of the event; a notice that is sent twice has the same.
    :arg source: the ID of the ledger, as C(urn:uuid:...).
    :arg type: C(io.github.kvmfleet.migration.) and the name of the event.
    :arg subject: the UUID of the domain.
    :arg time: when it happened.
    :arg datacontenttype: of C(data).
    """

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str
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
        detail=(line.detail or "")[:_MAX_DETAIL_CHARACTERS],
        result=record.result if is_last_word and record.type in s.MOVE_TYPES else None,
    )
    return _encode_notice(record.record_id, f"{kind} {line.at}", record.domain.uuid, kind, line.at, data, ledger_id)


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
        detail=f"It {act.description}."[:_MAX_DETAIL_CHARACTERS],
        result=None,
    )
    return _encode_notice(domain.uuid, f"{kind} {act.at}", domain.uuid, kind, act.at, data, ledger_id)


def make_run_events(before: t.Optional[MaintenanceRun], after: MaintenanceRun, ledger_id: str) -> list[JsonObject]:
    """Return the events of a change of a maintenance run, e.g. C(maintenance.started); C(before) is None for a new one."""
    return [_encode_notice(after.id, one.key, after.id, one.kind, one.at, one.data, ledger_id) for one in events_of_run(before, after)]


def make_host_events(after: HostEntry, detail: str, ledger_id: str) -> list[JsonObject]:
    """Return the event of a host that could not be fenced; none for any other host."""
    data, at = make_host_data(after, detail[:_MAX_DETAIL_CHARACTERS]), after.fencing and after.fencing.since
    key = after.host_id
    return [_encode_notice(key, f"{FENCING_KIND} {at}", key, FENCING_KIND, at, data, ledger_id)] if data and at and key else []


_AnyData = t.Union[NoticeData, RunNoticeData, HostNoticeData]


def _encode_notice(key: str, name: str, subject: str, kind: str, at: str, data: _AnyData, ledger_id: str) -> JsonObject:
    """Return the event as JSON.

    :arg key: the UUID of what it is about, from which its own ID is made, with C(name).
    """
    own_id, source, full_kind = str(uuid.uuid5(uuid.UUID(key), name)), f"urn:uuid:{ledger_id}", f"{EVENT_TYPE_PREFIX}.{kind}"
    if isinstance(data, RunNoticeData):
        return t.cast("JsonObject", encode(RunNotice("1.0", own_id, source, full_kind, subject, at, "application/json", data)))
    if isinstance(data, HostNoticeData):
        return t.cast("JsonObject", encode(HostNotice("1.0", own_id, source, full_kind, subject, at, "application/json", data)))
    return t.cast("JsonObject", encode(Notice("1.0", own_id, source, full_kind, subject, at, "application/json", data)))


def has_happened(event: JsonObject, record: MoveRecord) -> bool:
    """Whether the record's history has the line that the event was made from."""
    return any((line.at, line.status) == (event["time"], _data_of(event)["status"]) for line in record.history)


def _data_of(event: JsonObject) -> JsonObject:
    return t.cast("JsonObject", event["data"])


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


Reopen = Callable[[], Ledger]


class Notices(Witness):
    """Sends the changes of a ledger's records, and keeps the unsent ones.

    :arg reopen: opens the ledger a second time, for the thread.
    """

    def __init__(self, config: WebhookConfig, ledger_id: str, reopen: Reopen) -> None:
        self._config = config
        self._ledger_id = ledger_id
        self._reopen = reopen
        self._warnings: list[str] = []
        self._spool = self._open_spool(_spool_folder(config, ledger_id))
        self._sender = Sender(Poster(config).post_event, config.retries, self._drop_notice, self._left_notices)
        if self._spool and self._spool.names():
            self._sender.start()

    @contextlib.contextmanager
    def watch_change(self, before: MoveRecord | None, after: MoveRecord) -> Iterator[None]:
        """Keep the events of the change, and send them after it was made; those of a failed change are dropped."""
        with self._keep_events(events_of_change(before, after, self._ledger_id)):
            yield

    @contextlib.contextmanager
    def watch_foreign_act(self, domain: DomainEntry, act: ForeignAct) -> Iterator[None]:
        """Keep the event of the act, and send it after the act was written."""
        with self._keep_events([make_domain_event(domain, act, self._ledger_id)]):
            yield

    @contextlib.contextmanager
    def watch_run(self, before: MaintenanceRun | None, after: MaintenanceRun) -> Iterator[None]:
        """Keep the events of a change of a maintenance run, and send them after it was written."""
        with self._keep_events(make_run_events(before, after, self._ledger_id)):
            yield

    @contextlib.contextmanager
    def watch_host(self, after: HostEntry, detail: str) -> Iterator[None]:
        """Keep the event of the host, and send it after its document was written."""
        with self._keep_events(make_host_events(after, detail, self._ledger_id)):
            yield

    @contextlib.contextmanager
    def _keep_events(self, events: list[JsonObject]) -> Iterator[None]:
        kept = [self._spool_event(event, sure=False) for event in events]
        try:
            yield
        except Conflict:
            for one in kept:
                self._drop_notice(one)
            raise
        # After any other error the result is unknown: the next task checks the ledger.
        for one in kept:
            self._sender.add(one)

    def report_event(self, record: MoveRecord, event: str, by: str, detail: str = "") -> None:
        """Send an event that is not a line of the record's history."""
        line = HistoryLine(utc_now(), record.status, by, detail)
        self._sender.add(self._spool_event(make_event(record, event, line, self._ledger_id), sure=True))

    def finish(self) -> list[str]:
        """Stop sending after a bounded wait; return warnings about unsent notices."""
        unsent = self._sender.finish(self._config.wait_seconds)
        receiver, warnings = self._config.receiver, list(self._warnings)
        if unsent:
            kept = f"They are kept in {self._spool.path}, and the next task tries again" if self._spool else "They are lost: there is no folder to keep them"
            warnings.append(f"Notices that were not sent to {receiver}: {unsent} ({self._sender.failure or 'it has not answered yet'}). {kept}.")
        if self._sender.refused:
            warnings.append(f"Notices that {receiver} refused: {len(self._sender.refused)} ({self._sender.refused[-1]}). They are not sent again.")
        if self._spool:
            if self._spool.dropped:
                warnings.append(f"Notices for {receiver} that were too old, too many or damaged, and are dropped: {self._spool.dropped}.")
            self._spool.close()
        return warnings

    def _open_spool(self, folder: str) -> Spool | None:
        try:
            return Spool(folder)
        except OSError as error:
            self._warnings.append(f"Notices cannot be kept in {folder} ({error.strerror or error}): what is not sent within the task is lost.")
            return None

    def _spool_event(self, event: JsonObject, sure: bool) -> SpooledNotice:
        if self._spool:
            try:
                return self._spool.keep_event(event, sure)
            except OSError as error:
                self._warnings.append(f"A notice could not be kept in {self._spool.path} ({error.strerror or error}).")
        return SpooledNotice(event, None, sure)

    def _drop_notice(self, kept: SpooledNotice) -> None:
        if self._spool:
            with contextlib.suppress(OSError):
                self._spool.remove_notice(kept)

    def _left_notices(self) -> Iterator[SpooledNotice]:
        """Yield the notices that earlier tasks left, without those whose change is not in the ledger."""
        ledger: Ledger | None = None
        with contextlib.suppress(OSError, KvmfleetError):
            for kept in self._spool.left_notices() if self._spool else ():
                if not kept.sure:
                    ledger = ledger or self._reopen()
                    if not _is_confirmed(kept, ledger):
                        self._drop_notice(kept)
                        continue
                yield kept


def open_notices(settings: Settings, host: str, ledger: Ledger, reopen: Reopen) -> tuple[Notices | None, tuple[str, ...]]:
    """Return the notices of a task if the host's C(kvmfleet_notices) enables them; an invalid value is a warning, and does not end the task."""
    try:
        value = settings.of(host, NOTICES_VARIABLE)
        return (Notices(parse_config(value), ledger.ledger_id, reopen), ()) if value else (None, ())
    except InvalidArgument as error:
        return None, (f"No notices are sent for {host}. {error}",)
    except AnsibleError:
        # The text of the error may contain templated values.
        return None, (f"No notices are sent for {host}. {NOTICES_VARIABLE} cannot be templated.",)


def count_waiting(settings: Settings, host: str, ledger_id: str) -> int | None:
    """Return how many notices of that ledger wait on this control node; None if the host's C(kvmfleet_notices) is not set or is invalid."""
    try:
        value = settings.of(host, NOTICES_VARIABLE)
        return count_spooled(_spool_folder(parse_config(value), ledger_id)) if value else None
    except (InvalidArgument, AnsibleError):
        return None


def _spool_folder(config: WebhookConfig, ledger_id: str) -> str:
    return os.path.join(config.spool or state_path("notices"), ledger_id)


def _is_confirmed(kept: SpooledNotice, ledger: Ledger) -> bool:
    data, at = _data_of(kept.event), str(kept.event["time"])
    try:
        if "run" in data:
            kind = str(kept.event["type"]).removeprefix(f"{EVENT_TYPE_PREFIX}.")
            return is_in_run(data, at, kind, ledger.read_maintenance_run(str(data["run"])).maintenance_run)
        if str(kept.event["type"]) == f"{EVENT_TYPE_PREFIX}.{FENCING_KIND}":
            host = ledger.read_host(str(kept.event["subject"]))
            return host is not None and is_in_entry(at, host.host)
        record_id = data["record"]
        if record_id is not None:
            return has_happened(kept.event, ledger.read_record(str(record_id)).record)
        document = ledger.read_domain(str(kept.event["subject"]))
    except NotFound:
        return False
    acts = (document.domain.foreign_acts or ()) if document else ()
    return any((act.at, f"{EVENT_TYPE_PREFIX}.{_DOMAIN_KIND}.{act.act}") == (kept.event["time"], kept.event["type"]) for act in acts)
