# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The notices of a maintenance run: which events a change of its document has, and whether an event is true by the document."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import HostProgress, MaintenanceRun

from .cloud_events import CloudEvent, encode_event

PREFIX = "maintenance"
_STEP = "step"


@dataclass(frozen=True)
class RunNoticeData:
    """What happened to a maintenance run, or to a host of it.

    :arg run: its ID.
    :arg state: of the run with this event.
    :arg host: the host; null if the event is about the whole run.
    :arg step: the step that begins; null for any other event.
    :arg by: who wrote it: user, control node and process.
    :arg detail: a text, for people.
    """

    run: str
    state: str
    host: t.Optional[str]
    step: t.Optional[str]
    by: str
    detail: str


@dataclass(frozen=True)
class RunNotice(CloudEvent):
    """A notice of a maintenance run: an event of CloudEvents 1.0.

    :arg data: what happened.
    """

    data: RunNoticeData


class RunEventNotice(t.NamedTuple):
    """An event to be sent.

    :arg key: what its ID is made from, in addition to the ID of the run.
    """

    kind: str
    at: str
    key: str
    data: RunNoticeData


def make_run_events(before: t.Optional[MaintenanceRun], after: MaintenanceRun, ledger_id: str) -> list[JsonObject]:
    """Return the events of a change of a maintenance run, e.g. C(maintenance.started); C(before) is None for a new one."""
    return [encode_event(RunNotice, one.data, one.kind, after.id, one.at, ledger_id, name=one.key) for one in events_of_run(before, after)]


def events_of_run(before: t.Optional[MaintenanceRun], after: MaintenanceRun) -> Iterator[RunEventNotice]:
    """Yield an event for each line of history, and for each step that began, that C(before) (None: the run is new) does not have."""
    for line in after.history[len(before.history) if before else 0 :]:
        data = RunNoticeData(after.id, after.state, line.host, None, line.by, line.detail)
        yield RunEventNotice(f"{PREFIX}.{line.event}", line.at, f"{line.event} {line.host} {line.at}", data)
    for progress in after.hosts:
        old = before.find_host(progress.host) if before else None
        yield from _step_events(after, progress, old)


def _step_events(run: MaintenanceRun, progress: HostProgress, old: t.Optional[HostProgress]) -> Iterator[RunEventNotice]:
    known = {(step.step, step.began_at) for step in old.steps} if old else set()
    for step in progress.steps:
        if (step.step, step.began_at) not in known:
            by = run.holder.by if run.holder else run.created_by
            data = RunNoticeData(run.id, run.state, progress.host, step.step, by, "")
            yield RunEventNotice(f"{PREFIX}.{_STEP}", step.began_at, f"{progress.host} {step.step} {step.began_at}", data)


def is_in_run(data: t.Mapping[str, t.Any], at: str, kind: str, run: MaintenanceRun) -> bool:
    """Whether the document of the run has what the event says.

    :arg kind: e.g. C(maintenance.started).
    """
    if kind == f"{PREFIX}.{_STEP}":
        progress = run.find_host(str(data["host"]))
        return progress is not None and any((step.step, step.began_at) == (data["step"], at) for step in progress.steps)
    return any((f"{PREFIX}.{line.event}", line.at, line.host) == (kind, at, data["host"]) for line in run.history)
