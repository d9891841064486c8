# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The rules for the document of a maintenance run: no process of an earlier term writes it, and its hosts never change."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import FINISHED, MaintenanceRun

from .changes import Transaction
from .documents import Document
from .rules import BALANCES, MAINTENANCE
from .run_documents import RunDocuments, refuse_newer_runs


class MaintenanceRuns(RunDocuments[MaintenanceRun]):
    """The documents of maintenance runs."""

    noun, participle, folder = "maintenance run", "maintained", MAINTENANCE
    next_step = "Wait for that run, run its command again if it was interrupted, or end it: kvmfleet.migration.maintenance -e run={id} -e request=stop."
    listed_by = "kvmfleet.migration.maintenance"

    def read_run(self, document: Document) -> MaintenanceRun:
        """Return the run in the document."""
        return document.maintenance_run

    def check_successor(self, old: MaintenanceRun, new: MaintenanceRun) -> None:
        """Refuse a change of a finished run, of its hosts, and by a process of an earlier term."""
        if old.state == FINISHED:
            raise InvalidState(f"Failed to change {self.describe_run(old)}: it is finished.", "Begin a new one.")
        if new.term < old.term or new.host_names != old.host_names:
            raise Internal(f"Failed to change {self.describe_run(old)}: its term must not decrease, and its hosts must not change.")

    def noun_of(self, run: MaintenanceRun) -> str:
        """Return what a person calls this run."""
        return run.noun

    def exclusive_hosts(self, new: MaintenanceRun, other: MaintenanceRun) -> Sequence[str]:
        """Return the hosts of a run that begins beside a drill, or of a drill beside any run: only one of them may take hosts out of service."""
        return new.host_names if new.drill or other.drill else ()

    def make_shared_hosts_error(self, other: MaintenanceRun, shared: Sequence[str]) -> Conflict:
        """Return the error for a run over hosts that another open run has, or that begins beside a drill."""
        if not other.drill and set(shared) <= set(other.host_names):
            return super().make_shared_hosts_error(other, shared)
        error = super().make_shared_hosts_error(other, shared)
        open_run = f"{self.describe_run(other)} over {', '.join(other.host_names)} is open"
        return Conflict(f"{', '.join(shared)} cannot be taken out of service now: {open_run}. Nothing was changed.", error.next_step, run=encode(other))

    def refuse_beside_others(self, transaction: Transaction, new: MaintenanceRun) -> None:
        """Refuse a drill beside a balance, which moves the guests for which the drill was checked; after its cut, only the return of the host is left."""
        if not new.drill or new.drill.cut_at is not None:
            return
        refuse_newer_runs(transaction, BALANCES)
        for document in transaction.read_all(BALANCES):
            run = document.balance_run
            if run.is_open:
                raise Conflict(
                    f"{', '.join(new.host_names)} cannot be taken out of service now: the balance run {run.id} is open. Nothing was changed.",
                    "Wait until that run has ended. If it was interrupted, carry out a balance again (kvmfleet.migration.balance -e balance_mode=apply), which"
                    " closes what an earlier process has left; on another control node, with -e balance_take_over=true.",
                    run=encode(run),
                )

    def make_overtaken_error(self, run: MaintenanceRun, current: Document | None) -> Conflict:
        """Return the error with the present state: whoever holds the run decides again."""
        found = current.maintenance_run if current else None
        now = f"it is now '{found.state}', written at {found.updated_at}" if found else "it is not in the ledger"
        return Conflict(f"Failed to change the {run.noun} {run.id}: another process wrote it meanwhile, {now}.", "Read the run again and repeat the decision.")


MAINTENANCE_RUNS = MaintenanceRuns()
