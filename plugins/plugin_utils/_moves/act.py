# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Acting on decisions: opening records, handing the moves to a watcher, following them, and replacing a watcher that died."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Forbidden, InvalidArgument, KvmfleetError, NotSupported, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import value
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.booking import Booking
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.conclude import already_there
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.follow import Follower
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Context, Facts, Job, guarded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.mirror import Mirror
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.order import check_hosts, order_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.remote import State
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.turns import Turns
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.queue import Limits, limits_of

# A watcher that dies is replaced so often within one task; then the record is left to the next run.
MAX_ADOPTIONS = 3


class Actor:
    """Carries out what was decided about the jobs of one task.

    :arg show: is given each state of a move, for progress lines.
    :arg parallel: how many moves run at the same time.
    """

    def __init__(self, context: Context, show: t.Callable[[State], None], parallel: int) -> None:
        self._context = context
        self._parallel = parallel
        self._turns = Turns(context.ledger, context.by, parallel)
        self._follower = Follower(context.source, self._turns, context.run_id, show)

    def seen(self, jobs: list[Job]) -> dict[str, t.Any] | None:
        """Return what the hosts of these jobs said, by libvirt URI, after all of their moves had ended; None where nobody has asked them."""
        return self._follower.seen({job.uuid: job.watcher for job in jobs if job.mirror and job.watcher})

    def carry_out(self, view: FleetView, jobs: list[Job]) -> None:
        """Bring each job to the end of its move, or to its error."""
        booking = Booking(self._context, view)
        for job in jobs:
            guarded(job, lambda job: self._open(view, job, booking))
        self._start([job for job in jobs if job.order])
        followed = [job for job in jobs if job.mirror and not job.error]
        for attempt in range(MAX_ADOPTIONS + 1):
            orphans = self._follow(followed)
            if not orphans or attempt == MAX_ADOPTIONS:
                return
            for job in orphans:
                self._adopt_again(job)
            self._start(orphans)
            followed = orphans

    def _open(self, view: FleetView, job: Job, booking: Booking) -> None:
        self._follower.stop_if_orphaned()
        context, decision = self._context, job.decision
        if isinstance(decision, d.AlreadyThere):
            job.record = already_there(context, view.survey, job, decision)
        elif isinstance(decision, d.Start):
            check_hosts(context, view.survey, job, decision.candidates)
            job.mirror = Mirror(context.ledger, booking.book(job, decision), owner=True)
            job.order = order_of(context, job, adopt=False)
        elif isinstance(decision, d.AdoptForeign):
            job.mirror = Mirror(context.ledger, booking.adopt_foreign(job, decision.host), owner=True)
            job.order = order_of(context, job, adopt=True)
        elif isinstance(decision, d.Conclude):
            job.mirror = Mirror(context.ledger, decision.stored, owner=True)
            job.mirror.write(decision.record)
        elif isinstance(decision, (d.Observe, d.Adopt)):
            self._join(job, decision)
        if job.order and job.mirror:
            self._turns.enter(job.mirror, self._limits(view, job, job.mirror), job.request.queue_timeout_seconds)

    @staticmethod
    def _limits(view: FleetView, job: Job, mirror: Mirror) -> Limits:
        """Return the limits that the move is under: none where it has begun already, or is forced."""
        if job.request.force or not isinstance(job.decision, d.Start):
            return {}
        return limits_of(view.scheduler(mirror.record["source"]["host"]), view.scheduler(mirror.record["destination"]["host"]))

    def _join(self, job: Job, decision: d.Observe | d.Adopt) -> None:
        self._warn_of_differences(job, decision.stored.record)
        job.mirror = Mirror(self._context.ledger, decision.stored, owner=isinstance(decision, d.Adopt))
        if isinstance(decision, d.Adopt):
            job.order = order_of(self._context, job, adopt=True)
        else:
            job.watcher = job.domain["watch"]["record"]["watcher"]

    def _start(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        # What was booked is given back by the next run.
        self._follower.stop_if_orphaned()
        self._turns.ask()
        for job in jobs:
            t.cast(Facts, job.order)["waits"] = self._turns.waits(t.cast(Mirror, job.mirror))
        work = {"run_id": self._context.run_id, "parallel": self._parallel, "orders": [job.order for job in jobs]}
        try:
            started = self._context.source.phase("start", work)
        except KvmfleetError as error:
            for job in jobs:
                self._not_started(job, error)
            return
        self._warn_of_session(started.get("session_warning"))
        for job in jobs:
            refusal = started["refused"].get(job.uuid)
            if refusal:
                self._not_started(job, Conflict(refusal["msg"]))
            else:
                job.watcher = started["watcher"]

    def _warn_of_session(self, warning: str | None) -> None:
        """Say once that the watcher could not leave the login session on its host."""
        told = f"{self._context.source.name}: {warning}"
        if warning and told not in self._context.warnings:
            self._context.warnings.append(told)

    def _not_started(self, job: Job, error: KvmfleetError) -> None:
        """Keep the error; and close the record of a move of ours that certainly was not begun."""
        job.error = error
        certain = isinstance(error, (Forbidden, NotSupported, InvalidArgument, Conflict))
        if certain and job.mirror and job.order and not job.order["adopt"]:
            record = schema.copied(job.mirror.record)
            schema.advance(record, s.FAILED, self._context.by, f"Nothing was started: {error}")
            job.mirror.write(record)
            error.result["migrations"] = [job.mirror.record]

    def _follow(self, jobs: list[Job]) -> list[Job]:
        """Follow the jobs that have a watcher; return those whose watcher has died before it said how the move ended."""
        live = {job.uuid: job for job in jobs if job.watcher and not job.error}
        if not live:
            return []
        watchers = {uuid: t.cast("t.Mapping[str, t.Any]", job.watcher) for uuid, job in live.items()}
        mirrors = {uuid: t.cast(Mirror, job.mirror) for uuid, job in live.items()}
        lost: dict[str, KvmfleetError] = {}
        try:
            orphans = self._follower.follow(mirrors, watchers, lost)
        except Unreachable as error:
            orphans, open_moves = [], {uuid: mirror for uuid, mirror in mirrors.items() if uuid not in lost and not mirror.is_settled}
            lost |= {uuid: Unreachable(error.message, error.next_step, migrations=[mirror.record]) for uuid, mirror in open_moves.items()}
        for uuid, trouble in lost.items():
            live[uuid].error = trouble
            live[uuid].moved = trouble.result["migrations"][0]["status"] == s.COMPLETED and live[uuid].was_at_source
        return [live[uuid] for uuid in orphans]

    def _adopt_again(self, job: Job) -> None:
        source = self._context.source
        self._context.warnings.append(f"The watcher of domain {job.request.label} on {source.name} has died; a new one takes over.")
        fresh = source.phase("prepare", {"wanted": [job.request.wanted()]})["survey"]["domains"][0]
        job.domain = {**job.domain, "watch": fresh["watch"]}
        job.order = order_of(self._context, job, adopt=True)
        job.watcher = None
        self._turns.leave(t.cast(Mirror, job.mirror))

    def _warn_of_differences(self, job: Job, record: schema.Record) -> None:
        for option, given in job.request.given.items():
            recorded = value(record["policy"], option)
            if recorded != given:
                self._context.warnings.append(
                    f"The move of domain {job.request.label} was begun with {option}={recorded}; {option}={given} of this task is not applied."
                )
