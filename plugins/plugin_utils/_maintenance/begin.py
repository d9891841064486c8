# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How a process begins a maintenance run, or continues one: the limits that it is given, the run that its hosts have, and what must not be begun."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill, MaintenanceRun, RunHolder, RunOptions

from .._ledger.ledger import Ledger
from .._ledger.maintenance import MAINTENANCE_RUNS
from .decisions import seconds_between
from .holding import check_take_over, is_alive
from .runs import change_run, create_run, list_open_runs
from .transitions import Now, PlannedHost, take_over

# An interrupted run is continued by the same command for so long. Later, a person has to name it.
CONTINUE_SECONDS = 24 * 3600
# A run is one document, to which each host adds lines, and a request of etcd has at most 1.5 MiB.
MAX_HOSTS = 1000
MAX_MINUTES = 7 * 24 * 60


@dataclass(frozen=True)
class RunLimits:
    """The limits of a run as a task gives them; minutes that are not given are null."""

    max_unavailable: int
    max_failures: int
    canary: bool
    canary_minutes: t.Optional[int]
    until: t.Optional[str]
    expected_minutes: t.Optional[int]


def read_limits(limits: RunLimits, hosts: Sequence[str], at: str) -> RunOptions:
    """Return the limits of a new run. Raises L(InvalidArgument) for one that cannot be.

    :arg at: the time now.
    """
    if len(hosts) > MAX_HOSTS:
        raise InvalidArgument(
            f"The target has {len(hosts)} hosts, and a maintenance run has at most {MAX_HOSTS}.",
            "Give groups of hosts as targets of several runs, one after the other. Nothing was changed.",
        )
    until = read_until(limits.until)
    _check_number("max_unavailable", limits.max_unavailable, 1, len(hosts), f"the run has {len(hosts)} hosts")
    _check_number("max_failures", limits.max_failures, 0, len(hosts), f"the run has {len(hosts)} hosts")
    for name, value in (("canary_minutes", limits.canary_minutes), ("expected_minutes", limits.expected_minutes)):
        if value is not None:
            _check_number(name, value, 0, MAX_MINUTES, "it is in minutes")
    if limits.canary_minutes is not None and not limits.canary:
        raise InvalidArgument("canary_minutes is given, but canary is false.", "Set both, or neither. Nothing was changed.")
    if until is not None and seconds_between(at, until) <= 0:
        raise InvalidArgument(f"until is {until}, which is in the past (it is {at}).", "Give the end of the window. Nothing was changed.")
    expected = None if limits.expected_minutes is None else limits.expected_minutes * 60
    return RunOptions(limits.max_unavailable, limits.max_failures, limits.canary, limits.canary_minutes, until, expected)


def _check_number(name: str, value: int, least: int, most: int, why: str) -> None:
    if not least <= value <= most:
        raise InvalidArgument(f"{name} is {value}, and {why}.", f"Give a number from {least} to {most}. Nothing was changed.")


def read_until(until: t.Optional[str]) -> t.Optional[str]:
    """Return the end of a window in UTC; None for none. Raises L(InvalidArgument) for anything but RFC 3339 with a time zone."""
    if not until:
        return None
    try:
        moment = datetime.datetime.fromisoformat(until)
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"until is {until!r}, which is not a time with a time zone.", "Write it as 2026-11-21T05:00:00Z or 2026-11-21T06:00:00+01:00. Nothing was changed."
        ) from error


def find_run(ledger: t.Optional[Ledger], run_id: t.Optional[str], hosts: Sequence[str], at: str, is_drill: bool = False) -> t.Optional[MaintenanceRun]:
    """Return the run that these hosts continue; None if they begin a new one.

    :arg is_drill: whether it is a drill. No other run is open beside one.

    Raises L(Conflict) if some of them are in another open run, L(InvalidState) for a run that is finished or that a person has to name first,
    L(InvalidArgument) if the named run has other hosts.
    """
    if ledger is None:
        return None
    if run_id:
        return _named_run(ledger.read_maintenance_run(run_id).maintenance_run, hosts, is_drill)
    for run in list_open_runs(ledger):
        shared = [host for host in run.host_names if host in hosts]
        if is_drill or run.drill:
            shared = shared or list(hosts)
        if not shared:
            continue
        if set(run.host_names) != set(hosts) or bool(run.drill) != is_drill:
            raise MAINTENANCE_RUNS.make_shared_hosts_error(run, shared)
        if seconds_between(run.created_at, at) > CONTINUE_SECONDS:
            raise InvalidState(
                f"These hosts are in {MAINTENANCE_RUNS.describe_run(run)}, which began more than a day ago. Nothing was changed.",
                f"Continue it with -e {run.variable}={run.id}, or end it: kvmfleet.migration.maintenance -e run={run.id} -e request=stop.",
            )
        return run
    return None


def _named_run(run: MaintenanceRun, hosts: Sequence[str], is_drill: bool) -> MaintenanceRun:
    if bool(run.drill) != is_drill:
        raise InvalidArgument(f"{run.id} is a {run.noun}.", "Continue it with its own playbook. Nothing was changed.")
    if run.state == m.FINISHED:
        raise InvalidState(f"The {run.noun} {run.id} is finished.", f"Begin a new one, without {run.variable}. Nothing was changed.")
    if set(run.host_names) != set(hosts):
        raise InvalidArgument(
            f"The {run.noun} {run.id} has the hosts {', '.join(run.host_names)}, and the target has {', '.join(hosts)}.",
            "Give the same hosts as target. Nothing was changed.",
        )
    return run


def check_continuation(run: t.Optional[MaintenanceRun], holder: RunHolder, is_confirmed: bool) -> None:
    """Raise L(Conflict) if another process may still carry out the run."""
    if run:
        check_take_over(run, holder, is_alive(run.holder) if run.holder else False, is_confirmed)


@dataclass(frozen=True)
class RunStart:
    """What a process begins or continues.

    :arg found: the run that it continues; None for a new one.
    :arg limits: called for the limits of a new run.
    :arg drill: what makes a new run a drill.
    """

    found: t.Optional[MaintenanceRun]
    hosts: Sequence[PlannedHost]
    limits: Callable[[], RunOptions]
    until: t.Optional[str]
    holder: RunHolder
    is_confirmed: bool
    drill: t.Optional[Drill] = None

    def write(self, ledger: Ledger) -> MaintenanceRun:
        """Write the run and return it; this process holds it then."""
        if self.found is None:
            return create_run(ledger, self.hosts, self.limits(), self.holder, self.drill)
        if self.found.holder and self.found.is_open and self.holder.is_same_process(self.found.holder):
            return self.found
        return change_run(ledger, self.found.id, self.holder.by, self._take_over)[0]

    def _take_over(self, run: MaintenanceRun, now: Now) -> tuple[MaintenanceRun, None]:
        # Another process may have begun to continue it since it was found.
        check_continuation(run, self.holder, self.is_confirmed)
        return take_over(run, self.holder, now, self.until), None


def read_planned(hosts: Sequence[str], planned: Mapping[str, Mapping[str, t.Any]]) -> list[PlannedHost]:
    """Return the hosts in their order, with what the tasks before have found out about each."""
    return [
        PlannedHost(
            host,
            has_work=bool(planned.get(host, {}).get("has_work", True)),
            keep_maintenance=bool(planned.get(host, {}).get("keep_maintenance", False)),
            predicted_seconds=int(planned.get(host, {}).get("predicted_seconds") or 0),
        )
        for host in hosts
    ]
