# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The rules for the document of a balance run: what was planned never changes, and each of its ends is written once."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, InvalidState

from .changes import Transaction
from .documents import Document
from .maintenance import MAINTENANCE_RUNS
from .rules import BALANCES, MAINTENANCE
from .run_documents import RunDocuments, refuse_newer_runs


class BalanceRuns(RunDocuments[BalanceRun]):
    """The documents of balance runs."""

    noun, participle, folder = "balance run", "balanced", BALANCES
    next_step = "Wait until that run has ended, then plan again."
    listed_by = "kvmfleet.migration.ledger_info, list: [balance_runs]"

    def read_run(self, document: Document) -> BalanceRun:
        """Return the run in the document."""
        return document.balance_run

    def check_successor(self, old: BalanceRun, new: BalanceRun) -> None:
        """Refuse a change of a measured run, of what was planned, and from closed to open."""
        if old.measured is not ABSENT:
            raise InvalidState(f"Failed to change {self.describe_run(old)}: it is finished and measured.", "Begin a new one.")
        if new.what_was_planned != old.what_was_planned or (new.is_open and not old.is_open):
            raise Internal(f"Failed to change {self.describe_run(old)}: what was planned must not change, and it must not be opened again.")

    def refuse_beside_others(self, transaction: Transaction, new: BalanceRun) -> None:
        """Refuse a balance beside a drill, which was checked for the guests that each host has."""
        refuse_newer_runs(transaction, MAINTENANCE)
        for document in transaction.read_all(MAINTENANCE):
            run = document.maintenance_run
            if run.is_open and run.drill:
                raise Conflict(
                    f"{', '.join(new.host_names)} cannot be balanced now: {MAINTENANCE_RUNS.describe_run(run)} is open. Nothing was changed.",
                    MAINTENANCE_RUNS.next_step.format(id=run.id),
                    run=encode(run),
                )


BALANCE_RUNS = BalanceRuns()
