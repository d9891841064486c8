# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The record of one move as its watcher keeps it: every change is in the state file before anything else happens."""

from __future__ import annotations

import typing as t

from .._migration.hypervisor import JobStats
from .._migration.progress import Samples, progress_of
from .._records import schema
from .._records import statuses as s
from .._records.clock import utc_now
from .files import RUN_FOLDER, state_path, write_json

# The act of asking libvirt for the job, as the record's acts name it.
MIGRATE_ACT = "migrate"


class Journal:
    """Writes the state file C(/run/kvmfleet/<domain uuid>.json): the record, and which process watches it."""

    def __init__(self, record: schema.Record, watcher: t.Mapping[str, t.Any], folder: str = RUN_FOLDER) -> None:
        self.record = record
        self._watcher = dict(watcher)
        self._path = state_path(record["domain"]["uuid"], folder)
        self._by = f"watcher pid {watcher.get('pid')}"
        self._samples = Samples(record["samples"])

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

    def note(self, event: str, detail: str = "") -> None:
        """Write a line of history that changes no status."""
        schema.note(self.record, event, self._by, detail)
        self.write()

    def measured(self, stats: JobStats, elapsed_ms: int, downtime_ms: int) -> None:
        """Write the figures of one poll."""
        self.record["progress"] = progress_of(stats, self.record["progress"]["percent"])
        self._samples.add(stats, elapsed_ms, downtime_ms)
        self.record["updated_at"] = utc_now()
        self.write()

    def completed(self, stats: t.Optional[JobStats], elapsed_ms: t.Optional[int], detail: str, reason: t.Optional[str]) -> None:
        """Write the end of a move that arrived, with libvirt's own figures of it where there are any."""
        if stats is not None:
            self.record["progress"] = progress_of(stats, 99)
        progress = self.record["progress"]
        progress.update(percent=100, memory_remaining_bytes=0, disk_remaining_bytes=0)
        post_copy = any(line["status"] == s.RUNNING_POST_COPY for line in self.record["history"])
        self.record["result"].update(elapsed_ms=elapsed_ms, mode="post-copy" if post_copy else "pre-copy", iterations=progress["iteration"] or None)
        if stats is not None:
            self.record["result"].update(
                elapsed_ms=stats.elapsed_ms,
                downtime_ms=stats.downtime_ms,
                setup_ms=stats.setup_ms,
                bytes=stats.memory_processed_bytes + stats.disk_processed_bytes,
                iterations=stats.iteration or progress["iteration"] or None,
            )
        self.advance(s.COMPLETED, detail, reason)

    def write(self) -> None:
        """Write the record as it is."""
        write_json(self._path, {**self.record, "watcher": self._watcher})
