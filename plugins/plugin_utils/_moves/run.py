# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""All moves of one task: survey, decide, open records, start a watcher, follow, close. Twice where something had to be settled first."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.act import Actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.booking import Booking
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.conclude import already_there, conclude, goes_on
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.gather import gather
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Context, Job, guarded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.order import check_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.remote import State
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest


class MoveRun:
    """Carries out the requests of one task on one source host."""

    def __init__(self, context: Context, parallel: int, show: t.Callable[[State], None]) -> None:
        self._context = context
        self._actor = Actor(context, show, parallel)

    def predict(self, requests: list[MoveRequest]) -> list[Job]:
        """Return what L(execute) would do, with the records it would write. Changes nothing."""
        context = self._context
        view, jobs = gather(context, requests)
        booking = Booking(context, view)
        for job in jobs:
            guarded(job, lambda job: self._predict_one(view, job, booking))
        return jobs

    def execute(self, requests: list[MoveRequest]) -> list[Job]:
        """Carry the requests out; each job has its record or its error at the end."""
        jobs = self._pass(requests)
        # What was only settled now, and did not bring the domain where it is wanted, goes on as a new move.
        again = [index for index, job in enumerate(jobs) if goes_on(job)]
        if again:
            fresh = self._pass([jobs[index].request for index in again])
            for index, job in zip(again, fresh, strict=True):
                job.moved = job.moved or jobs[index].moved
                jobs[index] = job
        return jobs

    def seen(self, jobs: list[Job]) -> dict[str, t.Any]:
        """Return C({host: {gathered_at, host_uuid, host_id, domains}}): what the hosts of these moves said when all of them had ended.

        Empty where that was not asked: a watcher of another run, or none at the end.
        """
        context = self._context
        names = {uri: host for job in jobs for host, uri in job.request.uris.items()} | {context.uri: context.source.name}
        return {names[uri]: facts for uri, facts in (self._actor.seen(jobs) or {}).items() if uri in names}

    def _pass(self, requests: list[MoveRequest]) -> list[Job]:
        view, jobs = gather(self._context, requests)
        self._actor.carry_out(view, jobs)
        for job in jobs:
            conclude(job)
        return jobs

    def _predict_one(self, view: FleetView, job: Job, booking: Booking) -> None:
        context, decision = self._context, job.decision
        if isinstance(decision, d.Start):
            check_hosts(context, view.survey, job, decision.candidates)
            job.record = booking.predict(job, decision)
            job.moved = True
        elif isinstance(decision, d.Conclude):
            job.record = decision.record
        elif isinstance(decision, (d.Observe, d.Adopt)):
            job.record = decision.stored.record
            job.moved = job.was_at_source
        elif isinstance(decision, d.AlreadyThere):
            job.record = already_there(context, view.survey, job, decision)
        else:
            job.moved = True
