# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""An evacuation by one host: source, domains, fleet, evidence, image locks, reservations, starts. Each step requires the success of the one before."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import time
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_identity import HOST_ID_FILE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, HostClock, boot_moment, utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, KvmfleetError, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import SourceSilence
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostAnswer, HostRef, host_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import lockable_paths
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import REASON_RESTART_LIMIT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey

from .._ledger.changes import LedgerDomains
from .._ledger.host_decisions import check_not_granted
from .._ledger.host_entries import HostIdentity, find_host_entry, read_hosts
from .._ledger.remembered import (
    RememberedMove,
    check_known,
    find_former_generations,
    find_missing_records,
    missing_text,
    remembered_by_fleet,
)
from .._ledger.rules import map_holders
from .._migrate.fleet_view import FleetView, RecentMoves
from .._observe.fleet_scan import ImageUsers
from .._settings.variables import read_facts
from . import start_checks
from .evidence import SILENCE_FRESH_SECONDS, PowerOffEvidence
from .fence_levels import PowerReply
from .fencing import is_by_person
from .fencing_state import clear_impossible, record_impossible
from .fleet_answers import (
    FirstRound,
    FleetAnswers,
    LockState,
    SourceAnswers,
    SurvivorView,
    UnaccountedDomain,
    digest_question,
)
from .fleet_question import FleetQuestion
from .image_locks import AcceptedLocks, ImageLocks
from .job import CachedSettings, EvacuationContext, EvacuationJob, ListedDomain
from .reservation import EvacuationReservation, record_refusal
from .restart_limit import RestartLimitReached
from .selection import DomainSelector
from .silent_hosts import SilentHosts
from .source import age_seconds, check_still_not_granted, resolve_source
from .starts import DomainStarter

BuildEvidence = Callable[[EvacuationJob], list[JsonObject]]

# The number of reservations under one lock on the host. A live migration to the host waits for no more than these.
_RESERVED_AT_ONCE = 16
# Older answers of hosts are queried again before any decision.
_FRESH_SECONDS = 30.0


@dataclass(frozen=True)
class ProbedFleet:
    """What L(Evacuation.probe_fleet) has found.

    :arg began_at: when the query began, by the monotonic clock.
    :arg seen: what the host that the task runs on sees.
    :arg host_clock: the clock of that host; None if an earlier step has asked it.
    :arg silence: of the source, to the control node.
    :arg silent_at: when the source was last found silent, by the monotonic clock.
    :arg silent_moment: the same, by the clock that continues while the control node is suspended.
    :arg uris: of the hosts that answered, by name.
    :arg silent: the hosts that did not answer, except for the source.
    :arg others: silent hosts that need evidence of their own.
    """

    began_at: float
    seen: SurvivorView
    host_clock: HostClock | None
    silence: SourceSilence
    silent_at: float
    silent_moment: BootMoment
    fleet: FleetAnswers
    uris: Mapping[str, str]
    silent: SilentHosts
    others: Sequence[HostRef]


@dataclass(frozen=True)
class SourceProof:
    """The silence of the source as it was proved last, and what was found of the locks of its images since.

    :arg silent_at: by the monotonic clock.
    :arg images: by path.
    """

    silence: SourceSilence
    silent_at: float
    images: Mapping[str, LockState]


@dataclass
class Evacuation:
    """One task. C(jobs) are the requested domains, by importance."""

    context: EvacuationContext
    check: bool = False
    jobs: list[EvacuationJob] = field(default_factory=list)
    before: list[MoveRecord] = field(default_factory=list)
    not_selected: list[ListedDomain] = field(default_factory=list)
    unaccounted: list[UnaccountedDomain] = field(default_factory=list)
    missing_records: list[RememberedMove] = field(default_factory=list)

    def __post_init__(self) -> None:
        context = self.context
        hosts = read_hosts(context.ledger)
        self.entries, self.unreadable_hosts = hosts.entries, hosts.unreadable
        self.source = resolve_source(self.entries, context.options.source, self.unreadable_hosts)
        self.settings = CachedSettings(context.settings)
        self.proofs = PowerOffEvidence(
            self.settings, self.source, self.entries, context.by, context.ledger.open_leases, context.show, self._is_by_person, context.make_probe
        )
        self.arrivals = RecentMoves(context.ledger)
        self.acceptance = AcceptedLocks(context.options.accept_locked, context.by)
        self.locks = ImageLocks(context, self.proofs, self.acceptance, self.check)
        self.question = FleetQuestion(context, self.source, self.entries, self.proofs.list_endpoints)
        self.selector = DomainSelector(context, self.source, self.settings)
        self.domains = LedgerDomains([], [], [])

    def ask_first_round(self) -> FirstRound:
        """Ask what L(probe_fleet) judges, with the fence agent. Raises an error if the source has answered, or this survivor has not. Changes nothing."""
        check_not_granted(self.source.entry)
        self._select_domains()
        return self._ask_side_by_side(self.question.build_question(self.open_jobs(), self.question.list_uris()), asks_agent=True)[0]

    def probe_fleet(self, asks_agent: bool = False, earlier: FirstRound | None = None) -> ProbedFleet:
        """Determine the selected domains, the answers of the fleet, and what prevents each start; raises what prevents all starts. Changes nothing.

        :arg asks_agent: whether the fence agent is asked for the power state meanwhile, because L(prove_source_off) will need it.
        :arg earlier: what L(ask_first_round) has returned; it is used if it answers the same question and is as recent as silence has to be.
        """
        began_at = time.monotonic()
        # A source that may release itself.
        check_not_granted(self.source.entry)
        self._select_domains()
        uris = self.question.list_uris()
        question = self.question.build_question(self.open_jobs(), uris)
        is_answer = earlier is not None and earlier.is_answer_to(self.context.target_host, self._digest(question), boot_moment(), SILENCE_FRESH_SECONDS)
        # When the source of an earlier round was silent is not known by this clock, so its silence is proved again before a start.
        asked, host_clock, silent_at = (earlier, None, float("-inf")) if earlier and is_answer else self._ask_side_by_side(question, asks_agent)
        self.proofs.renewals.note_earlier(str(self.source.host_id), asked.lease_revision)
        seen = asked.seen
        self.proofs.asked_power = PowerReply.from_json(asked.power) if asked.power else None
        self.proofs.check_endpoints(seen.doors, self.context.target_host)
        facts = read_facts(seen.facts)
        destination = self._read_host_ref(facts)
        start_checks.check_destination(destination, self.source.host_ref)
        own = {domain.uuid: domain for domain in facts.domains or ()}
        here = HostRef(self.context.target_host, facts.host_id or None, facts.host_uuid or None)
        unreadable = [one for one in self.unreadable_hosts if not one.is_host(here)]
        listed, host_ids = frozenset(self.context.settings.fleet()), self._host_ids(seen.fleet)
        fleet = FleetAnswers(self.source, destination, own, seen.fleet, self.entries, host_ids, listed, unreadable)
        fleet.check_source_is_silent()
        self._check_no_twin()
        silent = fleet.find_silent_hosts(self.context.options.accept_silent)
        others = self._list_others(fleet, silent)
        self.missing_records = self._find_missing_records(facts)
        for job in self.jobs:
            job.keep_error(lambda job: start_checks.check_inactive(job, fleet))
            job.keep_error(lambda job: check_known(job.name, job.uuid, self.missing_records))
        held = map_holders(self.context.ledger.list_records(unsettled_only=True))
        self.domains = self.context.ledger.read_domains()
        self.unaccounted = fleet.list_unaccounted([document.domain for document in self.domains.documents], held)
        self._add_warnings(fleet)
        answering = {name: uri for name, uri in uris.items() if name in fleet.answering_hosts}
        return ProbedFleet(began_at, seen, host_clock, asked.silence, silent_at, asked.silent_moment, fleet, answering, silent, others)

    def _ask_side_by_side(self, question: JsonObject, asks_agent: bool) -> tuple[FirstRound, HostClock, float]:
        """Try to connect to the source, as Ansible does too, while the survivor asks the fleet. Nothing is judged before all of them have ended.

        Returns the clock of the survivor as well, and when the source was silent to the control node: the survivor may take much longer.
        """
        make_probe, name = self.context.make_probe, self.source.name
        self.proofs.renewals.read_leases()
        lease_revision = self.proofs.renewals.revision_of(str(self.source.host_id))
        needs_agent = asks_agent and bool(self.open_jobs()) and not (self.check or self.context.options.fencing or self.context.options.force_down)
        # The probe forks a process, so it comes before the threads.
        probe = make_probe(name) if make_probe and self.settings.is_known(name) else None
        with probe or contextlib.nullcontext(), concurrent.futures.ThreadPoolExecutor(2) as pool:
            power = self.proofs.begin_power_query(pool) if needs_agent else None
            silence = pool.submit(lambda: (self.proofs.check_silence(), time.monotonic(), boot_moment()))
            seen = decode(SurvivorView, self.context.phase("look", question))
            host_clock = HostClock(seen.at, time.monotonic())
            silent, silent_at, silent_moment = silence.result()
            if probe:
                probe.require_silence()
            reply = power.result().as_json() if power else None
        warnings = tuple(t.cast("t.Sequence[str]", seen.extra.get("warnings") or ()))
        digest = self._digest(question)
        first = FirstRound(self.context.target_host, digest, boot_moment(), replace(seen, extra={}), silent, silent_moment, warnings, reply, lease_revision)
        return first, host_clock, silent_at

    def _is_by_person(self) -> bool:
        # The options change when tasks of the user have left evidence.
        return is_by_person(self.source.name, self.context.options.fencing, self.context.options.force_down)

    def _digest(self, question: JsonObject) -> str:
        return digest_question(self.source, question)

    def prove_source_off(self, probed: ProbedFleet, starts: bool = True) -> SourceProof:
        """Prove that the source is off. Raises what L(PowerOffEvidence.collect_evidence) does. A domain whose image is still written is not started.

        :arg starts: whether this task starts domains itself. If not, the tasks that start domains prove the silence after the fencing, and that no lease is
          renewed; here only a lease that is renewed is waited for.
        """
        self._collect_evidence(probed)
        if self.proofs.given:
            # Agents that were just queried need not be queried again.
            self.proofs.confirm_all()
        begun = time.monotonic()
        if self.check or any(one.host_id == self.source.host_id for one in self.proofs.given):
            proof = SourceProof(probed.silence, probed.silent_at, self._check_locks(probed, seen_since=True))
        else:
            proof = self._prove_silence(probed, starts)
        if not self.check:
            self.proofs.await_expiry(only_renewed=not starts)
        waited = time.monotonic() - begun
        if waited > _FRESH_SECONDS and not self.check:
            self.proofs.extend_evidence(waited)
        return proof

    def _collect_evidence(self, probed: ProbedFleet) -> None:
        """Collect the evidence, and write whether the source could be fenced. While the ledger cannot be written, nothing is fenced."""
        options, ledger, host_id = self.context.options, self.context.ledger, str(self.source.host_id)
        if not self.check:
            self._check_writable()
        try:
            self.proofs.collect_evidence(
                options.fencing, options.force_down, probed.others, lambda: self._check_before_fencing(probed), may_fence=not self.check
            )
        except KvmfleetError as error:
            # What a person has to know is the error of the fencing, also if the ledger cannot be written.
            with contextlib.suppress(KvmfleetError):
                record_impossible(ledger, host_id, error, self.context.by)
            raise
        known = self.source.entry.fencing
        if known and known.is_impossible and self.proofs.of_source and not self.check:
            clear_impossible(ledger, host_id)

    def _check_before_fencing(self, probed: ProbedFleet) -> None:
        """Raise L(Unsafe) for another host that is silent, or if the source answers by now: this process may have been stopped, or its machine suspended.

        Raises L(ControllerGone) if no task would start the guests of a host that is fenced now.
        """
        self._check_silent(probed.silent)
        if self.proofs.of_source is not None or self.check:
            return
        age = boot_moment().seconds_since(probed.silent_moment)
        if age is None or age > _FRESH_SECONDS:
            self.proofs.check_silence()
        self.context.run_process.require()

    def _check_writable(self) -> None:
        """Raise the ledger's error if no start can be recorded: the source may be on, and its guests would be down for nothing."""
        try:
            self.context.ledger.check_writable()
        except KvmfleetError as error:
            raise type(error)(f"{self.source.name} was not fenced by this task, and nothing was started: {error.message}", error.next_step) from error

    def _prove_silence(self, probed: ProbedFleet, probes_ports: bool) -> SourceProof:
        """Prove that the source has become silent since it was fenced, while waiting for its leases."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            silence = pool.submit(self.proofs.check_silence) if probes_ports else None
            silent_at = time.monotonic()
            images = self._check_locks(probed, seen_since=False)
            return SourceProof(silence.result() if silence else probed.silence, silent_at, images)

    def reuse_evidence(self, probed: ProbedFleet) -> None:
        """Use the evidence of an earlier step for a plan. There is no wait: the tasks that start domains prove everything again."""
        options = self.context.options
        self.proofs.collect_evidence(options.fencing, options.force_down, probed.others, lambda: self._check_silent(probed.silent), may_fence=False)
        self._check_locks(probed, seen_since=True, waits=False)

    def _check_silent(self, silent: SilentHosts) -> None:
        """Raise L(Unsafe) if another host is silent, and neither accepted nor off by evidence."""
        silent.check_accepted(self.proofs.has_proof_of, self.proofs.unproved)

    def judge_jobs(self, probed: ProbedFleet) -> None:
        """Determine what prevents the start of each domain on this host. A host that cannot start it is recorded as refused.

        Raises L(Unsafe) if a host has become silent since the evidence was collected, or if evidence of a watchdog was withdrawn.
        """
        self._check_silent(probed.silent)
        arrivals = self.proofs.list_late_arrivals(self.context.ledger)
        users = self._find_image_users(probed.seen)
        for job in self.jobs:
            job.keep_error(lambda job: self.check_runs_nowhere(job, probed.fleet, arrivals, users))
            if job.is_open:
                job.keep_error(lambda job: self._judge_destination(job, probed))
                if job.error:
                    self.record_refusal(job, probed.fleet.destination, job.error.message)

    def _find_image_users(self, seen: SurvivorView) -> ImageUsers:
        """Return the users of images on this host, and on the others by their facts if these are fresh: there may be no plan that has compared them."""
        settings = self.context.settings
        known = {name: settings.fresh_facts(name) for name in settings.fleet() if name not in (self.source.name, self.context.target_host)}
        others = {name: decode(HostFacts, facts) for name, facts in known.items() if facts}
        return ImageUsers({**others, self.context.target_host: read_facts(seen.facts)})

    def check_runs_nowhere(self, job: EvacuationJob, fleet: FleetAnswers, arrivals: Mapping[str, frozenset[str]], users: ImageUsers) -> None:
        """Decide about the record of the domain. Raises an error unless each host that may run the domain has answered, or is off and stays off by evidence.

        :arg arrivals: see L(check_arrival).
        :arg users: see L(check_images_free).
        """
        start_checks.decide_record(job, fleet)
        start_checks.check_covered(job, fleet, self.proofs, source_counts=self.check and self.proofs.can_fence)
        start_checks.check_arrival(job, fleet, self.proofs, arrivals)
        start_checks.check_no_token(job, self.context.ledger, fleet, self.proofs)
        if not start_checks.was_started(job, fleet):
            start_checks.check_images_free(job, users)

    def record_refusal(self, job: EvacuationJob, destination: HostRef, why: str, filters_off: Iterable[str] = (), reason: t.Optional[str] = None) -> None:
        """Close a record of the evacuation as C(conflict), unless in check mode, and unless another record holds the domain."""
        if not self.check and job.candidate.record is None:
            job.stored = record_refusal(self.context, job, destination, why, filters_off, reason)

    def record_waiting(self, destination: HostRef) -> None:
        """Record each domain that waits for a person as refused, so that the ledger and a notice name it."""
        for job in self.jobs:
            if isinstance(job.error, RestartLimitReached):
                self.record_refusal(job, destination, job.error.message, reason=REASON_RESTART_LIMIT)

    def evacuate_domains(self) -> None:
        """Start the domains, or predict their results in check mode."""
        try:
            probed = self.probe_fleet()
        except SourceAnswers as error:
            raise self._add_settled(error, self.settle_begun()) from error
        self.record_waiting(probed.fleet.destination)
        # Do not fence if there is nothing to start.
        if not self.open_jobs():
            return
        proof = self.prove_source_off(probed)
        if not self.check and time.monotonic() - probed.began_at > _FRESH_SECONDS:
            # The agent or leases took time: earlier answers of hosts are out of date.
            probed = self.probe_fleet()
            proof = SourceProof(probed.silence, probed.silent_at, self._check_locks(probed, seen_since=True, waits=False))
        # After the proof that the host is off: since then it can neither be granted a token nor leave one.
        check_still_not_granted(self.context.ledger, self.source.name, self.source.host_id)
        self.judge_jobs(probed)
        destination = probed.fleet.destination
        former = find_former_generations(self.context.ledger, [(self.context.target_host, read_facts(probed.seen.facts).remembered or None)])
        reservation = EvacuationReservation(self.context, self._fleet_view(probed.seen.facts), destination, probed.seen.cpu, former)
        self._reserve_all(reservation, lambda job: self._build_evidence(job, probed.silent, proof))
        if not self.check:
            host_id, tokens = str(destination.host_id), self.question.list_tokens(self.open_jobs())
            starting = DomainStarter(self.context, self.proofs, probed.uris, host_id, tokens, proof.silent_at, self.acceptance, probed.host_clock)
            starting.start_domains(self.open_jobs())

    def settle_begun(self) -> list[EvacuationJob]:
        """Settle what an earlier run has begun here, and return these domains. This starts nothing and needs no evidence. Nothing is done in check mode."""
        self._select_domains()
        if self.check or not any(job.candidate.record for job in self.jobs):
            return []
        question = {**self.question.build_question([], {}), "knock": []}
        facts = decode(SurvivorView, self.context.phase("look", question)).facts
        destination = self._read_host_ref(read_facts(facts))
        missing = self._find_missing_records(read_facts(facts))
        begun = [job for job in self.jobs if start_checks.has_begun(job, destination)]
        reservation = EvacuationReservation(self.context, self._fleet_view(facts), destination, {})
        for job in begun:
            # What is lost until the source returns prevents starts alone.
            job.rejoin, job.lost = True, []
            job.keep_error(lambda job: check_known(job.name, job.uuid, missing))
            job.keep_error(lambda job: reservation.rejoin_record(job, []))
        rejoined = [job for job in begun if job.is_open]
        if rejoined:
            DomainStarter(self.context, self.proofs, {}, str(destination.host_id), self.question.list_tokens(rejoined)).settle_begun(rejoined)
        return begun

    def _add_settled(self, refusal: SourceAnswers, begun: list[EvacuationJob]) -> SourceAnswers:
        """Return the error for everything that an earlier run has not begun here."""
        if not any(job.record for job in begun):
            return refusal
        statuses = [f"{job.name} is '{job.record.status}'" for job in begun if job.record]
        settled = f" The evacuations that an earlier run had started here were settled: {', '.join(statuses)}."
        changed = any(job.changed for job in begun)
        return SourceAnswers(refusal.message + settled, refusal.next_step, changed=changed, evacuations=[encode(job.record) for job in begun if job.record])

    def add_begun(self, refusal: SourceAnswers) -> SourceAnswers:
        """Return the error, with the evacuations from the source that an earlier run has begun and nobody has settled."""
        begun = [f"{earlier.domain.name} to {earlier.destination.label}" for job in self.jobs if (earlier := job.earlier_evacuation)]
        if not begun:
            return refusal
        what = f"{refusal.message} Evacuations that an earlier run has begun are not settled: {', '.join(begun)}."
        step = f"Once {self.source.name} is back, recover it (kvmfleet.migration.recover): this settles them."
        return SourceAnswers(what, f"{refusal.next_step} {step}")

    def _build_evidence(self, job: EvacuationJob, silent: SilentHosts, proof: SourceProof) -> list[JsonObject]:
        """Return all evidence that the source is off, as the domain's record keeps it, with the domain's own images."""
        accepted = encode(silent.list_accepted(self.context.by, utc_now()))
        own = {path: proof.images[path] for path in lockable_paths(job.disks_here) if path in proof.images}
        images = [{"kind": "locks", "from": self.context.target_host, "images": encode(own), "at": utc_now()}] if own else []
        return [*encode(self.proofs.all_evidence), encode(proof.silence), *images, *self.acceptance.build_evidence(job, proof.images), *accepted]

    def _list_others(self, fleet: FleetAnswers, silent: SilentHosts) -> list[HostRef]:
        """Return the silent hosts that need evidence. Raises L(Unsafe) for one that is not accepted, and of which there can be none."""
        fencing = self.context.options.fencing
        places = fleet.list_silent_hosts(where for job in self.jobs if job.is_open for where in job.candidate.possible_hosts)
        more = [where for where in silent.list_refs_to_prove() if not any(where.is_same(place) for place in places)]
        named = {place.host for place in places}
        silent.check_accepted(lambda where: where not in more or where.host in named or self.proofs.can_prove(where, fencing), {})
        return [*places, *more]

    def _select_domains(self) -> None:
        selected = self.selector.select_domains()
        self.jobs, self.before, self.not_selected = selected.jobs, selected.before, selected.not_selected
        self.acceptance.check_known(selected.images)

    def _read_host_ref(self, facts: HostFacts) -> HostRef:
        host_uuid = facts.host_uuid or None
        identity = HostIdentity(self.context.target_host, facts.host_id or None, host_uuid, facts.machine_id or None)
        found = find_host_entry(self.context.ledger, identity)
        return HostRef(self.context.target_host, found.host.host_id if found else None, host_uuid)

    def _find_missing_records(self, facts: HostFacts) -> list[RememberedMove]:
        """Return what this host, by its facts, and the other hosts remember and the ledger lacks."""
        remembered = remembered_by_fleet(self.context.settings, self.context.target_host, facts.remembered or None)
        return find_missing_records(self.context.ledger, remembered)

    def _host_ids(self, answers: Mapping[str, HostAnswer]) -> dict[str, str]:
        """Return the IDs of hosts from their own facts, if these have the UUID that answered."""
        fresh_hosts = {name: host_of(self.context.settings.fresh_facts(name) or {}) for name, answer in answers.items() if answer.answered}
        return {name: host.host_id for name, host in fresh_hosts.items() if host.host_id and host.host_uuid == answers[name].host_uuid}

    def _check_no_twin(self) -> None:
        """Raise L(Unsafe) if a host with fresh facts claims to be the source, under any name."""
        for name in self.context.settings.fleet():
            facts = self.context.settings.fresh_facts(name)
            # Its own facts may be from before it died; only facts under another name show that it is alive.
            if facts is not None and name != self.source.name and facts.get("host_id") == self.source.host_id:
                raise Unsafe(
                    f"{name} answers with the host ID {self.source.host_id}, that of {self.source.name}, which is to be evacuated.",
                    f"Nothing was started. If {name} is {self.source.name} under another name, it is not dead: drain it. If {HOST_ID_FILE} of {name} is a copy,"
                    " remove it there.",
                )

    def _add_warnings(self, fleet: FleetAnswers) -> None:
        context = self.context
        context.warnings += map(missing_text, self.missing_records)
        if not self.source.is_held_at_boot:
            context.warnings.append(f"No boot guard holds {self.source.name} at its next boot: keep it off the network until it has been cleaned up.")
        for one in self.not_selected if context.options.domains is None else ():
            context.warnings.append(
                f"Domain {one.name} is not started: it has been missing from {self.source.name} since {one.missing_since}, so it was deleted, moved by hand, or"
                " given up. If it is needed, name it (domains; evacuate_host_domains of the role)."
            )
        for job in self.jobs:
            if job.name != job.candidate.entry.name:
                context.warnings.append(f"Domain {job.candidate.entry.name} is started as {job.name}, the name in its saved definition.")
            if job.saved.host and not job.saved.host.is_same(self.source.host_ref):
                at = f"{job.saved.host.host} (saved {age_seconds(job.saved.at or None)} s ago)"
                context.warnings.append(f"Domain {job.name} was saved on {at}, before it came to {self.source.name}: later changes are not included.")
            for other in fleet.off_on(job.uuid):
                context.warnings.append(
                    f"Domain {job.name} is defined on {other} as well, and off there: clean up that host (kvmfleet.migration.evacuation_cleanup), or undefine "
                    "it there, before that host restarts. It must not be started there."
                )

    def _check_locks(self, probed: ProbedFleet, seen_since: bool, waits: bool = True) -> dict[str, LockState]:
        # A domain whose disks are not proved on this host is not started here. Their storage may hang.
        seen = [job for job in self.open_jobs() if job.rejoin or not probed.seen.unseen.get(job.uuid)]
        starting = [job for job in seen if job.wanted != domain_states.SHUTOFF and not start_checks.was_started(job, probed.fleet)]
        return self.locks.check_images(starting, probed.seen.locks, seen_since, waits)

    def _judge_destination(self, job: EvacuationJob, probed: ProbedFleet) -> None:
        start_checks.check_absent(job, probed.fleet)
        if not job.rejoin:
            problem = start_checks.find_naming_error(job, self.context.target_host)
            if problem:
                raise problem
            start_checks.check_disks(job, probed.fleet, probed.seen.unseen.get(job.uuid, {}))

    def _reserve_all(self, reservation: EvacuationReservation, build_evidence: BuildEvidence) -> None:
        """Open the records; in check mode predict them."""
        for job in self.jobs:
            job.keep_error(lambda job: self._prepare_record(job, reservation, build_evidence))
        waiting = iter([job for job in self.open_jobs() if not (self.check or job.rejoin)])
        while some := list(itertools.islice(waiting, _RESERVED_AT_ONCE)):
            try:
                with reservation.lock_host():
                    for job in some:
                        job.keep_error(lambda job: reservation.reserve_host(job, build_evidence(job)))
            except Forbidden:
                raise
            except KvmfleetError as error:
                # Domains that were reserved before are started.
                for job in some:
                    job.error = job.error or type(error)(f"Domain {job.name} was not started. {error.message}", error.next_step)

    def _prepare_record(self, job: EvacuationJob, reservation: EvacuationReservation, build_evidence: BuildEvidence) -> None:
        if self.check:
            reservation.predict_record(job)
        elif job.rejoin:
            reservation.rejoin_record(job, build_evidence(job))
        else:
            reservation.supersede_older(job, build_evidence(job))

    def _fleet_view(self, seen: JsonObject) -> FleetView:
        context, facts = self.context, replace(read_facts(seen), answered=True)
        survey = Survey(facts, {context.uri: facts}, ())
        leaving = frozenset(job.uuid for job in self.jobs)
        return FleetView(context.ledger, context.settings, context.target_host, survey, {context.target_host: context.uri}, self.arrivals, leaving)

    def open_jobs(self) -> list[EvacuationJob]:
        """Return the domains that nothing prevents so far."""
        return [job for job in self.jobs if job.is_open]
