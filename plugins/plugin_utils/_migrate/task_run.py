# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The order of the steps in which a task moves domains, live or cold: survey, decide, carry out, and a second time for what had to be settled first."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import check_own_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import (
    check_known,
    find_former_generations,
    find_missing_records,
    missing_text,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView, RecentMoves
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import find_arrival
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RunContext, run_guarded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest, apply_policy, check_unique
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.reserve import Reservations

# A request of one kind of moves, and its job.
R = t.TypeVar("R", bound=MoveRequest)
J = t.TypeVar("J", bound=MoveJob)


class TaskRun(abc.ABC, t.Generic[R, J]):
    """Carries out the requests of one task on one source host. Kinds of moves differ in what is asked, decided, and done."""

    # The type of the records.
    record_type = s.LIVE_MIGRATION

    def __init__(self, context: RunContext) -> None:
        self.context = context

    @abc.abstractmethod
    def query_hosts(self, requests: Sequence[R], will_move: bool) -> tuple[Survey, list[J]]:
        """Return what the hosts report, and a job for each request. Moves nothing.

        :arg will_move: whether the moves will be carried out, and not only predicted.
        """

    @abc.abstractmethod
    def decide_job(self, view: FleetView, job: J, stored: Stored | None) -> d.Decision:
        """Return the decision about one domain, which this unsettled record holds. Raises the error with which the task fails."""

    @abc.abstractmethod
    def make_reservations(self, view: FleetView) -> Reservations:
        """Return what verifies and books destinations."""

    @abc.abstractmethod
    def carry_out(self, view: FleetView, jobs: Sequence[J]) -> None:
        """Do what was decided; each job has its record or its error afterwards."""

    @abc.abstractmethod
    def needs_new_move(self, job: J) -> bool:
        """Whether this was an earlier move that was only settled now, and did not bring the domain to the wanted destination."""

    def predict_moves(self, requests: Sequence[R]) -> list[J]:
        """Return what L(run_moves) would do, with the records it would write. Changes nothing."""
        view, jobs = self.survey_moves(requests, will_move=False)
        reservations = self.make_reservations(view)
        for job in jobs:
            run_guarded(job, lambda job: self._predict_one(view, job, reservations))
        return jobs

    def run_moves(self, requests: Sequence[R]) -> list[J]:
        """Carry the requests out; each job has its record or its error at the end."""
        jobs = self._run_once(requests)
        again = [index for index, job in enumerate(jobs) if self.needs_new_move(job)]
        if again:
            fresh = self._run_once([t.cast(R, jobs[index].request) for index in again])
            for index, job in zip(again, fresh, strict=True):
                job.moved = job.moved or jobs[index].moved
                jobs[index] = job
        return jobs

    def _run_once(self, requests: Sequence[R]) -> list[J]:
        view, jobs = self.survey_moves(requests, will_move=True)
        self.carry_out(view, jobs)
        return jobs

    def survey_moves(self, requests: Sequence[R], will_move: bool) -> tuple[FleetView, list[J]]:
        """Return the fleet in its current state, and a job with its decision or its error for each request.

        Raises L(InvalidArgument) for a domain that is named twice, and for invalid settings of a host.
        """
        arrivals = RecentMoves(self.context.ledger)
        self._add_known_uuids(requests)
        survey, jobs = self.query_hosts(requests, will_move)
        for job in jobs:
            if job.domain.at_source:
                job.request.label = job.domain.at_source.name
        view = self._view_fleet(survey, jobs, arrivals)
        self._note_missing_records(view)
        for job in jobs:
            run_guarded(job, lambda job: self._decide_one(view, t.cast(J, job)))
        view.check_settings({host for job in jobs if isinstance(job.decision, d.Start) for host in job.decision.candidates})
        return view, jobs

    def _add_known_uuids(self, requests: Sequence[R]) -> None:
        for request in requests:
            known = self.context.ledger.find_domains(request.name) if request.name else []
            request.known_uuids = [document.domain.uuid for document in known]

    def _view_fleet(self, survey: Survey, jobs: Sequence[J], arrivals: RecentMoves) -> FleetView:
        context = self.context
        uuids = [job.domain.at_source.uuid for job in jobs if job.domain.at_source]
        check_unique(uuids)
        uris = {host: uri for job in jobs for host, uri in job.request.uris.items()}
        return FleetView(context.ledger, context.settings, context.source.name, survey, uris, arrivals, frozenset(uuids))

    def _note_missing_records(self, view: FleetView) -> None:
        context = self.context
        remembered = list(view.remembered_moves())
        context.missing, context.former_generations = find_missing_records(context.ledger, remembered), find_former_generations(context.ledger, remembered)
        context.warnings += [text for text in map(missing_text, context.missing) if text not in context.warnings]

    def _decide_one(self, view: FleetView, job: J) -> None:
        context, stored = self.context, self._find_unsettled(job)
        # Another record that holds the domain may be settled, which moves nothing.
        if job.domain.found and (stored is None or stored.record.id in {one.id for one in context.missing}):
            check_known(job.request.label, job.domain_uuid, context.missing)
        job.domain = replace(job.domain, seen_devices=view.seen_devices(job.domain, job.request.uris))
        job.decision = self.decide_job(view, job, stored)
        if isinstance(job.decision, (d.Start, d.AdoptForeign)):
            check_own_ledger(view.source, view.survey.source.ledger_id, context.ledger)
        if isinstance(job.decision, d.Start):
            job.decision = self._exclude_other_ledgers(view, job, job.decision)
        if isinstance(job.decision, d.Refuse) and isinstance(job.decision.error, Unreachable) and not context.settings.is_known(job.decision.host):
            # Neither the inventory nor the network knows a host of that name: this is bad input, and no refusal.
            host, error = job.decision.host, job.decision.error
            unknown = f"The inventory has no host {host}, so the name was taken as an address. Correct it if it is mistyped."
            raise Unreachable(error.message, f"{unknown} {error.next_step}")
        if isinstance(job.decision, (d.Start, d.Refuse, d.AdoptForeign)):
            self._add_policy(job)
        if isinstance(job.decision, d.Start) and not job.error:
            job.decision = self.check_abilities(view, job, job.decision)

    def _exclude_other_ledgers(self, view: FleetView, job: J, start: d.Start) -> d.Start | d.Refuse:
        """Return the decision without the candidates that belong to another ledger."""
        ledger, problems = self.context.ledger, dict[str, KvmfleetError]()
        for host in start.candidates:
            try:
                check_own_ledger(host, view.candidate_facts(host, job.request.uris[host]).ledger_id, ledger)
            except Conflict as error:
                problems[host] = error
        return d.exclude_hosts(job.request, start, problems)

    def check_abilities(self, view: FleetView, job: J, start: d.Start) -> d.Start | d.Refuse:
        """Return the decision without the candidates to which this kind of move cannot be carried out."""
        return start

    def _add_policy(self, job: J) -> None:
        """Apply the domain's own policy to the request. An invalid one fails this domain only, and not the task's other moves."""
        try:
            warnings = apply_policy(job.request, job.domain, self.context.settings, self.context.source.name)
        except InvalidArgument as error:
            job.error = error
        else:
            self.context.warnings += warnings

    def _find_unsettled(self, job: J) -> Stored | None:
        """Return the unsettled record that holds the domain of a job. Raises L(Conflict) if the name stands for several domains."""
        ledger = self.context.ledger
        if job.domain.at_source:
            return ledger.find_unsettled(job.domain.at_source.uuid)
        uuids = [job.request.uuid] if job.request.uuid else job.request.known_uuids
        held = [stored for stored in map(ledger.find_unsettled, uuids) if stored is not None]
        if len(held) > 1 or (len(uuids) > 1 and not job.domain.there):
            raise Conflict(f"The ledger has {len(uuids)} domains named {job.request.label}: {', '.join(uuids)}.", "Specify the domain by its UUID.")
        return held[0] if held else None

    def _predict_one(self, view: FleetView, job: MoveJob, reservations: Reservations) -> None:
        decision = job.decision
        if isinstance(decision, d.Start):
            job.record, job.moved = reservations.predict_record(job, decision), True
        elif isinstance(decision, d.Refuse):
            raise decision.error
        elif isinstance(decision, d.Conclude):
            job.record = decision.record
        elif isinstance(decision, (d.Observe, d.Adopt)):
            job.record, job.moved = decision.stored.record, self.will_move(t.cast(J, job))
        elif isinstance(decision, d.AlreadyThere):
            job.record = find_arrival(self.context, view.survey, job, decision, self.record_type)
        else:
            job.moved = True

    def will_move(self, job: J) -> bool:
        """Whether the end of an earlier move of the domain is a change."""
        return job.was_at_source
