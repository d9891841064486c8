# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""All cold moves of one task: what they decide and order in the order of L(TaskRun).

Also the settling of one record without a new move, for a person's decision.
"""

from __future__ import annotations

import time
import typing as t
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions, migration_flags, migration_parameters
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, HostClock
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cold_moves import ColdAnswer, ColdOrder, ColdSurvey, ColdTraits
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, error_for_code
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import OFFLINE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.decide import decide_cold_move
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.request import ColdRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.reserve import ColdReservations, filters_for
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import ShowRecord, final_error, find_arrival
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RecordMirror, RunContext, run_guarded, unkept_error
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import ORDER_SECONDS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.task_run import TaskRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import RunProcess

ORDERED = "Both hosts are changed from now on. The source acts, and reports when both were asked for the result."


@dataclass
class ColdJob(MoveJob):
    """One request during a run.

    :arg traits: what the source reports about the domain in addition to the survey.
    """

    traits: ColdTraits | None = None

    @property
    def cold(self) -> ColdRequest:
        """The request."""
        return t.cast(ColdRequest, self.request)

    @property
    def is_adopted(self) -> bool:
        """Whether an earlier move of the domain is settled."""
        return isinstance(self.decision, d.Adopt)


class ColdRun(TaskRun[ColdRequest, ColdJob]):
    """Carries out the cold moves of one task on one source host.

    :arg show: receives each state of a move, for progress lines.
    """

    record_type = s.COLD_MIGRATION

    def __init__(self, context: RunContext, show: ShowRecord) -> None:
        super().__init__(context)
        self._show = show
        self._clock: HostClock | None = None
        self._run_process = RunProcess()

    def query_hosts(self, requests: t.Sequence[ColdRequest], will_move: bool) -> tuple[Survey, list[ColdJob]]:
        """Return what the source, and the destinations as the source sees them, report about these domains, and a job for each. Changes nothing."""
        work = {"wanted": encode([request.survey_question() for request in requests])}
        found = decode(ColdSurvey, self.context.source.run_phase("prepare", work)["survey"])
        self._clock = HostClock(found.at, time.monotonic())
        each = zip(requests, found.survey.domains, found.traits, strict=True)
        return found.survey, [ColdJob(request, domain=domain, traits=traits) for request, domain, traits in each]

    def decide_job(self, view: FleetView, job: ColdJob, stored: Stored | None) -> d.Decision:
        """Return the decision about one domain, which this unsettled record holds."""
        if job.cold.method == OFFLINE and job.traits:
            job.cold.saved = job.traits.saved or None
        job.request.filters = filters_for(job.cold)
        known = self.context.ledger.read_domain(job.domain.at_source.uuid) if job.domain.at_source else None
        return decide_cold_move(job.cold, self.context.source.name, view.survey, job.domain, job.traits, stored, known.domain if known else None)

    def make_reservations(self, view: FleetView) -> ColdReservations:
        """Return what verifies and books destinations."""
        return ColdReservations(self.context, view)

    def carry_out(self, view: FleetView, jobs: t.Sequence[ColdJob]) -> None:
        """Order the moves from the source."""
        reservations = self.make_reservations(view)
        for job in jobs:
            run_guarded(job, lambda job: self._prepare_one(view, job, reservations))
        # The next run settles the records, and moves the domains.
        self._run_process.require()
        order_moves(self.context, [job for job in jobs if job.mirror and not job.error], self._show, self._clock)

    def needs_new_move(self, job: ColdJob) -> bool:
        """Whether this was an earlier move that was only settled now, and did not bring the domain to the wanted destination."""
        if not job.is_adopted or job.mirror is None or job.mirror.record.status not in s.CLOSED:
            return False
        record = job.mirror.record
        return record.status != s.COMPLETED or job.request.destination not in (None, record.destination.host)

    def will_move(self, job: ColdJob) -> bool:
        """Whether the end of an earlier move is a change: it is not known before."""
        return True

    def _prepare_one(self, view: FleetView, job: MoveJob, reservations: ColdReservations) -> None:
        """Write what the ledger needs before the source is ordered to act."""
        self._run_process.require()
        context, decision = self.context, job.decision
        if isinstance(decision, d.Start):
            job.mirror = RecordMirror(context.ledger, reservations.reserve_destination(job, decision), owner=True)
            job.mirror.write_record(job.mirror.record.advance(s.RUNNING, context.by, ORDERED))
        elif isinstance(decision, d.Refuse):
            raise reservations.record_refusal(job, decision)
        elif isinstance(decision, d.Adopt):
            job.mirror = RecordMirror(context.ledger, decision.stored, owner=True)
        elif isinstance(decision, d.AlreadyThere):
            job.record = find_arrival(context, view.survey, job, decision, self.record_type)


@dataclass(frozen=True)
class MoveAnswer:
    """What the phase C(move) returns."""

    answers: tuple[ColdAnswer, ...]
    extra: t.Mapping[str, t.Any] = field(default_factory=dict)


def order_moves(context: RunContext, jobs: t.Sequence[ColdJob], show: ShowRecord, clock: HostClock | None = None) -> None:
    """Let the source carry out, or settle, the moves whose records these jobs have; each has its record or its error afterwards.

    :arg clock: that of the source; null if all of them are settled.
    """
    if not jobs:
        return
    for job in jobs:
        show(t.cast(RecordMirror, job.mirror).record, None)
    until = clock.moment_of(time.monotonic() + ORDER_SECONDS) if clock else None
    orders = [make_order(context, t.cast(RecordMirror, job.mirror).record, None if job.is_adopted else until, job.request.options) for job in jobs]
    try:
        answers = decode(MoveAnswer, {"answers": context.source.run_phase("move", {"orders": encode(orders)})["answers"]}).answers
    except KvmfleetError as error:
        for job in jobs:
            record = t.cast(RecordMirror, job.mirror).record
            job.error = type(error)(error.message, error.next_step, migrations=[encode(record)])
        return
    by_uuid = {answer.uuid: answer for answer in answers}
    for job in jobs:
        try:
            _conclude_job(context, job, by_uuid[job.uuid], show)
        except KvmfleetError as error:
            # The source has acted on all of them.
            job.error = error


def make_order(context: RunContext, record: MoveRecord, until: BootMoment | None, options: MoveOptions) -> ColdOrder:
    """Return the order for the source.

    :arg until: until when it may arrive there; null for a move that is settled.
    """
    recorded, host = record.connection.destination_uri if record.connection else None, str(record.destination.host)
    order = ColdOrder(record, str(recorded or context.settings.libvirt_uri(host, context.source.name)), until is None, begin_until=until or ABSENT)
    if not record.cold or not record.cold.resumes_as:
        return order
    # The definitions stay where they are: what arrives is saved there, and then the source is undefined.
    flags = (*migration_flags(options, persistent=False, auto_converge=False), "PAUSED")
    return replace(order, flags=flags, parameters=migration_parameters(replace(options, migrate_uri=context.settings.migrate_uri(host))))


def _conclude_job(context: RunContext, job: ColdJob, answer: ColdAnswer, show: ShowRecord) -> None:
    """Write the answer of the source to the ledger."""
    mirror = t.cast(RecordMirror, job.mirror)
    if answer.record is None:
        error = error_for_code(str(answer.error_code))(answer.msg)
        if not job.is_adopted:
            _write_end(mirror, mirror.record.advance(s.FAILED, context.by, f"Nothing was changed: {error}"))
        error.result["migrations"] = [encode(mirror.record)]
        raise error
    job.moved = answer.record.status == s.COMPLETED
    _write_end(mirror, answer.record)
    job.record = mirror.record
    job.moved = job.record.status == s.COMPLETED
    show(job.record, None)
    if job.record.status != s.COMPLETED and answer.error_code and answer.error_code != "internal":
        raise error_for_code(answer.error_code)(answer.msg, migrations=[encode(job.record)])
    job.error = final_error(job.record)


def _write_end(mirror: RecordMirror, record: MoveRecord) -> None:
    """Write the record as its move has ended. Raises the ledger's error with the move and its end."""
    try:
        mirror.write_record(record)
    except KvmfleetError as error:
        raise unkept_error(error, record, f", which has ended there as '{record.status}'. {record.last_detail}") from error


@dataclass
class ColdSettlement:
    """Settles one unsettled record of a cold move by asking its hosts, on its source. It finishes or undoes that move, and never starts another."""

    context: RunContext
    stored: Stored

    def predict_end(self) -> MoveRecord:
        """Return the record as it is: only its hosts can tell. Changes nothing."""
        return self.stored.record

    def settle_move(self) -> MoveRecord:
        """Return the record in its last status. Raises L(Conflict) if another host is its source, and what the source reports."""
        record = self.stored.record
        mirror = RecordMirror(self.context.ledger, self.stored, owner=True)
        request = ColdRequest(None, record.domain.uuid, None, {}, None, MoveOptions(), GivenPolicy(), label=record.domain.name or "")
        job = ColdJob(request, decision=d.Adopt(self.stored), mirror=mirror)
        order_moves(self.context, [job], lambda record, waits_for: None)
        if job.error and mirror.record.status not in s.CLOSED:
            raise job.error
        return mirror.record
