# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a person does to a maintenance run from another terminal: pause, resume or stop it. Its process sees this between two steps."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun

from .._ledger.ledger import Ledger
from .decisions import reason_not_to_begin
from .holding import is_alive
from .runs import list_open_runs
from .transitions import Now, add_request, close_run, heed_request, release_run, stop_beginning


def choose_run(ledger: Ledger, run_id: t.Optional[str]) -> MaintenanceRun:
    """Return the named run, or the only open one. Raises L(NotFound) or L(InvalidArgument)."""
    if run_id:
        return ledger.read_maintenance_run(run_id).maintenance_run
    found = list_open_runs(ledger)
    if not found:
        raise NotFound(f"The ledger {ledger.name} has no open maintenance run.", "Nothing was changed.")
    if len(found) > 1:
        names = "; ".join(f"{run.id} ({', '.join(run.host_names)})" for run in found)
        raise InvalidArgument(f"The ledger {ledger.name} has {len(found)} open maintenance runs: {names}.", "Name one with 'run'. Nothing was changed.")
    return found[0]


def intervene(run: MaintenanceRun, request: str, reason: t.Optional[str], is_gone: bool, now: Now) -> MaintenanceRun:
    """Return the run with this request; unchanged if it is requested or in force already.

    :arg is_gone: whether no process holds the run, or only one that does not exist any more. A stop is carried out at once then.
    :raises InvalidState: the run is not open, so that there is nothing to pause or resume.
    """
    if not run.is_open:
        if request == m.STOP:
            return run
        raise InvalidState(
            f"The {run.noun} {run.id} is {run.state}.",
            "Only a run that is running or paused can be paused or resumed. To continue a stopped one, run the playbook again with"
            f" -e {run.variable}={run.id}. Nothing was changed.",
        )
    if request == m.STOP and is_gone:
        return _close_left_run(run, reason, now)
    return run if is_in_force(run, request) else add_request(run, request, reason, now)


def is_in_force(run: MaintenanceRun, request: str) -> bool:
    """Whether the run is already as requested, or will be."""
    if run.request:
        return run.request.request == request
    if request == m.STOP:
        return bool(run.is_stopping) and run.state != m.PAUSED
    return run.state == (m.PAUSED if request == m.PAUSE else m.RUNNING)


def _close_left_run(run: MaintenanceRun, reason: t.Optional[str], now: Now) -> MaintenanceRun:
    detail = f"stopped by {now.by}" + (f" ({reason})" if reason else "")
    return end_run(stop_beginning(run, detail, now), now)


def end_run(run: MaintenanceRun, now: Now) -> MaintenanceRun:
    """Return the run closed, with the reason at each host that was not begun."""
    reasons = {one.host: reason_not_to_begin(run, one, now) or "the process ended before it" for one in run.hosts_with(m.WAITING)}
    return close_run(run, reasons, now)


def leave_run(run: MaintenanceRun, now: Now) -> MaintenanceRun:
    """Return the run as its process leaves it: closed, or only given up if it is paused, so that its command continues it."""
    heeded = heed_request(run, now) if run.hosts_with(m.WAITING, m.IN_PROGRESS) else run
    if heeded.state == m.PAUSED:
        return release_run(heeded, now)
    return end_run(heeded, now)


def is_left(run: MaintenanceRun, is_confirmed: bool) -> bool:
    """Whether no process carries out the run.

    :arg is_confirmed: whether a person states that; it counts only where it cannot be verified.
    """
    if run.holder is None:
        return True
    alive = is_alive(run.holder)
    return is_confirmed if alive is None else not alive
