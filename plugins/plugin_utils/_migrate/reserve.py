# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reservations: the scheduler ranks the candidates, the destination is verified under its lock, and the status C(scheduled) in the ledger reserves it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import check_versions, migration_flags
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import prefer_feature
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import DomainInfo
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, KvmfleetError, NotSupported, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import SOURCE_HOST, SOURCE_TASK, TRAITS, GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before, Connection, DefinitionChange
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import host_lock_name, host_ref_from_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.decide import Refuse, Start, group_reasons
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.failover import refuse_without_reserve
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.known_facts import fill_disks
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.storage import add_copies, copied_bytes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.streams import choose_connections
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import (
    BYPASSED_PREFIX,
    Verdict,
    best_verdict,
    check_host,
    describe_filters_off,
    weigh_hosts,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.policies import add_scheduling

_NO_HOST = HostRef(None, None, None)


def choose_policy(view: FleetView, request: MoveRequest, domain: SurveyedDomain, host: str) -> GivenPolicy:
    """Return the policy of a move to that host. Post-copy that is only a default of the source gives way to what the task requests.

    If both features are only defaults, post-copy is used where both hosts are known to support it, else auto-converge.
    """
    policy = request.policy
    if not policy.post_copy or policy.source_of("post_copy") != SOURCE_HOST:
        return policy
    is_combinable = _can_combine_post_copy(view, request, domain, host)
    if policy.has_preference:
        hosts = (view.source_facts(), view.candidate_facts(host, request.uris[host]))
        return prefer_feature(policy, is_combinable and all(TRAITS["post_copy"] in (facts.traits or ()) for facts in hosts))
    return policy if is_combinable else replace(policy, post_copy=False, sources={**policy.sources, "post_copy": SOURCE_TASK})


def _can_combine_post_copy(view: FleetView, request: MoveRequest, domain: SurveyedDomain, host: str) -> bool:
    """Whether these two hosts can combine post-copy with the other options of the task."""
    try:
        _check_hypervisors(view, request, domain, host, post_copy=True)
    except NotSupported:
        return False
    return True


def find_unable_hosts(view: FleetView, request: MoveRequest, domain: SurveyedDomain, candidates: Iterable[str]) -> dict[str, KvmfleetError]:
    """Return, by candidate, why its hypervisor or that of the source cannot carry out the options of the move; only those that cannot."""
    problems: dict[str, KvmfleetError] = {}
    for host in candidates:
        try:
            _check_hypervisors(view, request, domain, host, choose_policy(view, request, domain, host).post_copy)
        except NotSupported as error:
            problems[host] = error
    return problems


def _check_hypervisors(view: FleetView, request: MoveRequest, domain: SurveyedDomain, host: str, post_copy: bool) -> None:
    versions = {view.source: view.versions_under(domain), host: view.survey.destinations[request.uris[host]].versions or {}}
    check_versions(request.options, migration_flags(request.options, True, False, post_copy), versions)


@dataclass(frozen=True)
class PlacementSubject:
    """The domain that needs a host, and its requirements; C(source) is empty for a request without a domain."""

    uuid: str
    name: str
    needs: DomainRequest
    source: str
    source_ref: HostRef = _NO_HOST


@dataclass(frozen=True)
class CandidateJudge:
    """Judges the candidates of one domain.

    :arg request: for the URIs of the candidates, C(unsafe), C(one_way) and C(force).
    :arg domain: the survey's part about the domain, with the answers of each candidate.
    :arg copied: what would be copied to a host: bytes by the disk's target.
    """

    view: FleetView
    subject: PlacementSubject
    request: MoveRequest
    domain: SurveyedDomain
    copied: Callable[[str], Mapping[str, int]]

    def build_request(self, host: str) -> Request:
        """Return the scheduler's request for a move to that host; what is copied differs between hosts."""
        subject = self.subject
        return Request.from_needs(
            subject.needs,
            subject.uuid,
            subject.name,
            subject.source,
            subject.source_ref.host_uuid or "",
            copied=self.copied(host),
            unsafe=self.request.options.unsafe,
            source_id=subject.source_ref.host_id,
            one_way=self.request.one_way,
        )

    def request_at(self, host: str) -> Request:
        """Return the request with the names of that host, as a record keeps it."""
        request, renaming = self.build_request(host), self.request.renamings.get(self.request.uris[host])
        return request.rename(renaming) if renaming else request

    def choose_policy(self, host: str) -> GivenPolicy:
        """Return the policy of a move to that host."""
        return choose_policy(self.view, self.request, self.domain, host)

    def candidate_facts(self, host: str) -> HostFacts:
        """Return the facts of a candidate that answered."""
        return self.view.candidate_facts(host, self.request.uris[host])

    def rank_hosts(self, hosts: Iterable[str], is_binding: bool = True) -> dict[str, Verdict]:
        """Return a verdict for each of these candidates, from the ledger as it is now; those that passed are weighed against each other.

        :arg is_binding: as for L(FleetView.build_fleet).
        """
        names = list(hosts)
        uris = {host: self.request.uris[host] for host in names}
        fleet = self.view.build_fleet(self.domain, self.subject.uuid, uris, has_group=bool(self.subject.needs.group), is_binding=is_binding)
        # What is copied differs between hosts, and so may the request that each of them is judged by.
        verdicts = {host: check_host(self.build_request(host), fleet.states[host], fleet, self.request.filters, self.request.force) for host in names}
        passed = [fleet.states[host] for host, verdict in verdicts.items() if verdict.passed]
        weights = weigh_hosts(self.build_request(passed[0].name), passed, fleet) if passed else {}
        ranked = {host: replace(verdict, weight=weights.get(host, 0.0)) for host, verdict in verdicts.items()}
        return refuse_without_reserve(self.view, self.request, self.build_request, ranked)


def make_judge(view: FleetView, request: MoveRequest, domain: SurveyedDomain) -> CandidateJudge:
    """Return the judge for the move of a surveyed domain. The policy and the scheduling of its request must be known."""
    return CandidateJudge(view, make_subject(view, request, domain), request, domain, lambda host: copied_bytes(request, domain, host))


def make_subject(view: FleetView, request: MoveRequest, domain: SurveyedDomain) -> PlacementSubject:
    """Return a domain that was found on the source, with the traits and the scheduling that its policy requires."""
    info = domain.source_info
    if not domain.request:
        raise Internal(f"The source host did not say what domain {info.name} needs.", "Nothing was moved.")
    needs = add_scheduling(fill_disks(domain.request, view.own_facts(), info.uuid), request.scheduling, request.policy)
    return PlacementSubject(info.uuid, info.name, needs, view.source, view.survey.source.host)


FORCED_MIGRATE = "FORCED_MIGRATE"

Verdicts = dict[str, Verdict]


@dataclass
class Reservations:
    """Verifies destinations and opens records, for the moves of one source host."""

    context: RunContext
    view: FleetView

    def predict_record(self, job: MoveJob, decision: Start) -> MoveRecord:
        """Return the record that L(reserve_destination) would write, without an id. Raises L(Conflict) if no candidate passes."""
        judge = make_judge(self.view, job.request, job.domain)
        verdicts = judge.rank_hosts(decision.candidates)
        chosen = best_verdict(list(verdicts.values()))
        if chosen is None:
            raise _refusal_error(job, decision, verdicts)
        self.choose_streams(job, judge, chosen.host)
        mark = f"Predicted in check mode. {_history_text(job, chosen, 'would be')}"
        record = add_copies(self.make_record(job, judge, chosen.host), job.request, job.domain, chosen.host)
        record = record.judge_without(chosen.filters_off).advance(s.SCHEDULED, self.context.by, mark).predict()
        self._add_warnings(job, chosen)
        # A predicted reservation reduces the capacity for the task's other moves.
        self.view.planned.append(record)
        return record

    def reserve_destination(self, job: MoveJob, decision: Start) -> Stored:
        """Open the record and bring it to C(queued). Raises L(Conflict), with the record, if no candidate passes."""
        judge = make_judge(self.view, job.request, job.domain)
        verdicts = judge.rank_hosts(decision.candidates, is_binding=False)
        chosen = best_verdict(list(verdicts.values()))
        first = chosen.host if chosen else decision.candidates[0]
        record = add_copies(self.make_record(job, judge, first), job.request, job.domain, first)
        stored = self.context.ledger.open_record(record.judge_without(verdicts[first].filters_off))
        while chosen is not None:
            booked = self._try_host(stored, job, judge, chosen.host, verdicts)
            if booked is not None:
                return booked
            verdicts |= judge.rank_hosts([host for host, verdict in verdicts.items() if verdict.passed])
            chosen = best_verdict(list(verdicts.values()))
        refusal = _refusal_error(job, decision, verdicts)
        refusal.result["migrations"] = [encode(self._advance_record(stored, s.CONFLICT, refusal.message).record)]
        raise refusal

    def record_refusal(self, job: MoveJob, refusal: Refuse) -> KvmfleetError:
        """Close a record of a move that was refused before the scheduler judged a host as C(conflict). Return the error of the refusal, with the record."""
        subject = make_subject(self.view, job.request, job.domain)
        # What would be copied to a host that cannot receive the domain is not determined.
        judge = CandidateJudge(self.view, subject, job.request, job.domain, lambda host: {})
        stored = self.context.ledger.open_record(self.make_record(job, judge, refusal.host))
        refusal.error.result["migrations"] = [encode(self._advance_record(stored, s.CONFLICT, refusal.error.message).record)]
        return refusal.error

    def _try_host(self, stored: Stored, job: MoveJob, judge: CandidateJudge, host: str, verdicts: Verdicts) -> Stored | None:
        """Reserve the host; if its lock is not available, close the record without a result."""
        try:
            return self._reserve_host(stored, job, judge, host, verdicts)
        except (Conflict, TimedOut) as error:
            with contextlib.suppress(KvmfleetError):
                error.result["migrations"] = [encode(self._advance_record(stored, s.CONFLICT, f"Nothing was booked: {error.message}").record)]
            raise

    def _reserve_host(self, stored: Stored, job: MoveJob, judge: CandidateJudge, host: str, verdicts: Verdicts) -> Stored | None:
        """Check the host again under its lock, where no other run can use the capacity, and reserve it; return None if it no longer passes."""
        with self.context.ledger.hold_lock(host_lock_name(self._host_ref(host, judge.candidate_facts(host)))):
            verdicts |= judge.rank_hosts([host])
            if not verdicts[host].passed:
                return None
            stored = self._write_scheduled(stored, job, judge, verdicts[host])
        self._add_warnings(job, verdicts[host])
        return self._advance_record(stored, s.QUEUED)

    def adopt_foreign(self, job: MoveJob, host: str) -> Stored:
        """Open the record of a foreign job."""
        record = add_copies(self.make_record(job, make_judge(self.view, job.request, job.domain), host), job.request, job.domain, host)
        info = job.domain.source_info
        # The definition at the destination is what the tool made that moves the domain, and is never removed.
        record = record.rewrite(())
        before = Before(state=info.view.state, persistent=info.view.persistent, autostart=info.autostart, at_destination=True)
        return self.context.ledger.open_record(replace(record, before=before, forced=None))

    def make_record(self, job: MoveJob, judge: CandidateJudge, host: str) -> MoveRecord:
        """Return the record of a move to that host, as it is opened."""
        info, request = job.domain.source_info, job.request
        record = new_record(
            s.LIVE_MIGRATION,
            domain=DomainRef(info.uuid, info.name),
            source=self._host_ref(self.context.source.name, self.view.source_facts()),
            destination=self._host_ref(host, judge.candidate_facts(host)),
            policy=judge.choose_policy(host).as_json(),
            by=self.context.by,
            request=self.booked_request(job, judge, host),
            forced=FORCED_MIGRATE if request.force else None,
        )
        connection = Connection(request.uris[host], request.options.bandwidth_mib, request.link_mib)
        predicted = self.context.predicted.get(info.uuid, ABSENT)
        record = replace(record, ledger_id=self.context.ledger.ledger_id, connection=connection, predicted=predicted)
        return record.raise_generation(self.context.former_generations.get(info.uuid, 0)).rewrite(_list_changes(job, host))

    def booked_request(self, job: MoveJob, judge: CandidateJudge, host: str) -> JsonObject:
        """Return what the record reserves at that host."""
        return judge.request_at(host).as_json()

    def _write_scheduled(self, stored: Stored, job: MoveJob, judge: CandidateJudge, verdict: Verdict) -> Stored:
        """Write the reservation of the host that passed, which may differ from the one in the opened record."""
        host = verdict.host
        self.choose_streams(job, judge, host)
        connection = replace(stored.record.connection or Connection(), destination_uri=job.request.uris[host])
        destination = self._host_ref(host, judge.candidate_facts(host))
        record = replace(
            stored.record,
            destination=destination,
            connection=connection,
            policy=judge.choose_policy(host).as_json(),
            request=self.booked_request(job, judge, host),
        ).rewrite(_list_changes(job, host))
        record = add_copies(record, job.request, job.domain, host).judge_without(verdict.filters_off)
        record = record.advance(s.SCHEDULED, self.context.by, _history_text(job, verdict))
        return self.context.ledger.update_record(stored, record)

    def choose_streams(self, job: MoveJob, judge: CandidateJudge, host: str) -> None:
        """Decide about the connections of the move, which depends on the host that was chosen."""
        migrate_uri = job.request.migrate_uri or self.context.settings.migrate_uri(host)
        job.streams = choose_connections(self.view, job.request, job.domain, host, bool(judge.choose_policy(host).post_copy), migrate_uri)

    def _advance_record(self, stored: Stored, status: str, detail: str = "") -> Stored:
        return self.context.ledger.update_record(stored, stored.record.advance(status, self.context.by, detail))

    def _host_ref(self, host: str, facts: HostFacts) -> HostRef:
        return host_ref_from_facts(self.context.ledger, host, encode(facts.host))

    def _add_warnings(self, job: MoveJob, verdict: Verdict) -> None:
        self.context.warnings += [f"Domain {job.request.label} to {verdict.host}: {warning}" for warning in verdict.warnings]


def _list_changes(job: MoveJob, host: str) -> Sequence[DefinitionChange]:
    """Return what differs in the definition at that host, according to the survey."""
    rewrite = (job.domain.rewrites or {}).get(job.request.uris[host])
    return rewrite.changes if rewrite else ()


def _history_text(job: MoveJob, verdict: Verdict, verb: str = "was") -> str:
    """Return the line of history for the reservation; of a forced one, with everything that was bypassed."""
    off = describe_filters_off(verdict)
    streams = f" {job.streams.reason}" if job.streams.reason else ""
    if not job.request.force:
        return f"The destination {verb} verified and booked.{off}{streams}"
    bypassed = [warning.removeprefix(BYPASSED_PREFIX) for warning in verdict.warnings if warning.startswith(BYPASSED_PREFIX)]
    return f"The destination {verb} booked by force. {'Bypassed: ' + ' '.join(bypassed) if bypassed else 'Nothing had to be bypassed.'}{off}{streams}"


def _refusal_error(job: MoveJob, decision: Start, verdicts: Verdicts) -> Conflict:
    """Return the error with the reasons of every host that was queried, including those that could not receive the domain at all."""
    label = job.request.label
    if job.request.destination:
        (verdict,) = verdicts.values()
        return Conflict(f"{verdict.host} cannot accept domain {label}: {verdict.reason}", "Nothing was moved.")
    reasons = {**decision.refused, **{host: verdict.reason for host, verdict in verdicts.items()}}
    return Conflict(f"No host of the group kvmfleet_hosts can accept domain {label}. {group_reasons(reasons)}", "Nothing was moved.")


def describe_foreign_job(found: MoveRecord, info: DomainInfo, source: HostRef, by: str) -> MoveRecord:
    """Return the record that is opened before a person aborts or forces a job of another tool. Its destination is not known.

    :arg found: the job as its host describes it.
    """
    record = new_record(
        s.LIVE_MIGRATION,
        domain=DomainRef(info.uuid, info.name),
        source=source,
        destination=HostRef(None, None, None),
        policy={},
        by=by,
        request={"memory_mib": info.memory_bytes // 1024**2},
        detail="A job of another tool; libvirt does not report its destination.",
    )
    # The definition at the destination may belong to the other tool, and is never removed.
    before = Before(persistent=info.view.persistent, autostart=info.autostart, at_destination=True)
    return replace(record, before=before, progress=found.progress).advance(found.status, by)
