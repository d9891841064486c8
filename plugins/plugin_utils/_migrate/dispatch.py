# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Dispatches decisions: opens records, orders moves from a watcher, follows them, and replaces a watcher that died."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import migration_flags, migration_parameters
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    Forbidden,
    InvalidArgument,
    KvmfleetError,
    NotSupported,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import read_given_policy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import AUTO_PARALLEL, AUTO_WINDOW, StartOrder, Watcher
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.admission import AdmissionQueue
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import Follower, ShowRecord, find_arrival
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RecordMirror, RunContext, run_guarded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.reserve import Reservations
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.shared_links import SharedLinks
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.admission import MoveLimits, limits_between


def make_order(context: RunContext, job: MoveJob, adopt: bool) -> StartOrder:
    """Return the order for the watcher; for an adopted move from its own state file if that is newer than the ledger.

    The caller sets whether the move waits for admission.
    """
    record = d.newest_record(t.cast(RecordMirror, job.mirror).record, d.read_watch(job.domain))
    options, policy = job.streams.apply_to(job.request.options), read_given_policy(record.policy)
    persistent = bool(job.domain.at_source and job.domain.at_source.view.persistent)
    migrate_uri = job.request.migrate_uri or context.settings.migrate_uri(str(record.destination.host))
    copied = [disk.target for disk in record.disk_copies]
    parameters = migration_parameters(options, copied)
    destination_uri = _destination_uri(context, record)
    return StartOrder(
        record=record,
        source_uri=context.uri,
        destination_uri=destination_uri,
        flags=tuple(migration_flags(options, persistent, policy.auto_converge, policy.post_copy, copied)),
        parameters={**parameters, "migrate_uri": migrate_uri} if migrate_uri else parameters,
        adopt=adopt,
        waits=False,
        aborted_by=(job.decision.aborted_by if isinstance(job.decision, d.Adopt) else None) or ABSENT,
        busy_wait_seconds=job.request.busy_wait_seconds or ABSENT,
        renaming=ABSENT if adopt else job.request.renamings.get(destination_uri, ABSENT),
    )


def _destination_uri(context: RunContext, record: MoveRecord) -> str:
    recorded = record.connection.destination_uri if record.connection else None
    return str(recorded or context.settings.libvirt_uri(str(record.destination.host), context.source.name))


@dataclass(frozen=True)
class Refusal:
    """Why the watcher did not take a move."""

    msg: str
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class StartAnswer:
    """What the phase C(start) returns.

    :arg refused: by UUID of its domain, each move that the watcher did not take.
    :arg session_warning: why the watcher could not leave the login session.
    """

    refused: t.Mapping[str, Refusal]
    watcher: Watcher
    session_warning: t.Union[str, Absent, None] = ABSENT
    extra: JsonObject = field(default_factory=dict)


# How often one task replaces a watcher that dies; after that the record is left to the next run.
MAX_ADOPTIONS = 3
# How often orders are sent that have not arrived, although the source answers.
MAX_ORDERS = 3


class Dispatcher:
    """Carries out what was decided about the jobs of one task.

    :arg show: receives each state of a move, and what the move waits for, for progress lines.
    :arg parallel: how many moves run at the same time, or C(AUTO_PARALLEL).
    :arg wait_seconds: how long the moves are followed; null for as long as they last.
    """

    def __init__(self, context: RunContext, show: ShowRecord, parallel: int, wait_seconds: float | None = None) -> None:
        self._context = context
        self._parallel = parallel
        self._admissions = AdmissionQueue(context.ledger, context.by, parallel or AUTO_WINDOW)
        links = SharedLinks(context.ledger) if parallel == AUTO_PARALLEL else None
        self._follower = Follower(context.source, self._admissions, context.run_id, show, wait_seconds=wait_seconds, links=links)

    def read_seen_facts(self, jobs: list[MoveJob]) -> t.Mapping[str, JsonObject] | None:
        """Return the answers of the hosts of these jobs, by libvirt URI, after all their moves had ended; None if they were not queried."""
        return self._follower.read_seen_facts({job.uuid: job.watcher for job in jobs if job.mirror and job.watcher})

    def dispatch_jobs(self, view: FleetView, jobs: list[MoveJob]) -> None:
        """Run each job until its move ends or fails."""
        reservations = Reservations(self._context, view)
        for job in jobs:
            run_guarded(job, lambda job: self._open_job(view, job, reservations))
        self._start_watchers([job for job in jobs if job.order])
        followed = [job for job in jobs if job.mirror and not job.error]
        for attempt in range(MAX_ADOPTIONS + 1):
            orphans = self._follow_jobs(followed)
            if not orphans or attempt == MAX_ADOPTIONS:
                return
            for job in orphans:
                self._adopt_again(job)
            self._start_watchers(orphans)
            followed = orphans

    def _open_job(self, view: FleetView, job: MoveJob, reservations: Reservations) -> None:
        self._follower.stop_if_orphaned()
        context, decision = self._context, job.decision
        if isinstance(decision, d.AlreadyThere):
            job.record = find_arrival(context, view.survey, job, decision)
        elif isinstance(decision, d.Start):
            job.mirror = RecordMirror(context.ledger, reservations.reserve_destination(job, decision), owner=True)
            job.order = make_order(context, job, adopt=False)
        elif isinstance(decision, d.Refuse):
            raise reservations.record_refusal(job, decision)
        elif isinstance(decision, d.AdoptForeign):
            job.mirror = RecordMirror(context.ledger, reservations.adopt_foreign(job, decision.host), owner=True)
            job.order = make_order(context, job, adopt=True)
        elif isinstance(decision, d.Conclude):
            job.mirror = RecordMirror(context.ledger, decision.stored, owner=True)
            job.mirror.write_record(decision.record)
        elif isinstance(decision, (d.Observe, d.Adopt)):
            self._join_move(job, decision)
        if job.order and job.mirror:
            self._admissions.add_move(job.mirror, self._find_limits(view, job, job.mirror), job.request.queue_timeout_seconds)

    @staticmethod
    def _find_limits(view: FleetView, job: MoveJob, mirror: RecordMirror) -> MoveLimits:
        """Return the limits of the move: none if it has begun already, or is forced."""
        if job.request.force or not isinstance(job.decision, d.Start):
            return {}
        source, destination = (view.scheduler_settings(str(end.host)) for end in mirror.record.ends)
        return limits_between(source, destination)

    def _join_move(self, job: MoveJob, decision: d.Observe | d.Adopt) -> None:
        self._warn_of_differences(job, decision.stored.record)
        job.mirror = RecordMirror(self._context.ledger, decision.stored, owner=isinstance(decision, d.Adopt))
        if isinstance(decision, d.Adopt):
            job.order = make_order(self._context, job, adopt=True)
        else:
            job.watcher = decision.watcher

    def _start_watchers(self, jobs: list[MoveJob], attempt: int = 1) -> None:
        if not jobs:
            return
        # The next run releases the reservation.
        self._follower.stop_if_orphaned()
        self._admissions.admit_moves()
        until = self._context.source.order_until()
        for job in jobs:
            order, waits = t.cast(StartOrder, job.order), self._admissions.is_waiting(t.cast(RecordMirror, job.mirror))
            job.order = replace(order, waits=waits, begin_until=ABSENT if order.adopt else until)
        work: JsonObject = {"run_id": self._context.run_id, "parallel": self._parallel, "orders": [encode(job.order) for job in jobs]}
        try:
            started = decode(StartAnswer, self._context.source.start_watcher(work))
        except Unreachable as error:
            self._start_missed(jobs, error, attempt)
            return
        except KvmfleetError as error:
            for job in jobs:
                self._keep_start_error(job, error)
            return
        self._warn_of_session(started.session_warning or None)
        for job in jobs:
            job.watcher = None if job.uuid in started.refused else started.watcher
        self._settle_refused([job for job in jobs if not job.watcher], started.refused)

    def _start_missed(self, jobs: list[MoveJob], lost: Unreachable, attempt: int) -> None:
        """Find the watchers that have started although the connection was lost, and send the other orders again: a record begins once on its host."""
        try:
            watchers = self._find_started_watchers(jobs)
        except KvmfleetError:
            watchers, attempt = {}, MAX_ORDERS
        for job in jobs:
            job.watcher = watchers.get(job.uuid)
        missed = [job for job in jobs if not job.watcher]
        if attempt < MAX_ORDERS:
            self._start_watchers(missed, attempt + 1)
            return
        for job in missed:
            self._keep_start_error(job, lost)

    def _settle_refused(self, jobs: list[MoveJob], refused: t.Mapping[str, Refusal]) -> None:
        """Follow moves that the first of two commands has started, and the second one was refused: SSH repeats one whose connection broke before its answer."""
        if not jobs:
            return
        try:
            watchers = self._find_started_watchers(jobs)
        except KvmfleetError as error:
            for job in jobs:
                self._keep_start_error(job, self._unknown_start_error(job, refused[job.uuid], error))
            return
        for job in jobs:
            job.watcher = watchers.get(job.uuid)
            if not job.watcher:
                self._keep_start_error(job, Conflict(refused[job.uuid].msg))

    def _unknown_start_error(self, job: MoveJob, refusal: Refusal, error: KvmfleetError) -> Unreachable:
        source = self._context.source.name
        return Unreachable(
            f"{source} refused the move of domain {job.request.label}. {refusal.msg} Whether this task has started that move is not known: {error.message}",
            f"Its record stays open. Run the task again when {source} can be reached: it follows the move, or begins it.",
        )

    def _find_started_watchers(self, jobs: list[MoveJob]) -> dict[str, Watcher]:
        """Return, by UUID of its domain, each watcher of these moves that this run has started, if the connection was lost before the source had answered.

        Raises the error of a source that does not tell.
        """
        questions = [job.request.survey_question() for job in jobs]
        survey = self._follower.wait_for_answer(lambda: self._context.source.prepare_moves(questions))
        found = {job.uuid: (job, d.read_watch(domain)) for job, domain in zip(jobs, survey.domains, strict=True)}
        return {uuid: watch.watcher for uuid, (job, watch) in found.items() if watch and watch.watcher and self._is_started_by_us(job, watch)}

    def _is_started_by_us(self, job: MoveJob, watch: d.Watch) -> bool:
        return watch.record_id == t.cast(StartOrder, job.order).record.id and t.cast(Watcher, watch.watcher).run_id == self._context.run_id

    def _warn_of_session(self, warning: str | None) -> None:
        """Warn once that the watcher could not leave the login session on its host."""
        text = f"{self._context.source.name}: {warning}"
        if warning and text not in self._context.warnings:
            self._context.warnings.append(text)

    def _keep_start_error(self, job: MoveJob, error: KvmfleetError) -> None:
        """Keep the error, and close the record of a move that this task opened and that certainly was not started."""
        job.error = error
        certain = isinstance(error, (Forbidden, NotSupported, InvalidArgument, Conflict))
        if certain and job.mirror and job.order and not job.order.adopt:
            job.mirror.write_record(job.mirror.record.advance(s.FAILED, self._context.by, f"Nothing was started: {error}"))
            error.result["migrations"] = [encode(job.mirror.record)]

    def _follow_jobs(self, jobs: list[MoveJob]) -> list[MoveJob]:
        """Follow the jobs that have a watcher; return those whose watcher died before it reported the end of the move."""
        live = {job.uuid: job for job in jobs if job.watcher and not job.error}
        if not live:
            return []
        watchers = {uuid: t.cast(Watcher, job.watcher) for uuid, job in live.items()}
        mirrors = {uuid: t.cast(RecordMirror, job.mirror) for uuid, job in live.items()}
        lost: dict[str, KvmfleetError] = {}
        try:
            orphans = self._follower.follow_moves(mirrors, watchers, lost)
        except Unreachable as error:
            orphans, open_moves = [], {uuid: mirror for uuid, mirror in mirrors.items() if uuid not in lost and not _is_settled_by_now(mirror)}
            lost |= {uuid: Unreachable(error.message, error.next_step, migrations=[encode(mirror.record)]) for uuid, mirror in open_moves.items()}
        for uuid, trouble in lost.items():
            live[uuid].error = trouble
            live[uuid].moved = trouble.result["migrations"][0]["status"] == s.COMPLETED and live[uuid].was_at_source
        return [live[uuid] for uuid in orphans]

    def _adopt_again(self, job: MoveJob) -> None:
        source = self._context.source
        self._context.warnings.append(f"The watcher of domain {job.request.label} on {source.name} has died; a new one takes over.")
        fresh = source.prepare_moves([job.request.survey_question()])
        job.domain = replace(job.domain, watch=fresh.domains[0].watch)
        job.order = make_order(self._context, job, adopt=True)
        job.watcher = None
        self._admissions.drop_move(t.cast(RecordMirror, job.mirror))

    def _warn_of_differences(self, job: MoveJob, record: MoveRecord) -> None:
        policy = read_given_policy(record.policy)
        for option, given in job.request.given.items():
            recorded = policy.value_of(option)
            if recorded != given:
                self._context.warnings.append(
                    f"The move of domain {job.request.label} was started with {option}={recorded}; {option}={given} of this task is not applied."
                )


def _is_settled_by_now(mirror: RecordMirror) -> bool:
    """Return whether the move is settled, also by somebody else: an evacuation of a silent source closes its records."""
    if not mirror.is_settled:
        with contextlib.suppress(KvmfleetError):
            mirror.read_again()
    return mirror.is_settled
