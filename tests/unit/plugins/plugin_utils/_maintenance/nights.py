# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs for tests, with clocks that tests set."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun, RunHolder, RunOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import Now, PlannedHost

RUN_ID = "77777777-0000-4000-8000-000000000007"
START = datetime.datetime(2026, 11, 24, 1, 0, tzinfo=datetime.UTC)


def at(seconds: float = 0, by: str = "ann@control pid 1", boot: str = "boot-1") -> Now:
    """Return the present that many seconds after the tests begin, on a control node by its boot."""
    text = (START + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return Now(text, BootMoment(boot, 1000.0 + seconds), by)


def holder(pid: int = 1, node: str = "control") -> RunHolder:
    return RunHolder(f"ann@{node} pid {pid}", node, f"boot of {node}", "pid:[1]", pid, 100 + pid, at().at)


def options(**changes: t.Any) -> RunOptions:
    given = {"max_unavailable": 1, "max_failures": 0, "canary": False, "canary_minutes": None, "until": None, "expected_seconds": None}
    return RunOptions(**{**given, **changes})


def night(*hosts: t.Union[str, PlannedHost], **changes: t.Any) -> MaintenanceRun:
    """Return a run over these hosts that has just begun."""
    planned = [PlannedHost(host) if isinstance(host, str) else host for host in hosts or ("kvm1", "kvm2", "kvm3")]
    return transitions.new_run(RUN_ID, planned, options(**changes), holder(), at())


def passed(run: MaintenanceRun, host: str, until: str = m.RECOVER, seconds: float = 0) -> MaintenanceRun:
    """Return the run after this host began its steps up to that one."""
    run = transitions.begin_host(run, host, at(seconds))
    for step in m.STEPS[: m.STEPS.index(until) + 1]:
        run = transitions.begin_step(run, host, step, at(seconds))
    return run


def done(run: MaintenanceRun, host: str, seconds: float = 0, took: float = 60) -> MaintenanceRun:
    return transitions.complete_host(passed(run, host, seconds=seconds), host, at(seconds + took))
