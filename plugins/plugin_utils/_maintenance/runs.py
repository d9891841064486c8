# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Maintenance runs in the ledger: finding the run of some hosts, beginning one, and changing it while other processes do, too."""

from __future__ import annotations

import typing as t
import uuid
from collections.abc import Callable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment, utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill, MaintenanceRun, RunHolder, RunOptions

from .._ledger.ledger import Ledger
from .holding import check_holder
from .transitions import Now, PlannedHost, new_run

_T = t.TypeVar("_T")
# The hosts of a batch change the same document at the same time.
MAX_ATTEMPTS = 50


def read_now(by: str) -> Now:
    """Return the present."""
    return Now(utc_now(), boot_moment(), by)


def list_open_runs(ledger: Ledger) -> list[MaintenanceRun]:
    """Return the runs that bind their hosts, the oldest first."""
    return [document.maintenance_run for document in ledger.list_maintenance_runs() if document.maintenance_run.is_open]


def create_run(ledger: Ledger, hosts: Sequence[PlannedHost], options: RunOptions, holder: RunHolder, drill: t.Optional[Drill] = None) -> MaintenanceRun:
    """Write a new run and return it. Raises L(Conflict) if a host is in another open run, and for a drill beside any other open run."""
    run = new_run(str(uuid.uuid4()), hosts, options, holder, read_now(holder.by), drill)
    return ledger.put_maintenance_run(run, None).maintenance_run


def change_run(ledger: Ledger, run_id: str, by: str, act: Callable[[MaintenanceRun, Now], tuple[MaintenanceRun, _T]]) -> tuple[MaintenanceRun, _T]:
    """Change a run and return it, with what the function returns beside it. The function is called again if another process wrote the run meanwhile.

    Raises what the function raises, L(NotFound), and L(Conflict) if the run keeps changing.
    """
    for attempt in range(MAX_ATTEMPTS):
        before = ledger.read_maintenance_run(run_id)
        after, answer = act(before.maintenance_run, read_now(by))
        if after == before.maintenance_run:
            return after, answer
        try:
            return ledger.put_maintenance_run(after, before).maintenance_run, answer
        except Conflict:
            # The version may have changed; hosts that another run has are an error that stays.
            if attempt + 1 == MAX_ATTEMPTS or ledger.read_maintenance_run(run_id).version == before.version:
                raise
    raise AssertionError("unreachable")


def change_held_run(
    ledger: Ledger, run_id: str, holder: RunHolder, act: Callable[[MaintenanceRun, Now], tuple[MaintenanceRun, _T]]
) -> tuple[MaintenanceRun, _T]:
    """Change a run as the process that holds it. Raises L(Conflict) if another process does."""

    def act_as_holder(run: MaintenanceRun, now: Now) -> tuple[MaintenanceRun, _T]:
        check_holder(run, holder)
        return act(run, now)

    return change_run(ledger, run_id, holder.by, act_as_holder)
