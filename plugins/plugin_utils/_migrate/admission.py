# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Admission of the moves of one run under limits that all control nodes share: request it, wait for it, give up."""

from __future__ import annotations

import datetime
import time
import typing as t
from collections.abc import Callable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import format_time
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Turn
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import RecordMirror
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import AdmissionAnswers
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.admission import HEARTBEAT_SECONDS, FullLimit, MoveLimits, find_full_limits
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.guests import STARTED_STATUSES

# Held during an admission, so that no two processes see the same slot as free.
ADMISSION_LOCK = "turns"
ASK_SECONDS = 1.0


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass
class _WaitingMove:
    """A move that is not admitted yet.

    :arg patience_seconds: how long it waits after this run has a free slot for it; 0 means no limit.
    :arg since: when it began to wait, by the monotonic clock.
    :arg reported_at: when the wait was last written to the ledger.
    """

    mirror: RecordMirror
    limits: MoveLimits
    patience_seconds: int
    since: float | None = None
    reported_at: float = 0.0
    reason: str = ""


class AdmissionQueue:
    """The moves of this run that wait for admission. An admission is the status C(preparing), written under one lock after all open records were read again.

    :arg parallel: the maximum number of simultaneous moves of this run; it requests no more admissions.
    :arg clock: monotonic, in seconds.
    :arg now: the time with its zone, for reports to other runs.
    """

    def __init__(
        self, ledger: Ledger, by: str, parallel: int, clock: Callable[[], float] = time.monotonic, now: Callable[[], datetime.datetime] = _utc_now
    ) -> None:
        self._ledger = ledger
        self._by = by
        self._parallel = parallel
        self._clock = clock
        self._now = now
        self._mirrors: list[RecordMirror] = []
        self._waiting: dict[str, _WaitingMove] = {}
        self._given: dict[str, str] = {}
        self._ended: dict[str, str] = {}
        self._ask_at = 0.0

    def add_move(self, mirror: RecordMirror, limits: MoveLimits, patience_seconds: int) -> None:
        """Add a queued move. A move without limits needs no admission, and is only counted."""
        self._mirrors.append(mirror)
        if limits:
            self._waiting[mirror.record.record_id] = _WaitingMove(mirror, limits, patience_seconds)

    def drop_move(self, mirror: RecordMirror) -> None:
        """Stop waiting for a move: its hosts determine its result."""
        self._waiting.pop(mirror.record.record_id, None)

    def is_waiting(self, mirror: RecordMirror) -> bool:
        """Whether that move may not begin yet."""
        return mirror.record.id in self._waiting

    @property
    def answers(self) -> AdmissionAnswers | None:
        """The input of the watcher: the admitted and the cancelled moves; None if no move had to wait."""
        return {"given": self._given, "ended": self._ended} if self._given or self._ended else None

    def admit_moves(self) -> None:
        """Admit those of this run's moves that may begin now, in their order; write to the ledger what the others wait for."""
        now = self._clock()
        ready = self._ready_moves()
        if not ready or now < self._ask_at:
            return
        self._ask_at = now + ASK_SECONDS
        for waiting in ready:
            waiting.since = now if waiting.since is None else waiting.since
        try:
            self._serve_moves(ready)
        except KvmfleetError as error:
            # Without the ledger no new move begins, and running moves are still followed.
            for waiting in ready:
                waiting.reason = f"the ledger is unavailable, so no move is admitted. {error.message.rstrip('.')}"
        for waiting in ready:
            self._end_if_overdue(waiting)

    def _ready_moves(self) -> list[_WaitingMove]:
        """Return the moves that fit into this run's own window."""
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if waiting.mirror.record.status == s.QUEUED}
        under_way = sum(mirror.record.status in STARTED_STATUSES for mirror in self._mirrors)
        return list(self._waiting.values())[: max(0, self._parallel - under_way)]

    def _serve_moves(self, ready: Sequence[_WaitingMove]) -> None:
        """Check before taking the lock: of many waiting runs, only those with a move that may begin request it."""
        records = self._open_records()
        if any(not self._full_limits(waiting, records) for waiting in ready):
            with self._ledger.hold_lock(ADMISSION_LOCK):
                records = self._open_records()
                for waiting in ready:
                    if not self._full_limits(waiting, records):
                        self._admit_move(waiting)
                        records = [*(record for record in records if record.id != waiting.mirror.record.id), waiting.mirror.record]
        for waiting in ready:
            full = self._full_limits(waiting, records) if self.is_waiting(waiting.mirror) else []
            if full:
                self._report_waiting(waiting, full)

    def _open_records(self) -> list[MoveRecord]:
        return list(self._ledger.list_records(unsettled_only=True))

    def _full_limits(self, waiting: _WaitingMove, records: Sequence[MoveRecord]) -> list[FullLimit]:
        return find_full_limits(records, waiting.mirror.record, waiting.limits, self._now())

    def _admit_move(self, waiting: _WaitingMove) -> None:
        mirror, seconds = waiting.mirror, self._clock() - t.cast(float, waiting.since)
        why = f"It had waited {seconds:.0f} s for its turn." if waiting.reason else ""
        mirror.write_record(mirror.record.drop_turn().advance(s.PREPARING, self._by, why))
        # If another process has written the record in the meantime, the mirror now has its version.
        if mirror.record.status == s.PREPARING:
            self._given[mirror.record.record_id] = why
            del self._waiting[mirror.record.record_id]

    def _report_waiting(self, waiting: _WaitingMove, full: Sequence[FullLimit]) -> None:
        """Write to the ledger that the move waits, and for what, so that later moves wait behind it, and people see the reason."""
        reason, now = "; ".join(map(str, full)), self._clock()
        if now - waiting.reported_at < HEARTBEAT_SECONDS and waiting.reason:
            return
        waiting.reason, waiting.reported_at = reason, now
        waiting.mirror.write_record(waiting.mirror.record.note_turn(self._make_turn(waiting, now)))

    def _make_turn(self, waiting: _WaitingMove, now: float) -> Turn:
        seconds, at = now - t.cast(float, waiting.since), self._now()
        until = at + datetime.timedelta(seconds=waiting.patience_seconds - seconds) if waiting.patience_seconds else None
        return Turn(
            limits=waiting.limits,
            since=format_time(at - datetime.timedelta(seconds=seconds)),
            until=format_time(until) if until else None,
            seen_at=format_time(at),
            waits_for=waiting.reason,
        )

    def _end_if_overdue(self, waiting: _WaitingMove) -> None:
        key = waiting.mirror.record.record_id
        seconds = self._clock() - t.cast(float, waiting.since)
        if key in self._waiting and waiting.patience_seconds and seconds >= waiting.patience_seconds:
            self._ended[key] = f"It waited {waiting.patience_seconds} s for its turn, and nothing was started: {waiting.reason}."
            del self._waiting[key]
