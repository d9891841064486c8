# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The record of one move as its watcher keeps it: every change is in the state file before anything else happens."""

from __future__ import annotations

import typing as t

from .._errors import Internal, KvmfleetError
from .._migration.force import RUNG_DOWNTIME, RUNG_SUSPEND
from .._migration.hypervisor import JobStats
from .._migration.monitor import SetDowntime
from .._migration.progress import Samples, progress_of
from .._records import schema
from .._records import statuses as s
from .._records.clock import utc_now
from .files import RUN_FOLDER, state_path, write_json
from .intents import Intent

# The act of asking libvirt for the job, as the record's acts name it.
MIGRATE_ACT = "migrate"

_MAX_ANSWERS = 20

# How long a watcher tries to write how its move ended, where there is no room for it.
LAST_WORD_SECONDS = 600.0
_RETRY_SECONDS = 1.0


class Journal:
    """Writes the state file C(/run/kvmfleet/<domain uuid>.json): the record, and which process watches it.

    Without a folder it is kept in memory only: for a move that is not ours.
    """

    def __init__(self, record: schema.Record, watcher: t.Mapping[str, t.Any], folder: t.Optional[str] = RUN_FOLDER) -> None:
        self.record = record
        self._watcher = dict(watcher)
        self.folder = folder
        self._by = f"watcher pid {watcher.get('pid')}"
        self._samples = Samples(record["samples"])
        self._answers: t.Dict[str, t.Dict[str, t.Any]] = {}
        self._trouble: t.Optional[OSError] = None
        self._waits_for: t.Optional[str] = None

    def advance(self, status: str, detail: str = "", reason: t.Optional[str] = None) -> None:
        """Give the record its next status and write it."""
        schema.advance(self.record, status, self._by, detail, reason)
        self.write()

    def enter(self, status: str, detail: str = "") -> None:
        """Like L(advance), and nothing where the record has that status already."""
        if self.record["status"] != status:
            self.advance(status, detail)

    def intend(self, act: str, detail: str = "") -> None:
        """Write down what is about to be done to the guest."""
        schema.intend(self.record, act)
        schema.note(self.record, act, self._by, detail)
        self.write()

    def note(self, event: str, detail: str = "", at: t.Optional[str] = None) -> None:
        """Write a line of history that changes no status.

        :arg at: when it was, where it was not just now (RFC 3339, UTC).
        """
        schema.note(self.record, event, self._by, detail)
        if at is not None:
            self.record["history"][-1]["at"] = at
        self.write()

    def measured(self, stats: JobStats, elapsed_ms: int, downtime_ms: int) -> None:
        """Write the figures of one poll."""
        memory = int(self.record.get("request", {}).get("memory_mib") or 0) * 1024**2
        self.record["progress"] = progress_of(stats, self.record["progress"]["percent"], memory)
        self._samples.add(stats, elapsed_ms, downtime_ms)
        self.record["updated_at"] = utc_now()
        self.write()

    def completed(self, stats: t.Optional[JobStats], elapsed_ms: t.Optional[int], detail: str, reason: t.Optional[str]) -> None:
        """Write the end of a move that arrived, with libvirt's own figures of it where there are any."""
        if stats is not None:
            self.record["progress"] = progress_of(stats, 99)
        progress = self.record["progress"]
        progress.update(percent=100, memory_remaining_bytes=0, disk_remaining_bytes=0)
        self.record["result"].update(elapsed_ms=elapsed_ms, mode=self._mode(), iterations=progress["iteration"] or None)
        if stats is not None:
            self.record["result"].update(
                elapsed_ms=stats.elapsed_ms,
                downtime_ms=stats.downtime_ms,
                setup_ms=stats.setup_ms,
                bytes=stats.memory_processed_bytes + stats.disk_processed_bytes,
                iterations=stats.iteration or progress["iteration"] or None,
            )
        self.advance(s.COMPLETED, detail, reason)

    def forced(self, rung: t.Optional[str], predicted_ms: t.Optional[int]) -> None:
        """Keep which rung forcing has come to, and how long the pause is predicted to be; written with the next figures."""
        self.record["result"].update(rung=rung, predicted_downtime_ms=predicted_ms)

    def allowed(self, action: SetDowntime) -> None:
        """Write why a longer pause was allowed, where there is a reason, and keep the pause that is predicted."""
        if action.predicted_ms is not None:
            self.record["result"]["predicted_downtime_ms"] = action.predicted_ms
        if action.reason:
            self.note("downtime_allowed", action.reason)

    def wait_for(self, what: t.Optional[str]) -> None:
        """Write what the move waits for, so that its followers can show it; null for nothing. It is not part of the record."""
        if what != self._waits_for:
            self._waits_for = what
            self.write()

    def answer(self, intent: Intent, error: t.Optional[KvmfleetError] = None) -> None:
        """Write what became of an intent, for the module that left it."""
        self._answers[intent.id] = error.as_result() if error else {}
        for oldest in list(self._answers)[:-_MAX_ANSWERS]:
            del self._answers[oldest]
        self.write()

    def _mode(self) -> str:
        """Return how the guest came over: in post-copy, after a pause that was forced, or in plain pre-copy."""
        if any(line["status"] == s.RUNNING_POST_COPY for line in self.record["history"]):
            return "post-copy"
        return "paused" if self.record["result"].get("rung") in (RUNG_DOWNTIME, RUNG_SUSPEND) else "pre-copy"

    def write(self) -> None:
        """Write the record as it is. What there is no room for now is written with the next change: no guest is left alone for that."""
        if self.folder is None:
            return
        waits = {"waits_for": self._waits_for} if self._waits_for else {}
        try:
            write_json(state_path(self.record["domain"]["uuid"], self.folder), {**self.record, "watcher": self._watcher, "answers": self._answers, **waits})
            self._trouble = None
        except OSError as error:
            self._trouble = error

    def require_written(self) -> None:
        """Raise L(Internal) where the state file does not say what the record says: then nothing may be begun."""
        if self._trouble is not None:
            raise Internal(
                f"The state of the move of domain {self.record['domain']['name']} cannot be written under {self.folder}: {self._trouble.strerror}.",
                "Nothing was started. Make room there, on the source host, and run the task again.",
            )

    def insist(self, clock: t.Callable[[], float], sleep: t.Callable[[float], None]) -> None:
        """Write the last word, where it could not be written yet; given up after C(LAST_WORD_SECONDS), for the next run finds it out by asking."""
        deadline = clock() + LAST_WORD_SECONDS
        while self._trouble is not None and clock() < deadline:
            sleep(_RETRY_SECONDS)
            self.write()
