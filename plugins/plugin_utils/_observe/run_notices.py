# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The notices of a maintenance run: which events a change of its document has, and whether an event is true by the document."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import HostProgress, MaintenanceRun

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
class RunNotice:
    """A notice of a maintenance run: an event of CloudEvents 1.0.

    :arg specversion: of CloudEvents.
    :arg id: of the event; a notice that is sent twice has the same.
    :arg source: the ID of the ledger, as C(urn:uuid:...).
    :arg type: C(io.github.kvmfleet.migration.maintenance.) and the name of the event.
    :arg subject: the ID of the run.
    :arg time: when it happened.
    :arg datacontenttype: of C(data).
    :arg data: what happened.
    """

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str
    data: RunNoticeData


class RunEventNotice(t.NamedTuple):
    """An event to be sent.

    :arg key: what its ID is made from, in addition to the ID of the run.
    """

    kind: str
    at: str
    key: str
    data: RunNoticeData


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
