# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Starts reserved domains on their host and closes their records. The fence agent is called again before each round of starts."""

from __future__ import annotations

import contextlib
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import saved_domains as r
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, HostClock
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    Forbidden,
    InvalidArgument,
    KvmfleetError,
    MigrationFailed,
    NotFound,
    NotSupported,
    Unreachable,
    Unsafe,
    error_for_code,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import HostTokens

from .evidence import SILENCE_FRESH_SECONDS, PowerOffEvidence, SilenceRenewal
from .image_locks import AcceptedLocks, is_fenced
from .job import EvacuationContext, EvacuationJob
from .reservation import request_here
from .start_checks import find_naming_error

# For how long starts may begin after the fence agent was asked. The host gets the end of this time on its own clock, so that orders which were under way for
# too long, or which SSH has repeated, start nothing.
GOOD_FOR_SECONDS = 15
# How long after that question the source's ports are probed for the next batch. Probing takes 3 to 5 s.
_PROBED_AFTER_SECONDS = 6
# How often a host that was lost while it started domains is queried again before its records are left to the next run.
MAX_RETRIES = 3
_PAUSE_SECONDS = 5.0
# How often in succession all starts may be deferred: a host that is starting a domain may not answer in the meantime.
IDLE_ROUNDS = 10
# With these errors the host's half ended before it changed anything.
_CERTAIN_ERRORS = (Forbidden, NotSupported, InvalidArgument, Conflict, Unsafe)


@dataclass(frozen=True)
class _StartAnswer:
    """What became of the orders, and what the other hosts have answered meanwhile."""

    at: BootMoment
    results: tuple[r.RestartResult, ...]
    elsewhere: r.PeerAnswers
    extra: JsonObject = field(default_factory=dict)


@dataclass
class DomainStarter:
    """:arg ask: URIs of the hosts that answered, by name: none of them may have a domain active at its start.

    :arg host_id: of the host that starts them.
    :arg tokens: UUID to host ID and tokens of the host that the domain was saved on, by the folders as this host calls them.
    :arg silent_at: when the source was last found silent, by the monotonic clock.
    :arg clock: the clock of the host; null if nothing is started.
    """

    context: EvacuationContext
    proofs: PowerOffEvidence
    ask: Mapping[str, str]
    host_id: str
    tokens: Mapping[str, HostTokens]
    silent_at: float = float("-inf")
    acceptance: AcceptedLocks | None = None
    clock: HostClock | None = None
    sleep: Callable[[float], None] = time.sleep
    silence: SilenceRenewal = field(init=False)

    def __post_init__(self) -> None:
        self.silence = SilenceRenewal(self.proofs.check_silence, self.silent_at)
        self._proved_at = float("-inf")
        self._deferred: set[str] = set()

    def start_domains(self, jobs: Sequence[EvacuationJob]) -> None:
        """Start all domains. At the end, each has its record closed, or its error."""
        try:
            self._start_in_rounds(jobs)
        finally:
            self.silence.cancel_proof()

    def _start_in_rounds(self, jobs: Sequence[EvacuationJob]) -> None:
        rest, lost, idle = list(jobs), 0, 0
        peers: r.PeerAnswers | None = None
        while rest:
            try:
                self._prove_source_off()
            except KvmfleetError as error:
                # The host received nothing in this round, so the error does not concern it.
                self._end_not_started(rest, error)
                return
            try:
                results, answers = self._start_round(rest, peers)
                # After a round that came too late for any start, the other hosts' answers are used again, with a new proof that the source is off.
                is_idle = all(result.outcome == r.DEFERRED for result in results.values())
                idle, peers = (idle + 1, answers) if is_idle else (0, None)
                if idle > IDLE_ROUNDS:
                    raise self._idle_error(answers)
            except Unreachable as error:
                lost, peers = lost + 1, None
                if lost > MAX_RETRIES:
                    self._leave_unknown(rest, error)
                    return
                self.sleep(_PAUSE_SECONDS)
                # The request may have been carried out: from now on the host is queried first.
                for job in rest:
                    job.rejoin = True
                continue
            except KvmfleetError as error:
                if isinstance(error, _CERTAIN_ERRORS):
                    self._end_not_started(rest, error)
                else:
                    self._close_not_started(rest, error, is_certain=False)
                return
            for job in rest:
                self._settle_job(job, results[job.uuid])
            rest = [job for job in rest if results[job.uuid].outcome == r.DEFERRED]
            self._note_deferred(rest)

    def _idle_error(self, answers: r.PeerAnswers) -> Unsafe:
        """Return the error for rounds that have all ended without a start: other hosts do not answer, or this host takes too long."""
        if answers.silent:
            return Unsafe(f"Cannot verify what is running on other hosts: {' '.join(answers.silent)}", "Run the task again.")
        host, source = self.context.target_host, self.proofs.source.name
        return Unsafe(
            f"{host} was not ready for a start within {GOOD_FOR_SECONDS} s after {source} had been found off, {IDLE_ROUNDS + 1} times in succession.",
            f"libvirt on {host}, its storage, or the connection to it is slow: check it. Then run the task again, or start the domains on another host.",
        )

    def _note_deferred(self, jobs: Sequence[EvacuationJob]) -> None:
        """Have the host look first in the next round: SSH may have sent the orders twice, and only the answer to one of them came."""
        for job in jobs:
            job.rejoin = True
            self._deferred.add(job.uuid)

    def _end_not_started(self, jobs: Sequence[EvacuationJob], error: KvmfleetError) -> None:
        """Close the records of domains that this round has not started, because of this error. What became of deferred orders is asked first."""
        deferred = [job for job in jobs if job.uuid in self._deferred]
        self._close_not_started([job for job in jobs if job.uuid not in self._deferred], error, is_certain=True)
        try:
            results = self._start_round(deferred, None, settle_only=True)[0] if deferred else {}
        except KvmfleetError:
            self._close_not_started(deferred, error, is_certain=False)
            return
        for job in deferred:
            self._settle_job(job, results[job.uuid], failed_by=error)

    def _prove_source_off(self) -> None:
        """Prove that the source is silent and off, for the starts that follow. Raises the error if it is not.

        The agents have answered in their time. What took longer, as a ledger that hangs or a stop of this process, has made their answers older.
        """
        self.silence.require_proof()
        self.proofs.confirm_all()
        self.proofs.check_not_withdrawn(self.context.ledger)
        self._proved_at = min(time.monotonic(), self.silence.taken_at + SILENCE_FRESH_SECONDS + self.proofs.longest_query_seconds)
        self.silence.start_proof(_PROBED_AFTER_SECONDS)

    def settle_begun(self, jobs: Sequence[EvacuationJob]) -> None:
        """Close the records of what an earlier run has begun, by queries alone; nothing is started, and unfinished definitions are removed."""
        results, _peers = self._start_round(jobs, None, settle_only=True)
        for job in jobs:
            self._settle_job(job, results[job.uuid])

    def _start_round(
        self, jobs: Sequence[EvacuationJob], peers: r.PeerAnswers | None, settle_only: bool = False
    ) -> tuple[dict[str, r.RestartResult], r.PeerAnswers]:
        """Return the results by UUID, and what the other hosts have answered; nothing is started before all of them have.

        :arg peers: the answers of the last round, if they may be used again.
        """
        self.context.run_process.require()
        until = None if settle_only else t.cast(HostClock, self.clock).moment_of(self._proved_at + GOOD_FOR_SECONDS)
        work = {
            "orders": [encode(self._make_order(job, settle_only)) for job in jobs],
            "parallel": self.context.options.parallel,
            "start_until": encode(until),
            "ask": {} if settle_only else self.ask,
            "host_id": self.host_id,
            "elsewhere": encode(peers),
        }
        answer = decode(_StartAnswer, self.context.phase("start", work))
        self.clock = HostClock(answer.at, time.monotonic())
        self.context.run_process.require()
        return {result.uuid: result for result in answer.results}, answer.elsewhere

    def _make_order(self, job: EvacuationJob, settle_only: bool) -> r.RestartOrder:
        saved, record = job.saved, t.cast(MoveRecord, job.record)
        accepted = self.acceptance.list_accepted(job) if self.acceptance and is_fenced(self.proofs.of_source) else []
        return r.RestartOrder(
            record=record.record_id,
            note=encode(replace(record, ledger_id=self.context.ledger.ledger_id)),
            generation=record.generation,
            rejoin=job.rejoin,
            # An earlier run has rewritten it by other maps: what it began is settled, and nothing else is started.
            settle_only=settle_only or bool(job.renamed.problem),
            uuid=job.uuid,
            name=job.name,
            definition=job.renamed.definition or None,
            persistent=bool(saved.persistent),
            autostart=bool(saved.autostart),
            wanted=record.wanted_state or "",
            sources=tuple((disk.target, disk.source or "") for disk in request_here(job).needs.disks or ()),
            disks=job.disks_here,
            files=job.files_here,
            fresh=job.fresh_here,
            accepted_locks=tuple(accepted),
            tokens=self.tokens[job.uuid],
        )

    def _settle_job(self, job: EvacuationJob, result: r.RestartResult, failed_by: KvmfleetError | None = None) -> None:
        """:arg failed_by: why the domain was not started, if that is not the error of the host."""
        outcome, error = result.outcome, failed_by or _restart_error(result)
        job.changed = job.changed or result.changed or (outcome == r.STARTED and job.uuid in self._deferred)
        if outcome == r.DEFERRED:
            return
        if outcome == r.STARTED:
            wanted = str(job.stored.record.wanted_state) if job.stored else ""
            how = "is defined" if wanted == domain_states.SHUTOFF else f"is {wanted}"
            self._write_record(job, s.DONE, f"It {how} on {self.context.target_host}.", result.generation)
        elif outcome == r.FAILED:
            job.error = find_naming_error(job, self.context.target_host) or error
            self._write_record(job, s.FAILED, str(job.error), result.generation)
        elif outcome == r.OVERTAKEN:
            job.error = error
            with contextlib.suppress(KvmfleetError):
                self._reread_record(job, error)
        else:
            job.error = error
            self._write_record(job, None, f"Not settled: {error}", result.generation)

    def _write_record(self, job: EvacuationJob, status: t.Optional[str], detail: str, generation: int) -> None:
        """Write the record, with its next status or a note; if another run was faster, its version is kept.

        A record that the ledger cannot store does not stop the others: the host has acted on all of them.
        """
        stored = job.stored
        if stored is None:
            return
        record, by = stored.record.raise_generation(generation), self.context.by
        after = record.advance(status, by, detail) if status else record.note("unsettled", by, detail)
        try:
            try:
                job.stored = self.context.ledger.update_record(stored, after)
            except Conflict as conflict:
                self._reread_record(job, conflict)
        except KvmfleetError as error:
            job.error = self._unkept_error(job, record.status, detail, error)

    def _unkept_error(self, job: EvacuationJob, status: str, detail: str, error: KvmfleetError) -> KvmfleetError:
        """Return the ledger's error with what became of the domain."""
        host = self.context.target_host
        return type(error)(
            f"The ledger cannot store what became of domain {job.name} on {host}: {detail.rstrip('.')}. The last known status of its record is '{status}'. "
            f"{error.message}",
            " ".join(filter(None, [error.next_step, f"Then run the task on {host} again: it queries the host."])),
        )

    def _reread_record(self, job: EvacuationJob, error: KvmfleetError) -> None:
        """Adopt the record that another run wrote. Raises the error if the ledger does not have the record any more."""
        if job.stored is None:
            return
        try:
            job.stored = self.context.ledger.read_record(job.stored.record.record_id)
        except NotFound:
            raise error from None
        job.error = None if job.stored.record.status in (s.DONE, s.COMPLETED) else error

    def _close_not_started(self, jobs: Sequence[EvacuationJob], error: KvmfleetError, is_certain: bool) -> None:
        """Close the records of starts that certainly did not begin; the others stay unchanged.

        :arg is_certain: nothing was begun in this round. This does not apply to a record that was C(pre-migrating) before this task or before the loss.
        """
        for job in jobs:
            job.error = error
            if is_certain and not job.rejoin and job.stored:
                self._write_record(job, s.FAILED, f"Nothing was started: {error}", job.stored.record.generation)

    def _leave_unknown(self, jobs: Sequence[EvacuationJob], error: KvmfleetError) -> None:
        for job in jobs:
            job.error = Unreachable(
                f"Whether domain {job.name} was started on {self.context.target_host} is not known: {error.message}",
                f"Its record stays 'pre-migrating', and no other host may start it. Run the task on {self.context.target_host} again: it queries the host.",
            )


def _restart_error(result: r.RestartResult) -> KvmfleetError:
    cls = error_for_code(result.error_code) if result.error_code else MigrationFailed
    return cls(result.msg)
