# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The turns of one run's moves under limits that all control nodes share: asking for them, waiting for them, giving up."""

from __future__ import annotations

import datetime
import time
import typing as t
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Body, Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.mirror import Mirror
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.arrivals import STARTED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.queue import BEAT_SECONDS, TURN, Full, Limits, what_is_full

# Whoever gives a turn holds it, so that no two processes see the same place as free.
LOCK = "turns"
ASK_SECONDS = 1.0

Told = dict[str, dict[str, str]]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass
class _Waiting:
    """A move that has not had its turn.

    :arg patience_seconds: how long it waits once this run has room for it; 0 is without limit.
    :arg since: when it began to wait, by the monotonic clock.
    :arg said_at: when the ledger was told last that it waits.
    """

    mirror: Mirror
    limits: Limits
    patience_seconds: int
    since: float | None = None
    said_at: float = 0.0
    said: str = ""


class Turns:
    """A turn is the record's status C(preparing), written under one lock after all records that are open were read anew.

    :arg parallel: how many moves of this run are under way at the same time: no more turns are asked for.
    :arg clock: monotonic, in seconds.
    :arg now: the time with its zone, for what other runs are told.
    """

    def __init__(
        self, ledger: Ledger, by: str, parallel: int, clock: Callable[[], float] = time.monotonic, now: Callable[[], datetime.datetime] = _now
    ) -> None:
        self._ledger = ledger
        self._by = by
        self._parallel = parallel
        self._clock = clock
        self._now = now
        self._mirrors: list[Mirror] = []
        self._waiting: dict[str, _Waiting] = {}
        self._given: dict[str, str] = {}
        self._ended: dict[str, str] = {}
        self._ask_at = 0.0

    def enter(self, mirror: Mirror, limits: Limits, patience_seconds: int) -> None:
        """Take a queued move in; one that is under no limit needs no turn, and only counts."""
        self._mirrors.append(mirror)
        if limits:
            self._waiting[mirror.record["id"]] = _Waiting(mirror, limits, patience_seconds)

    def leave(self, mirror: Mirror) -> None:
        """Let a move wait no longer: what became of it is found out by its hosts."""
        self._waiting.pop(mirror.record["id"], None)

    def waits(self, mirror: Mirror) -> bool:
        """Whether that move may not begin yet."""
        return mirror.record["id"] in self._waiting

    @property
    def told(self) -> Told | None:
        """What the watcher has to know: whose turn it is, and who was given up; None where nobody had to wait."""
        return {"given": self._given, "ended": self._ended} if self._given or self._ended else None

    def ask(self) -> None:
        """Give turns to those of this run's moves that may begin now, in their order; of the others the ledger is told what they wait for."""
        now = self._clock()
        ready = self._ready()
        if not ready or now < self._ask_at:
            return
        self._ask_at = now + ASK_SECONDS
        for waiting in ready:
            waiting.since = now if waiting.since is None else waiting.since
        try:
            self._serve(ready)
        except KvmfleetError as error:
            # Without the ledger nothing new begins, and what is under way is still followed.
            for waiting in ready:
                waiting.said = f"the ledger gives no turns. {error.message.rstrip('.')}"
        for waiting in ready:
            self._end_if_overdue(waiting)

    def _ready(self) -> list[_Waiting]:
        """Return the moves that this run's own window has room for."""
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if waiting.mirror.record["status"] == s.QUEUED}
        under_way = sum(mirror.record["status"] in STARTED for mirror in self._mirrors)
        return list(self._waiting.values())[: max(0, self._parallel - under_way)]

    def _serve(self, ready: Sequence[_Waiting]) -> None:
        """Look before taking the lock: of many runs that wait, only those whose turn it is ask for it."""
        records = self._open_records()
        if any(not self._full(waiting, records) for waiting in ready):
            with self._ledger.locked(LOCK):
                records = self._open_records()
                for waiting in ready:
                    if not self._full(waiting, records):
                        self._begin(waiting)
                        records = [*(record for record in records if record["id"] != waiting.mirror.record["id"]), waiting.mirror.record]
        for waiting in ready:
            full = self._full(waiting, records) if self.waits(waiting.mirror) else []
            if full:
                self._say(waiting, full)

    def _open_records(self) -> list[Body]:
        return list(self._ledger.records(unsettled_only=True))

    def _full(self, waiting: _Waiting, records: Sequence[Body]) -> list[Full]:
        return what_is_full(records, waiting.mirror.record, waiting.limits, self._now())

    def _begin(self, waiting: _Waiting) -> None:
        mirror, seconds = waiting.mirror, self._clock() - t.cast(float, waiting.since)
        record, why = schema.copied(mirror.record), f"It had waited {seconds:.0f} s for its turn." if waiting.said else ""
        record.pop(TURN, None)
        schema.advance(record, s.PREPARING, self._by, why)
        mirror.write(record)
        # Of a record that somebody else wrote meanwhile the mirror has that now.
        if mirror.record["status"] == s.PREPARING:
            self._given[record["id"]] = why
            del self._waiting[record["id"]]

    def _say(self, waiting: _Waiting, full: Sequence[Full]) -> None:
        """Tell the ledger that the move waits, and what for, so that later ones let it go first and people see it."""
        said, now = "; ".join(map(str, full)), self._clock()
        if now - waiting.said_at < BEAT_SECONDS and waiting.said:
            return
        waiting.said, waiting.said_at = said, now
        record = schema.copied(waiting.mirror.record)
        record[TURN] = self._turn(waiting, now)
        waiting.mirror.write(record)

    def _turn(self, waiting: _Waiting, now: float) -> Body:
        seconds, at = now - t.cast(float, waiting.since), self._now()
        until = at + datetime.timedelta(seconds=waiting.patience_seconds - seconds) if waiting.patience_seconds else None
        return {
            "limits": waiting.limits,
            "since": _stamp(at - datetime.timedelta(seconds=seconds)),
            "until": _stamp(until) if until else None,
            "seen_at": _stamp(at),
            "waits_for": waiting.said,
        }

    def _end_if_overdue(self, waiting: _Waiting) -> None:
        key = waiting.mirror.record["id"]
        seconds = self._clock() - t.cast(float, waiting.since)
        if key in self._waiting and waiting.patience_seconds and seconds >= waiting.patience_seconds:
            self._ended[key] = f"It waited {waiting.patience_seconds} s for its turn, and nothing was started: {waiting.said}."
            del self._waiting[key]


def _stamp(at: datetime.datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
