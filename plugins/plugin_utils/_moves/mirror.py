# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Keeping one ledger record in step with the state file of its move."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import is_aborting
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import record_in
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored

# So long the owner of a record may take to write what the state file says; after that whoever sees it writes.
OWNER_LAG_SECONDS = 5.0


class Mirror:
    """Writes a record's changes of status, and the begin of an abort, to the ledger, if it is ours, or if its owner does not.

    The version that every write carries makes sure that of two writers one gives way.
    """

    def __init__(self, ledger: Ledger, stored: Stored, owner: bool, clock: t.Callable[[], float] = time.monotonic) -> None:
        self.stored = stored
        self.owner = owner
        self._ledger = ledger
        self._clock = clock
        self._behind_since: float | None = None

    @property
    def record(self) -> dict[str, t.Any]:
        """The record as the ledger has it."""
        return self.stored.record

    @property
    def is_settled(self) -> bool:
        """Whether the ledger has the record's last word, as far as we can bring it."""
        return self.record["status"] in s.FINAL

    def follow(self, state: t.Mapping[str, t.Any]) -> None:
        """Bring the ledger to what the state file says."""
        record = record_in(state)
        if record["id"] != self.record["id"] or record["generation"] < self.record["generation"]:
            return
        if not self._is_news(record):
            self._behind_since = None
            return
        if not self.owner and not self._is_overdue():
            return
        self.write(record)

    def write(self, record: dict[str, t.Any]) -> None:
        """Write the record now; when another process was first, take over what it wrote and leave the writing to it.

        Raises L(Conflict) where the record is not in the ledger any more.
        """
        try:
            self.stored = self._ledger.update(self.stored, record)
        except Conflict as conflict:
            try:
                self.stored = self._ledger.get(record["id"])
            except NotFound:
                raise conflict from None
            self.owner = False
            self._behind_since = None

    def refresh(self) -> None:
        """Read the record again."""
        self.stored = self._ledger.get(self.record["id"])

    def _is_news(self, record: dict[str, t.Any]) -> bool:
        if record["status"] in s.BEFORE_JOB and self.record["status"] == s.PREPARING:
            # It has its turn, and its watcher has not heard of that yet.
            return False
        if (record["status"], record["generation"]) != (self.record["status"], self.record["generation"]):
            return True
        # Who is told what happens to records hears of an abort when it begins, not when it is over. Before there is a job it is over at once.
        return record["status"] not in s.BEFORE_JOB and is_aborting(record["history"]) and not is_aborting(self.record["history"])

    def _is_overdue(self) -> bool:
        """Whether the ledger has stayed behind for so long that its owner must be gone."""
        now = self._clock()
        before = self.stored.version
        self.refresh()
        if self._behind_since is None or self.stored.version != before:
            self._behind_since = now
        if now - self._behind_since < OWNER_LAG_SECONDS:
            return False
        self.owner = True
        return True
