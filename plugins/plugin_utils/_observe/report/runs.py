# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Maintenance runs in a report: the hosts of each with their steps and times, and who began, paused, stopped and continued it."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill, HostProgress, HostStep, MaintenanceRun, RunOptions

from ..._ledger.ledger import Ledger
from ..._ledger.selection import make_selection


@dataclass(frozen=True)
class ReportedStep:
    """A step of a host.

    :arg seconds: how long it took; null if it did not end.
    :arg is_fenced: whether the fence agent has switched the host off and on in it.
    """

    step: str
    began_at: str
    seconds: t.Optional[int]
    is_fenced: bool


@dataclass(frozen=True)
class ReportedRunHost:
    """A host of a run; C(error) is why it failed or was not begun."""

    name: str
    status: str
    seconds: t.Optional[int]
    error: t.Optional[str]
    steps: tuple[ReportedStep, ...]


@dataclass(frozen=True)
class ReportedEvent:
    """A line of the history of a run."""

    at: str
    event: str
    by: str
    host: t.Optional[str]
    detail: str


@dataclass(frozen=True)
class ReportedDrilledGuest:
    """A guest of a drill; see L(DrilledGuest)."""

    name: str
    destination: t.Optional[str]
    seconds: t.Optional[float]
    stages: t.Mapping[str, float]
    problem: t.Optional[str]


@dataclass(frozen=True)
class ReportedDrill:
    """What makes a run a drill; see L(Drill)."""

    passed: t.Optional[bool]
    cut_at: t.Optional[str]
    limit_seconds: int
    median_seconds: t.Optional[float]
    longest_seconds: t.Optional[float]
    reasons: tuple[str, ...]
    guests: tuple[ReportedDrilledGuest, ...]


@dataclass(frozen=True)
class ReportedRun:
    """A maintenance run.

    :arg limits: the options of the run, as words.
    :arg reason: why it is paused or stopped.
    :arg drill: absent for a run that is none.
    """

    id: str
    state: str
    created_at: str
    created_by: str
    updated_at: str
    limits: tuple[str, ...]
    reason: t.Optional[str]
    hosts: tuple[ReportedRunHost, ...]
    history: tuple[ReportedEvent, ...]
    drill: t.Union[ReportedDrill, Absent] = ABSENT


def select_runs(ledger: Ledger, since: t.Optional[str], until: t.Optional[str], host: t.Optional[str]) -> list[MaintenanceRun]:
    """Return the runs that were written last in that time and have that host, in the order in which they began."""
    runs = [document.maintenance_run for document in ledger.list_maintenance_runs()]
    return [run for run in runs if is_in_scope(run.updated_at, run.host_names, since, until, host)]


def is_in_scope(updated_at: str, hosts: t.Collection[str], since: t.Optional[str], until: t.Optional[str], host: t.Optional[str]) -> bool:
    """Whether a run of these hosts that was written last at that time is part of a report."""
    wanted = make_selection(since=since, until=until)
    return (host is None or host in hosts) and (wanted.since is None or updated_at >= wanted.since) and (wanted.until is None or updated_at < wanted.until)


def describe_run(run: MaintenanceRun) -> ReportedRun:
    """Return the run as the report shows it."""
    return ReportedRun(
        id=run.id,
        state=run.state,
        created_at=run.created_at,
        created_by=run.created_by,
        updated_at=run.updated_at,
        limits=tuple(_describe_limits(run.options)),
        reason=run.reason,
        hosts=tuple(map(_describe_host, run.hosts)),
        history=tuple(ReportedEvent(line.at, line.event, line.by, line.host, line.detail) for line in run.history),
        drill=_describe_drill(run.drill) if run.drill else ABSENT,
    )


def _describe_drill(drill: Drill) -> ReportedDrill:
    guests = tuple(ReportedDrilledGuest(one.name, one.destination, one.seconds, one.stages, one.problem) for one in drill.guests)
    return ReportedDrill(drill.passed, drill.cut_at, drill.limit_seconds, drill.median_seconds, drill.longest_seconds, drill.reasons, guests)


def verdict_word(drill: ReportedDrill) -> str:
    """Return the verdict in a word or two."""
    return "no verdict yet" if drill.passed is None else "passed" if drill.passed else "failed"


def stages_text(guest: ReportedDrilledGuest) -> str:
    """Return the stages of a guest, e.g. C(detection 2.1 s, evidence 6.0 s)."""
    return ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in guest.stages.items())


def _describe_limits(options: RunOptions) -> t.Iterator[str]:
    yield f"at most {options.max_unavailable} out of service"
    yield f"at most {options.max_failures} failed"
    if options.canary:
        minutes = options.canary_minutes
        yield f"canary, then {'a person' if minutes is None else f'{minutes} minutes'}"
    if options.until:
        yield f"until {options.until[:16].replace('T', ' ')} UTC"


def _describe_host(progress: HostProgress) -> ReportedRunHost:
    return ReportedRunHost(progress.host, progress.status, progress.seconds or None, progress.error, tuple(map(_describe_step, progress.steps)))


def _describe_step(step: HostStep) -> ReportedStep:
    seconds = None
    if step.ended_at:
        seconds = round((datetime.datetime.fromisoformat(step.ended_at) - datetime.datetime.fromisoformat(step.began_at)).total_seconds())
    return ReportedStep(step.step, step.began_at, seconds, bool(step.fenced_at))


def step_text(step: ReportedStep) -> str:
    """Return a step with its duration, e.g. C(reboot (fenced) 84 s)."""
    return f"{step.step}{' (fenced)' if step.is_fenced else ''}{f' {step.seconds} s' if step.seconds is not None else ''}"
