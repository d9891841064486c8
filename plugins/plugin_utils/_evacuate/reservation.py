# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reserves the host for a domain of an evacuation.

The scheduler judges the host under its lock, and the record is pre-migrating on disk before the domain is started.
"""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef, host_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import NOT_SURVEYED, CpuVerdict

from .._ledger.documents import Stored
from .._ledger.host_entries import host_lock_name
from .._ledger.rules import describe_record
from .._migrate.fleet_view import FleetView
from .._scheduler.filters.base import Filter, Finding
from .._scheduler.filters.policy import Traits, trait_text
from .._scheduler.fleet import Fleet, HostState
from .._scheduler.loss_rules import LOSS_FILTERS
from .._scheduler.request import Request
from .._scheduler.verdicts import BYPASSED_PREFIX, Verdict, check_host, describe_filters_off
from .job import EvacuationContext, EvacuationJob


class KeptTraits(Traits):
    """A trait that the policy of a domain requires does not prevent its start: the guest is down. That the host lacks it is a warning."""

    def host_passes(self, request: Request, host: HostState, fleet: Fleet) -> bool:
        """Return true."""
        return True

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the traits that the host lacks, or may lack, with its own explanation."""
        known, lacking = host.hardware.traits, host.hardware.missing_traits
        return Finding(
            warnings=tuple(
                f"{trait_text(trait)}, which the policy of {request.name} requires, is not available on {host.name}: {lacking[trait]} It is started there "
                "anyway; a later move needs a policy without it, or another host."
                if trait in lacking
                else f"{trait_text(trait)}, which the policy of {request.name} requires, is unverified on {host.name}: no host_facts gathered there say it."
                for trait in request.traits
                if trait not in known
            )
        )


# Tokens prove more about storage than its names.
START_FILTERS: t.Final[tuple[Filter, ...]] = (*(rule for rule in LOSS_FILTERS if rule.name != "storage"), KeptTraits())
# A domain that stays off needs no memory and CPUs.
OFF_FILTERS: t.Final[tuple[Filter, ...]] = tuple(
    rule for rule in START_FILTERS if rule.name in ("not_source", "up", "enabled", "machine_type", "resource_maps", "labels", "traits")
)


def filters_for(job: EvacuationJob) -> tuple[Filter, ...]:
    """Return the rules by which a host is judged for this domain."""
    return OFF_FILTERS if job.wanted == domain_states.SHUTOFF else START_FILTERS


def build_request(job: EvacuationJob) -> Request:
    """Return what the domain needs by its effective policy, with its saved names. Raises L(InvalidArgument) for an invalid saved request."""
    try:
        source = job.source
        request = Request.from_needs(job.request, job.uuid, job.name, source.name, source.entry.host_uuid or "", source_id=source.host_id)
        return replace(request, names=job.names) if job.names else request
    except InvalidArgument as error:
        raise InvalidArgument(f"The saved requirements of domain {job.name} ({job.uuid}) are invalid: {error.message}", "It was not started.") from error


def request_here(job: EvacuationJob) -> Request:
    """Return what the domain needs by the names of the host that the task runs on. Raises as L(build_request)."""
    request = build_request(job)
    return request.rename(job.renaming) if job.renaming else request


def judge_target_host(job: EvacuationJob, view: FleetView, uri: str, cpu: t.Optional[JsonObject], force: bool) -> Verdict:
    """Return the verdict on the host that the task runs on, from the ledger as it is now."""
    surveyed = replace(NOT_SURVEYED, cpu={uri: decode(CpuVerdict, cpu)} if cpu else {})
    fleet = view.build_fleet(surveyed, job.uuid, {view.source: uri})
    return check_host(build_request(job), fleet.states[view.source], fleet, filters_for(job), force)


FORCED_REBUILD = "FORCED_REBUILD"


def record_refusal(
    context: EvacuationContext, job: EvacuationJob, destination: HostRef, why: str, filters_off: Iterable[str], reason: t.Optional[str] = None
) -> t.Optional[Stored]:
    """Return the record, closed as C(conflict), of an evacuation that the destination was refused for; None if another run's record holds the domain now."""
    try:
        stored = context.ledger.open_record(_make_record(context, job, destination, (), build_request(job)).judge_without(sorted(filters_off)))
        return context.ledger.update_record(stored, stored.record.advance(s.CONFLICT, context.by, why, reason))
    except Conflict:
        return None


def _make_record(context: EvacuationContext, job: EvacuationJob, destination: HostRef, evidence: Sequence[JsonObject], request: Request) -> MoveRecord:
    record = new_record(
        s.EVACUATION,
        domain=DomainRef(job.uuid, job.name),
        source=job.source.host_ref,
        destination=destination,
        policy={},
        by=context.by,
        request={} if job.wanted == domain_states.SHUTOFF else request.as_json(),
        forced=FORCED_REBUILD if context.options.force else None,
    )
    detection = context.detection or ABSENT
    return replace(record, before=_state_before(job), wanted_state=job.wanted, evidence=tuple(evidence), detection=detection)


@dataclass
class EvacuationReservation:
    """:arg destination: the host that starts the domains.

    :arg cpu: libvirt's verdicts by UUID.
    :arg former_generations: those that it remembers, see L(find_former_generations).
    """

    context: EvacuationContext
    view: FleetView
    destination: HostRef
    cpu: t.Mapping[str, t.Optional[JsonObject]]
    former_generations: t.Mapping[str, int] = field(default_factory=dict)
    _records: dict[str, MoveRecord] = field(default_factory=dict)
    _fleet: Fleet = field(default_factory=Fleet)

    def predict_record(self, job: EvacuationJob) -> None:
        """Set the job's record to the one that would be opened, without an ID. Raises L(Conflict) if the host cannot accept it."""
        verdict = judge_target_host(job, self.view, self.context.uri, self.cpu.get(job.uuid), self.context.options.force)
        if not verdict.passed:
            raise self._refused_error(job, verdict)
        job.prediction, job.changed = self._make_record(job, []).judge_without(verdict.filters_off).predict(), True
        self.view.planned.append(job.prediction)
        self._add_warnings(job, verdict)

    def rejoin_record(self, job: EvacuationJob, evidence: Sequence[JsonObject]) -> None:
        """Continue the job's record from an earlier run."""
        stored = self.context.ledger.find_unsettled(job.uuid)
        if stored is None or job.candidate.record is None or stored.record.id != job.candidate.record.id:
            raise Conflict(f"The record of domain {job.name} was settled by another run meanwhile.", "Run the task again.")
        record = stored.record.add_evidence(evidence)
        if record.status == s.ERROR:
            record = record.advance(s.PRE_MIGRATING, self.context.by, "An earlier run could not determine its result. The host is queried again.")
        else:
            record = record.note("rejoined", self.context.by, "An earlier run did not see its end. The host is queried again.")
        job.stored = self.context.ledger.update_record(stored, record)

    def supersede_older(self, job: EvacuationJob, evidence: Sequence[JsonObject]) -> None:
        """Supersede the older record of the domain, if any, by the one that L(reserve_host) will write. Raises L(Conflict) if the older one is in use."""
        if job.older is not None:
            self._records[job.uuid] = self._make_record(job, evidence)
            self._supersede_record(job, job.older, self._records[job.uuid].record_id, evidence)

    @contextlib.contextmanager
    def lock_host(self) -> Iterator[None]:
        """Prevent other processes from reserving this host: its load is what was read at the beginning, and what is reserved here."""
        with self.context.ledger.hold_lock(host_lock_name(self.destination)):
            self._fleet = self.view.build_fleet(NOT_SURVEYED, "", {self.view.source: self.context.uri})
            yield

    def reserve_host(self, job: EvacuationJob, evidence: Sequence[JsonObject]) -> None:
        """Bring a new record to C(pre-migrating), while L(lock_host). Raises L(Conflict), with the record, if the host cannot accept the domain."""
        verdict = self._judge_host(job)
        record = self._records.get(job.uuid) or self._make_record(job, evidence)
        stored = self.context.ledger.open_record(record.judge_without(verdict.filters_off))
        if self._was_overtaken(job, stored.record):
            self._advance_record(stored, s.CONFLICT, "Another run had a record of this domain meanwhile.")
            raise Conflict(f"Another run had a record of domain {job.name} meanwhile. It was not started.", "Run the task again.")
        if not verdict.passed:
            refusal = self._refused_error(job, verdict)
            job.stored = self._advance_record(stored, s.CONFLICT, refusal.message)
            raise refusal
        job.stored = self._advance_record(stored, s.PRE_MIGRATING, _reservation_text(self.context.options.force, verdict))
        if job.wanted != domain_states.SHUTOFF:
            self._fleet = self._fleet.with_domain(build_request(job), self.view.source)
        self._add_warnings(job, verdict)

    def _was_overtaken(self, job: EvacuationJob, opened: MoveRecord) -> bool:
        """Whether another run has opened a record of the domain since the job was made."""
        before = job.candidate.entry.generation or 0
        if job.uuid not in self.former_generations:
            return opened.generation != before + 1
        # Above the generations of another ledger, the number alone does not tell.
        return any(before < one.generation < opened.generation for one in self.context.ledger.list_records(domain=job.uuid))

    def _add_warnings(self, job: EvacuationJob, verdict: Verdict) -> None:
        self.context.warnings += [f"Domain {job.name}: {warning}" for warning in verdict.warnings]

    def _make_record(self, job: EvacuationJob, evidence: Sequence[JsonObject]) -> MoveRecord:
        record = _make_record(self.context, job, self.destination, evidence, request_here(job))
        return record.raise_generation(self.former_generations.get(job.uuid, 0)).rewrite(job.renamed.changes)

    def _judge_host(self, job: EvacuationJob) -> Verdict:
        cpu = self.cpu.get(job.uuid)
        host = replace(self._fleet.states[self.view.source], cpu_verdicts={job.uuid: decode(CpuVerdict, cpu)} if cpu else {})
        return check_host(build_request(job), host, self._fleet, filters_for(job), self.context.options.force)

    def _supersede_record(self, job: EvacuationJob, older: MoveRecord, new_id: str, evidence: Sequence[JsonObject]) -> None:
        """Give up the record that holds the domain, if its hosts are off or do not run it."""
        # A record changes from accepted to pre-migrating only under its destination's lock.
        with self.context.ledger.hold_lock(host_lock_name(older.destination)):
            stored = self.context.ledger.find_unsettled(job.uuid)
            if stored is None:
                return
            if stored.record.id != older.id or stored.record.status != older.status:
                raise Conflict(f"{describe_record(stored.record)} changed meanwhile: its status is '{stored.record.status}'.", "Run the task again.")
            record, by = stored.record.add_evidence(evidence), self.context.by
            if _never_arrived(record, job.source.host_ref) and not (job.has_older_copy or _is_off(record.destination, evidence)):
                record = record.advance(s.FAILED, by, f"{job.source.name} is off by evidence, and {record.destination.label} does not have the domain.")
            else:
                found = f"{record.destination.label} has it off" if job.has_older_copy else "Its hosts are off by evidence, or do not have it"
                detail = f"{found}. Taken over by {new_id}."
                record = record.supersede(new_id).note("superseded", by, detail)
            self.context.ledger.update_record(stored, record)

    def _advance_record(self, stored: Stored, status: str, detail: str) -> Stored:
        return self.context.ledger.update_record(stored, stored.record.advance(status, self.context.by, detail))

    def _refused_error(self, job: EvacuationJob, verdict: Verdict) -> Conflict:
        return Conflict(f"{verdict.host} cannot accept domain {job.name}: {verdict.reason}", "It was not started.")


def _state_before(job: EvacuationJob) -> Before:
    """Return the domain as it was saved."""
    saved = job.saved
    # After its new host has protected the domain, only the record still has its disks on this host.
    disks = saved.disks or () if saved.host and saved.host.is_same(job.source.host_ref) else None
    return Before(
        state=saved.state or None,
        persistent=bool(saved.persistent),
        autostart=bool(saved.autostart),
        state_at=saved.state_at or None,
        saved_at=saved.at or None,
        disks=disks,
    )


def _never_arrived(record: MoveRecord, source: HostRef) -> bool:
    """Whether the record can be closed: an evacuation that had not begun, or a live migration away from a host that is off now."""
    if record.type == s.EVACUATION:
        return record.status == s.ACCEPTED
    return record.source.is_same(source)


def _is_off(host: HostRef, evidence: Sequence[JsonObject]) -> bool:
    """Whether there is evidence about that host, which therefore did not answer: a domain may have arrived there."""
    return any(host.may_be(host_of(one)) for one in evidence)


def _reservation_text(force: bool, verdict: Verdict) -> str:
    off = describe_filters_off(verdict)
    if not force:
        return f"The host was verified and booked.{off}"
    bypassed = [warning.removeprefix(BYPASSED_PREFIX) for warning in verdict.warnings if warning.startswith(BYPASSED_PREFIX)]
    return f"The host was booked by force. {'Bypassed: ' + ' '.join(bypassed) if bypassed else 'Nothing had to be bypassed.'}{off}"
