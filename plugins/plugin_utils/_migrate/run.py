# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""All moves of one task: survey, decide, reserve, dispatch, follow, conclude. If an earlier move had to be settled first, this runs twice.

Also the settling of one record without a new move, for an abort and for a person's decision.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions, check_combination, migration_flags
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JOB_OUTGOING, POST_COPY, POST_COPY_FAILED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    InvalidArgument,
    InvalidState,
    NotFound,
    NotSupported,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_decisions import settle_record
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import (
    BEFORE_A_HOST_KNOWS,
    check_known,
    find_missing_records,
    missing_text,
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
    find_arrival,
    needs_new_move,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RecordMirror, RunContext, run_guarded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import (
    MoveRequest,
    apply_policy,
    check_source_traits,
    check_unique,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.reserve import Reservations, find_unable_hosts


def survey_moves(context: RunContext, requests: t.Sequence[MoveRequest]) -> tuple[FleetView, list[MoveJob]]:
    """Return the fleet in its current state, and a job with its decision or its error for each request.

    Raises L(InvalidArgument) for a domain that is named twice, and for invalid settings of a host.
    """
    arrivals = RecentMoves(context.ledger)
    for request in requests:
        known = context.ledger.find_domains(request.name) if request.name else []
        request.known_uuids = [document.domain.uuid for document in known]
    survey = context.source.prepare_moves([request.survey_question() for request in requests])
    jobs = [MoveJob(request, domain=domain) for request, domain in zip(requests, survey.domains, strict=True)]
    for job in jobs:
        if job.domain.at_source:
            job.request.label = job.domain.at_source.name
    uuids = [job.domain.at_source.uuid for job in jobs if job.domain.at_source]
    check_unique(uuids)
    uris = {host: uri for request in requests for host, uri in request.uris.items()}
    view = FleetView(context.ledger, context.settings, context.source.name, survey, uris, arrivals, frozenset(uuids))
    context.missing = find_missing_records(context.ledger, view.remembered_moves())
    context.warnings += [text for text in map(missing_text, context.missing) if text not in context.warnings]
    for job in jobs:
        run_guarded(job, lambda job: _decide_job(context, view, job))
    view.check_settings({host for job in jobs if isinstance(job.decision, d.Start) for host in job.decision.candidates})
    return view, jobs


def _decide_job(context: RunContext, view: FleetView, job: MoveJob) -> None:
    stored = find_unsettled(context, job)
    # Another record that holds the domain may be settled, which moves nothing.
    if job.domain.found and (stored is None or stored.record.id in {one.id for one in context.missing}):
        check_known(job.request.label, job.domain_uuid, context.missing)
    job.domain = replace(job.domain, seen_devices=view.seen_devices(job.domain, job.request.uris))
    job.decision = d.decide_move(job.request, context.source.name, view.survey, job.domain, stored, context.by)
    if isinstance(job.decision, d.Refuse) and isinstance(job.decision.error, Unreachable) and not context.settings.is_known(job.decision.host):
        # Neither the inventory nor the network knows a host of that name: this is bad input, and no refusal.
        raise job.decision.error
    if isinstance(job.decision, (d.Start, d.Refuse, d.AdoptForeign)):
        _add_policy(context, job)
    if isinstance(job.decision, d.Start) and not job.error:
        job.decision = _check_abilities(context, view, job, job.decision)


def _check_abilities(context: RunContext, view: FleetView, job: MoveJob, start: d.Start) -> d.Start | d.Refuse:
    """Exclude the candidates to which the hypervisors cannot carry out this move, as its options and its policy require it.

    Raises L(NotSupported) for options that no hypervisor can combine.
    """
    request = job.request
    check_combination(request.options, migration_flags(request.options, True, False, request.policy.post_copy))
    try:
        warnings = check_source_traits(request, view.source_facts(), context.source.name)
    except NotSupported as error:
        return d.exclude_hosts(request, start, dict.fromkeys(start.candidates, error))
    decision = d.exclude_hosts(request, start, find_unable_hosts(view, request, start.candidates))
    context.warnings += warnings if isinstance(decision, d.Start) else ()
    return decision


def _add_policy(context: RunContext, job: MoveJob) -> None:
    """Apply the domain's own policy to the request. An invalid one fails this domain only, and not the task's other moves."""
    try:
        warnings = apply_policy(job.request, job.domain, context.settings, context.source.name)
    except InvalidArgument as error:
        job.error = error
    else:
        context.warnings += warnings


def find_unsettled(context: RunContext, job: MoveJob) -> Stored | None:
    """Return the unsettled record that holds the domain of a job. Raises L(Conflict) if the name stands for several domains."""
    if job.domain.at_source:
        return context.ledger.find_unsettled(job.domain.at_source.uuid)
    uuids = [job.request.uuid] if job.request.uuid else job.request.known_uuids
    held = [stored for stored in map(context.ledger.find_unsettled, uuids) if stored is not None]
    if len(held) > 1 or (len(uuids) > 1 and not job.domain.there):
        raise Conflict(f"The ledger has {len(uuids)} domains named {job.request.label}: {', '.join(uuids)}.", "Specify the domain by its UUID.")
    return held[0] if held else None


class MoveRun:
    """Carries out the requests of one task on one source host."""

    def __init__(self, context: RunContext, parallel: int, show: ShowRecord) -> None:
        self._context = context
        self._actor = Dispatcher(context, show, parallel)

    def predict_moves(self, requests: list[MoveRequest]) -> list[MoveJob]:
        """Return what L(run_moves) would do, with the records it would write. Changes nothing."""
        context = self._context
        view, jobs = survey_moves(context, requests)
        reservations = Reservations(context, view)
        for job in jobs:
            run_guarded(job, lambda job: self._predict_one(view, job, reservations))
        return jobs

    def run_moves(self, requests: list[MoveRequest]) -> list[MoveJob]:
        """Carry the requests out; each job has its record or its error at the end."""
        jobs = self._run_once(requests)
        # A move that was only settled now, and did not bring the domain to the wanted destination, is followed by a new move.
        again = [index for index, job in enumerate(jobs) if needs_new_move(job)]
        if again:
            fresh = self._run_once([jobs[index].request for index in again])
            for index, job in zip(again, fresh, strict=True):
                job.moved = job.moved or jobs[index].moved
                jobs[index] = job
        return jobs

    def read_seen_facts(self, jobs: list[MoveJob]) -> dict[str, JsonObject]:
        """Return C({host: {gathered_at, host_uuid, host_id, domains}}): the answers of the hosts of these moves when all had ended.

        Empty if they were not queried: with a watcher of another run, or none at the end.
        """
        context = self._context
        names = {uri: host for job in jobs for host, uri in job.request.uris.items()} | {context.uri: context.source.name}
        return {names[uri]: facts for uri, facts in (self._actor.read_seen_facts(jobs) or {}).items() if uri in names}

    def _run_once(self, requests: list[MoveRequest]) -> list[MoveJob]:
        view, jobs = survey_moves(self._context, requests)
        self._actor.dispatch_jobs(view, jobs)
        for job in jobs:
            conclude_job(job)
        self._context.warnings += [text for text in (describe_lost_checkpoints(job.record) for job in jobs if job.moved) if text]
        return jobs

    def _predict_one(self, view: FleetView, job: MoveJob, reservations: Reservations) -> None:
        context, decision = self._context, job.decision
        if isinstance(decision, d.Start):
            job.record = reservations.predict_record(job, decision)
            job.moved = True
        elif isinstance(decision, d.Refuse):
            raise decision.error
        elif isinstance(decision, d.Conclude):
            job.record = decision.record
        elif isinstance(decision, (d.Observe, d.Adopt)):
            job.record = decision.stored.record
            job.moved = job.was_at_source
        elif isinstance(decision, d.AlreadyThere):
            job.record = find_arrival(context, view.survey, job, decision)
        else:
            job.moved = True


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
                return stored, after if self.check else write_restored(ledger, stored, before, after)
        if stored is None:
            raise NotFound(
                f"There is no record {self.record_id}, neither in the ledger nor in what {self.name} remembers.", "Run the task on the host that remembers it."
            )
        record = stored.record
        if self.phase and record.type in self.settlements and record.is_unsettled and record.status != s.ERROR:
            return stored, self._settle_by_asking(stored, status)
        settled = settle_record(stored, status, self.reason, by)
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
