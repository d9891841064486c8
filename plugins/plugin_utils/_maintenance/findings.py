# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which maintenance runs need a person, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import HostProgress, MaintenanceRun

from .._ledger.documents import HostEntry
from .drill_verdict import drill_line, last_verdict
from .texts import attention_text, describe_failures


def list_findings(runs: Sequence[MaintenanceRun], hosts: Sequence[HostEntry]) -> Iterator[tuple[MaintenanceRun, str]]:
    """Yield the runs that need a person, with a line on each: those that are paused or left, those that stopped on a failed host, and a drill that failed.

    :arg runs: all of them.
    :arg hosts: their entries in the ledger.
    """
    for run in runs:
        if run.is_open:
            text = attention_text(run)
        else:
            failed = [one for one in run.hosts_with(m.FAILED) if not _is_resolved(one, run, runs, hosts)]
            text = _stopped_text(run, failed) if failed and not (run.drill and run.drill.passed is not None) else None
        if text:
            yield run, text
    drill = last_verdict(runs)
    if drill and drill.drill and not drill.drill.passed:
        yield drill, f"The last drill was not passed: {drill_line(drill)} Repair what it names, and repeat it: kvmfleet.migration.drill"


def _is_resolved(failed: HostProgress, run: MaintenanceRun, runs: Sequence[MaintenanceRun], hosts: Sequence[HostEntry]) -> bool:
    """Whether the host was put into service since it failed, a person has discarded it, or a later run has begun it."""
    later = [found for other in runs if other.updated_at > run.updated_at and (found := other.find_host(failed.host))]
    own = [entry for entry in hosts if entry.name == failed.host]
    is_decided = any(entry.discarded or (entry.state == s.ENABLED and (entry.since or "") > _failed_at(failed, run)) for entry in own)
    return is_decided or any(found.status != m.WAITING for found in later)


def _failed_at(failed: HostProgress, run: MaintenanceRun) -> str:
    """Return when the host failed, which may be long before its run ended; of a host that was left in a step, when that step began."""
    known = [line.at for line in run.history if line.event == "host_failed" and line.host == failed.host]
    return max([*known, *([failed.last_step.began_at] if failed.last_step else [])], default=run.updated_at)


def _stopped_text(run: MaintenanceRun, failed: Sequence[HostProgress]) -> str:
    down = [one.host for one in failed if one.is_down]
    back = f" To bring back {', '.join(down)} without it: kvmfleet.migration.recover -e target={','.join(down)}" if down else ""
    return (
        f"The {run.noun} {run.id} is stopped: {run.reason}. Failed: {describe_failures(failed)}."
        f" To continue where it stopped, run the same command with -e {run.variable}={run.id}.{back}"
    )
