# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The record of one move: one form in the ledger, in the results of modules, and in the state file on the source host.

A record is immutable. Its methods return a new record for each change.
"""

from __future__ import annotations

import dataclasses
import typing as t
import uuid

from .._dataclass import dataclass
from . import statuses as s
from .clock import utc_now
from .codec import ABSENT, Absent, Json, JsonObject, ShapeError, decode
from .errors import Internal
from .record_parts import (
    NO_PROGRESS,
    NO_RESULT,
    Act,
    Before,
    ColdMove,
    Connection,
    CopiedStorage,
    DefinitionChange,
    Detection,
    DiskCopy,
    HistoryLine,
    PredictedMove,
    Progress,
    Result,
    Sample,
    Turn,
)
from .references import DomainRef, HostRef
from .statuses import check_transition

SCHEMA = 1
MAX_SAMPLES = 60
# The name of a watcher as the writer of a line of history begins with this.
WATCHER_WRITER = "watcher pid"
# Key of a request: the bytes that are copied of each disk, by its target.
COPIED_BYTES = "copied_disk_bytes"


@dataclass(frozen=True)
class MoveRecord:
    """One move of one domain, from the moment it was accepted to its end.

    :arg request: what the domain needs at its destination, e.g. C(memory_mib); the reservation counts it.
    :arg policy: field to C({value, source}).
    :arg ledger_id: the ledger that opened it.
    :arg wanted_state: of an evacuation: the state that the domain is to have.
    :arg turn: of a queued move: what its run reports about its waiting.
    :arg predicted: what was predicted before it began; absent if nothing was.
    :arg filters_off: names of the scheduler's filters that were switched off at the destination; absent if none was.
    :arg rewritten: what differs in the definition at the destination; absent if nothing does.
    :arg method: of a cold move: C(offline), C(save) or C(shutdown); absent for others.
    :arg cold: what a cold move does, and what it has done; absent for others.
    :arg detection: of an evacuation: how the death of the source was detected; absent if nobody stated it.
    """

    IS_LENIENT: t.ClassVar[bool] = True
    LAZY: t.ClassVar[t.Tuple[str, ...]] = ("before", "progress", "samples", "result", "history", "connection")
    schema: int
    id: t.Optional[str]
    generation: int
    type: str
    status: str
    reason: t.Optional[str]
    forced: t.Optional[str]
    superseded_by: t.Optional[str]
    domain: DomainRef
    source: HostRef
    destination: HostRef
    request: JsonObject
    policy: JsonObject
    before: Before
    acts: t.Tuple[Act, ...]
    progress: Progress
    samples: t.Tuple[Sample, ...]
    result: Result
    history: t.Tuple[HistoryLine, ...]
    evidence: t.Tuple[JsonObject, ...]
    created_at: str
    updated_at: str
    ledger_id: t.Union[str, Absent, None] = ABSENT
    connection: t.Union[Connection, Absent, None] = ABSENT
    storage: t.Union[CopiedStorage, Absent, None] = ABSENT
    wanted_state: t.Union[str, Absent, None] = ABSENT
    turn: t.Union[Turn, Absent, None] = ABSENT
    filters_off: t.Union[t.Tuple[str, ...], Absent, None] = ABSENT
    predicted: t.Union[PredictedMove, Absent, None] = ABSENT
    rewritten: t.Union[t.Tuple[DefinitionChange, ...], Absent, None] = ABSENT
    method: t.Union[str, Absent, None] = ABSENT
    cold: t.Union[ColdMove, Absent, None] = ABSENT
    detection: t.Union[Detection, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for a type or status that this version does not know."""
        if self.type not in s.TYPES:
            raise ShapeError("type", f"one of {', '.join(s.TYPES)}")
        if self.status not in s.UNSETTLED | s.CLOSED | s.TOMBSTONE:
            raise ShapeError("status", "one that this version knows")

    @property
    def record_id(self) -> str:
        """Its ID. Raises L(Internal) for a record that was only predicted, which has none."""
        if self.id is None:
            raise Internal(f"The record of domain {self.domain.uuid} was only predicted, and has no ID.")
        return self.id

    @property
    def ends(self) -> t.Tuple[HostRef, HostRef]:
        """The source and the destination."""
        return self.source, self.destination

    @property
    def last_writer(self) -> t.Optional[str]:
        """Who wrote the last line of the history, if the line states this."""
        return self.history[-1].writer if self.history else None

    @property
    def last_detail(self) -> str:
        """The detail of the last line of the history."""
        return (self.history[-1].detail or "") if self.history else ""

    @property
    def is_unsettled(self) -> bool:
        """Whether the record still holds its domain."""
        return self.status in s.UNSETTLED

    @property
    def is_aborting(self) -> bool:
        """Whether an abort was begun whose outcome is not in the history."""
        return is_aborting(self.history)

    @property
    def is_foreign(self) -> bool:
        """Whether this is a job of another tool in which a person has intervened: its destination is not known."""
        return self.type == s.LIVE_MIGRATION and not self.destination.is_known

    def requester_of(self, event: str) -> t.Optional[str]:
        """Return the person who caused that event, e.g. C(abort_start); null if a limit did, or if a version that named no person wrote the line."""
        lines = (line for line in reversed(self.history) if line.status == event and (line.detail or "").startswith(s.REASON_OPERATOR))
        writer = next((line.writer for line in lines), None)
        return None if writer is None or writer.startswith(WATCHER_WRITER) else writer

    @property
    def memory_bytes(self) -> int:
        """The guest's memory, 0 if the request does not name it."""
        mebibytes = self.request.get("memory_mib")
        return mebibytes * 1024**2 if isinstance(mebibytes, int) else 0

    @property
    def copied_bytes(self) -> t.List[int]:
        """The size of each disk that is copied."""
        sizes = self.request.get(COPIED_BYTES)
        return [size for size in sizes.values() if isinstance(size, int)] if isinstance(sizes, t.Mapping) else []

    @property
    def disk_copies(self) -> t.Tuple[DiskCopy, ...]:
        """The disks that the move copies; none for a move that copies nothing."""
        return self.storage.disks if self.storage else ()

    def mark_target(self, target: str, is_made: bool) -> MoveRecord:
        """Return the record with a note that this move has made, or has removed, the target of a copied disk."""
        disks = tuple(dataclasses.replace(disk, made=is_made) if disk.target == target else disk for disk in self.disk_copies)
        return dataclasses.replace(self, storage=dataclasses.replace(self.storage, disks=disks) if self.storage else self.storage)

    def has_status(self, status: str) -> bool:
        """Whether a line of the history has that status, or is that event."""
        return any(line.status == status for line in self.history)

    def has_begun(self, act: str) -> bool:
        """Whether that act was begun in this move, by this process or by one before it."""
        return any(one.act == act for one in self.acts)

    def reasons_of(self, prefix: str) -> t.List[str]:
        """Return what follows that prefix in the acts that have it, in their order, e.g. the reasons of aborts."""
        return [one.act[len(prefix) :] for one in self.acts if one.act.startswith(prefix)]

    def advance(self, status: str, by: str, detail: str = "", reason: t.Optional[str] = None) -> MoveRecord:
        """Return the record with its next status, and a line of history. Raises L(Internal) for a transition that is not allowed."""
        check_transition(self.type, self.status, status)
        return dataclasses.replace(self.note(status, by, detail), status=status, reason=reason)

    def note(self, event: str, by: str, detail: str = "", at: t.Optional[str] = None) -> MoveRecord:
        """Return the record with a line of history that is not a change of status, e.g. C(abort_start).

        :arg at: the time of the event if it is not now (RFC 3339, UTC).
        """
        now = utc_now()
        return dataclasses.replace(self, updated_at=now, history=(*self.history, HistoryLine(at or now, event, by, detail)))

    def intend(self, act: str) -> MoveRecord:
        """Return the record with an act on the guest that is about to be done."""
        return dataclasses.replace(self, acts=(*self.acts, Act(utc_now(), act)))

    def predict(self) -> MoveRecord:
        """Return the record without an ID: it is a prediction, and in no ledger."""
        return dataclasses.replace(self, id=None)

    def raise_generation(self, generation: int) -> MoveRecord:
        """Return the record with that generation, if that is higher than its own."""
        return dataclasses.replace(self, generation=max(self.generation, generation))

    def add_evidence(self, evidence: t.Sequence[JsonObject]) -> MoveRecord:
        """Return the record with further evidence."""
        return dataclasses.replace(self, evidence=(*self.evidence, *evidence))

    def supersede(self, record_id: str) -> MoveRecord:
        """Return the record with the ID of the record that supersedes it."""
        return dataclasses.replace(self, superseded_by=record_id)

    def note_turn(self, turn: Turn) -> MoveRecord:
        """Return the record with the report of its run about its waiting."""
        return dataclasses.replace(self, turn=turn)

    def drop_turn(self) -> MoveRecord:
        """Return the record without the report about its waiting."""
        return dataclasses.replace(self, turn=ABSENT)

    def judge_without(self, filters: t.Sequence[str]) -> MoveRecord:
        """Return the record with the filters that did not judge its destination."""
        return dataclasses.replace(self, filters_off=tuple(filters) if filters else ABSENT)

    def rewrite(self, changes: t.Sequence[DefinitionChange]) -> MoveRecord:
        """Return the record with what differs in the definition at the destination."""
        return dataclasses.replace(self, rewritten=tuple(changes) if changes else ABSENT)

    def copy_disks(self, mode: str, disks: t.Sequence[DiskCopy]) -> MoveRecord:
        """Return the record with the disks that the move copies, and how many bytes that reserves at the destination; none for a move that copies nothing."""
        request = {key: value for key, value in self.request.items() if key != COPIED_BYTES}
        if not disks:
            return dataclasses.replace(self, storage=ABSENT, request=request)
        booked = {disk.target: disk.bytes for disk in disks}
        return dataclasses.replace(self, storage=CopiedStorage(mode, tuple(disks)), request={**request, COPIED_BYTES: booked})


def is_aborting(history: t.Sequence[HistoryLine]) -> bool:
    """Whether these lines have an abort without outcome. Lines before an error that was settled do not count."""
    last = max((number for number, line in enumerate(history) if line.status in s.FINAL), default=-1)
    return any(line.status == s.ABORT_START for line in history[last + 1 :])


def new_record(
    record_type: str,
    domain: DomainRef,
    source: HostRef,
    destination: HostRef,
    policy: JsonObject,
    by: str,
    request: t.Optional[JsonObject] = None,
    forced: t.Optional[str] = None,
    detail: str = "",
) -> MoveRecord:
    """Return an C(accepted) record of generation 0; the ledger gives it its generation when it is opened.

    :arg by: who acts, e.g. C(root@control pid 4711).
    """
    now = utc_now()
    return MoveRecord(
        schema=SCHEMA,
        id=str(uuid.uuid4()),
        generation=0,
        type=record_type,
        status=s.ACCEPTED,
        reason=None,
        forced=forced,
        superseded_by=None,
        domain=domain,
        source=source,
        destination=destination,
        request=request or {},
        policy=policy,
        before=Before(),
        acts=(),
        progress=NO_PROGRESS,
        samples=(),
        result=NO_RESULT,
        history=(HistoryLine(now, s.ACCEPTED, by, detail),),
        evidence=(),
        created_at=now,
        updated_at=now,
    )


def read_record(document: Json) -> MoveRecord:
    """Return the record that a JSON document represents. It may have been torn, or edited by hand; unknown keys are kept.

    :raises Internal: it is not a record of this schema; the message names the first thing that is wrong.
    """
    schema = document.get("schema") if isinstance(document, t.Mapping) else SCHEMA
    if schema != SCHEMA:
        raise Internal(f"Not a record: its schema is {schema!r}, and this version reads {SCHEMA}.")
    try:
        record = decode(MoveRecord, document)
        if record.id is None:
            raise ShapeError("id", "text")
        return record
    except ShapeError as exc:
        raise Internal(f"Not a record: {exc}.") from exc
