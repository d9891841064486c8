# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""All live moves of one task: what they decide and dispatch in the order of L(TaskRun).

Also the settling of one record without a new move, for an abort and for a person's decision.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions, check_combination, migration_flags
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JOB_OUTGOING, POST_COPY, POST_COPY_FAILED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    InvalidState,
    NotFound,
    NotSupported,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_decisions import has_lost_source, settle_record
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import (
    BEFORE_A_HOST_KNOWS,
    restore_record,
    write_restored,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.dispatch import Dispatcher
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView, RecentMoves
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import (
    ShowRecord,
    conclude_job,
    describe_lost_checkpoints,
    needs_new_move,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RecordMirror, RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import (
    MoveRequest,
    check_source_traits,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.reserve import Reservations, find_unable_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.task_run import TaskRun


class MoveRun(TaskRun[MoveRequest, MoveJob]):
    """Carries out the live moves of one task on one source host."""

    def __init__(self, context: RunContext, parallel: int, show: ShowRecord) -> None:
        super().__init__(context)
        self._actor = Dispatcher(context, show, parallel)

    def query_hosts(self, requests: t.Sequence[MoveRequest], will_move: bool) -> tuple[Survey, list[MoveJob]]:
        """Return what the hosts report, and a job for each request. Moves nothing."""
        run_id = self.context.run_id if will_move else None
        survey = self.context.source.prepare_moves([request.survey_question() for request in requests], run_id)
        return survey, [MoveJob(request, domain=domain) for request, domain in zip(requests, survey.domains, strict=True)]

    def decide_job(self, view: FleetView, job: MoveJob, stored: Stored | None) -> d.Decision:
        """Return the decision about one domain, which this unsettled record holds."""
        return d.decide_move(job.request, self.context.source.name, view.survey, job.domain, stored, self.context.by)

    def check_abilities(self, view: FleetView, job: MoveJob, start: d.Start) -> d.Start | d.Refuse:
        """Exclude the candidates to which the hypervisors cannot carry out this move, as its options and its policy require it.

        Raises L(NotSupported) for options that no hypervisor can combine.
        """
        request = job.request
        check_combination(request.options, migration_flags(request.options, True, False, request.policy.post_copy))
        try:
            warnings = check_source_traits(request, view.source_facts(), self.context.source.name)
        except NotSupported as error:
            return d.exclude_hosts(request, start, dict.fromkeys(start.candidates, error))
        decision = d.exclude_hosts(request, start, find_unable_hosts(view, request, job.domain, start.candidates))
        self.context.warnings += warnings if isinstance(decision, d.Start) else ()
        return decision

    def make_reservations(self, view: FleetView) -> Reservations:
        """Return what verifies and books destinations."""
        return Reservations(self.context, view)

    def carry_out(self, view: FleetView, jobs: t.Sequence[MoveJob]) -> None:
        """Dispatch the moves, and follow them to their ends."""
        self._actor.dispatch_jobs(view, list(jobs))
        for job in jobs:
            conclude_job(job)
        self.context.warnings += [text for text in (describe_lost_checkpoints(job.record) for job in jobs if job.moved) if text]

    def needs_new_move(self, job: MoveJob) -> bool:
        """Whether this was an earlier move that was only settled now, and did not bring the domain to the wanted destination."""
        return needs_new_move(job)

    def read_seen_facts(self, jobs: list[MoveJob]) -> dict[str, JsonObject]:
        """Return C({host: {gathered_at, host_uuid, host_id, domains}}): the answers of the hosts of these moves when all had ended.

        Empty if they were not queried: with a watcher of another run, or none at the end.
        """
        context = self.context
        names = {uri: host for job in jobs for host, uri in job.request.uris.items()} | {context.uri: context.source.name}
        return {names[uri]: facts for uri, facts in (self._actor.read_seen_facts(jobs) or {}).items() if uri in names}


_POST_COPY = (POST_COPY, POST_COPY_FAILED)


@dataclass
class MoveSettlement:
    """Settles one unsettled record of a live migration by asking its hosts, on its source. It never starts a move.

    :arg aborted_by: the person who aborts the move; without one, a move that is still in progress is refused.
    :arg wait_seconds: how long the result is waited for; null for as long as it takes.
    """

    context: RunContext
    stored: Stored
    aborted_by: str | None = None
    wait_seconds: float | None = None

    def predict_end(self) -> MoveRecord:
        """Return the record as it would be settled, or as it is if only its hosts can tell. Changes nothing. Raises as L(settle_move)."""
        _view, job = self._survey_move()
        return job.decision.record if isinstance(job.decision, d.Conclude) else self.stored.record

    def settle_move(self) -> MoveRecord:
        """Return the record in its last status. Raises L(InvalidState) or L(Conflict) if it cannot be settled here now, and what following it raises."""
        view, job = self._survey_move()
        Dispatcher(self.context, lambda record, waits_for: None, 1, self.wait_seconds).dispatch_jobs(view, [job])
        if job.error:
            raise job.error
        return t.cast(RecordMirror, job.mirror).record

    def _survey_move(self) -> tuple[FleetView, MoveJob]:
        """Return the decision about the record, as a job. What the ledger lacks does not matter: no move is started."""
        context, record = self.context, self.stored.record
        arrivals, uris = RecentMoves(context.ledger), self._uris_to_ask()
        request = MoveRequest(None, record.domain.uuid, None, uris, None, MoveOptions(), GivenPolicy(), label=record.domain.name or record.domain.uuid)
        survey = context.source.prepare_moves([request.survey_question()])
        job = MoveJob(request, domain=survey.domains[0])
        decision = d.decide_held(request, context.source.name, survey, job.domain, self.stored, context.by)
        self._check_ended(job, decision)
        job.decision = replace(decision, aborted_by=self.aborted_by) if isinstance(decision, d.Adopt) else decision
        return FleetView(context.ledger, context.settings, context.source.name, survey, uris, arrivals), job

    def _uris_to_ask(self) -> dict[str, str]:
        """Return the URI of the destination by its name; of a foreign job, whose destination is unknown, those of the whole fleet."""
        record, settings, source = self.stored.record, self.context.settings, self.context.source.name
        if record.is_foreign:
            return {host: settings.libvirt_uri(host, source) for host in settings.fleet() if host != source}
        host = str(record.destination.host)
        recorded = record.connection.destination_uri if record.connection else None
        return {host: str(recorded or settings.libvirt_uri(host, source))}

    def _check_ended(self, job: MoveJob, decision: d.Decision) -> None:
        record, info, watch = self.stored.record, job.domain.at_source, d.read_watch(job.domain)
        has_job = isinstance(decision, d.Adopt) and info is not None and (info.view.job == JOB_OUTGOING or info.view.reason in _POST_COPY)
        if self.aborted_by is None and (has_job or (watch is not None and watch.is_moving)):
            raise InvalidState(
                f"The move of domain {job.request.label} from {record.source.label} to {record.destination.label} is still in progress (record {record.id}, "
                f"'{record.status}').",
                "Wait for its end, or abort it with migration_abort. Nothing was changed.",
                migrations=[encode(record)],
            )


class Settlement(t.Protocol):
    """Settles one unsettled record of a move by asking its hosts."""

    def predict_end(self) -> MoveRecord:
        """Return the record as it would be settled, or as it is if only its hosts can tell. Changes nothing."""

    def settle_move(self) -> MoveRecord:
        """Return the record in its last status."""


# Returns the settlement of a record.
MakeSettlement = t.Callable[[Stored], Settlement]


# A person's status and the one that the hosts prove, if both say that the guest is on its source.
_ON_SOURCE = (s.FAILED, s.CANCELLED)


@dataclass
class RecordDecision:
    """A person's decision about a record.

    :arg name: the host that the decision is about.
    :arg phase: runs a phase of the module C(host) on that host; null if the task runs on another one.
    :arg settlements: what settles the records of moves, by their type.
    """

    context: RunContext
    record_id: str
    name: str
    reason: str
    check: bool
    phase: t.Callable[[str, JsonObject], JsonObject] | None
    settlements: t.Mapping[str, MakeSettlement]

    def settle_record(self, status: str) -> tuple[Stored | None, MoveRecord | None]:
        """Return the record as the ledger has it, and as it was settled, or would be in check mode; null if it has that status already.

        What the host remembers is restored, a move that is not C(error) is settled by the answers of its hosts, and the person's status is for the rest.
        Raises L(NotFound) for an unknown record, and what settling raises.
        """
        ledger, by = self.context.ledger, self.context.by
        stored = self._find_record()
        if self.phase and (stored is None or stored.record.status in BEFORE_A_HOST_KNOWS):
            recalled = self.phase("recall", {"id": self.record_id})["told"]
            if isinstance(recalled, t.Mapping):
                before, after = restore_record(recalled, status, self.name, self.reason, by)
                return stored, write_restored(ledger, stored, before, after, self.check)
        if stored is None:
            raise NotFound(
                f"There is no record {self.record_id}, neither in the ledger nor in what {self.name} remembers.", "Run the task on the host that remembers it."
            )
        record = stored.record
        is_source_gone = has_lost_source(record, list_entries(ledger))
        can_ask = bool(self.phase) and not is_source_gone and self.name in (record.source.host, *self.context.settings.fleet())
        if can_ask and record.type in self.settlements and record.is_unsettled and record.status != s.ERROR:
            return stored, self._settle_by_asking(stored, status)
        settled = settle_record(stored, status, self.reason, by, is_source_gone)
        return stored, ledger.update_record(stored, settled).record if settled and not self.check else settled

    def _find_record(self) -> Stored | None:
        """Return the record as the ledger has it; None if only the host can have it, which will be queried. Raises L(NotFound)."""
        try:
            return self.context.ledger.read_record(self.record_id)
        except NotFound:
            if self.phase is None:
                raise
            return None

    def _settle_by_asking(self, stored: Stored, status: str) -> MoveRecord:
        """Return the record, settled by the answers of its hosts, or by the person's status if these prove nothing.

        Raises L(Conflict), with the record, if the answers contradict the status: the record is closed by the answers.
        """
        settlement, ledger = self.settlements[stored.record.type](stored), self.context.ledger
        found = settlement.predict_end() if self.check else settlement.settle_move()
        if found.status == s.ERROR:
            now = replace(stored, record=found) if self.check else ledger.read_record(found.record_id)
            settled = settle_record(now, status, self.reason, self.context.by)
            return ledger.update_record(now, settled).record if settled and not self.check else settled or found
        if found.status not in s.CLOSED or found.status == status or {found.status, status} <= set(_ON_SOURCE):
            return found
        raise Conflict(
            f"Domain {found.domain.name} is not where '{status}' says: its hosts prove '{found.status}'. {found.last_detail}".rstrip(),
            f"{'The record would be' if self.check else 'The record is'} closed as '{found.status}', by these answers.",
            changed=not self.check,
            host=None,
            records=[encode(found)],
        )
