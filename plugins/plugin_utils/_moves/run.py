# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""All moves of one task: survey, decide, open records, start a watcher, follow, close. Twice where something had to be settled first."""

from __future__ import annotations

import typing as t
import uuid as uuid_module
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import (
    Conflict,
    Forbidden,
    InvalidArgument,
    KvmfleetError,
    NotSupported,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import check_versions, migration_flags, migration_parameters
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import value
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._storage.targets import copies_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.booking import Booking
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.follow import Follower
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.mirror import Mirror
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.policy import policy_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.remote import SourceHost, State
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest, check_unique
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.traits import TraitCheck
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.verdict import error_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

# A watcher that dies is replaced so often within one task; then the record is left to the next run.
MAX_ADOPTIONS = 3

Facts = dict[str, t.Any]


@dataclass
class Job:
    """One request on its way through a run."""

    request: MoveRequest
    decision: d.Decision | None = None
    domain: Facts = field(default_factory=dict)
    order: Facts | None = None
    mirror: Mirror | None = None
    watcher: t.Mapping[str, t.Any] | None = None
    record: schema.Record | None = None
    error: KvmfleetError | None = None
    moved: bool = False

    @property
    def uuid(self) -> str:
        """The domain's UUID, once it is known."""
        return str(self.mirror.record["domain"]["uuid"]) if self.mirror else str(self.domain["info"]["uuid"])

    @property
    def domain_uuid(self) -> str | None:
        """The domain's UUID; null for a name that nobody knows."""
        return str(self.domain["info"]["uuid"]) if self.domain.get("found") else self.request.uuid

    @property
    def was_at_source(self) -> bool:
        """Whether the domain was active on the source when it was surveyed: what had ended before this task changes nothing."""
        return bool(self.domain["found"] and self.domain["info"]["view"]["active"])


class MoveRun:
    """Carries out the requests of one task on one source host."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        source: SourceHost,
        module_args: Facts,
        parallel: int,
        by: str,
        show: t.Callable[[State], None],
    ) -> None:
        self.warnings: list[str] = []
        self._ledger = ledger
        self._settings = settings
        self._source = source
        self._module_args = module_args
        self._parallel = parallel
        self._by = by
        self._run_id = str(uuid_module.uuid4())
        self._follower = Follower(source, self._run_id, show)
        self._survey: Facts = {}

    def predict(self, requests: list[MoveRequest]) -> list[Job]:
        """Return what L(execute) would do, with the records it would write. Changes nothing."""
        jobs = self._surveyed(requests)
        booking = Booking(self._ledger, self._settings, self._source.name, self._survey, self._by)
        for job in jobs:
            self._guarded(job, lambda job: self._predict_one(job, booking))
        return jobs

    def execute(self, requests: list[MoveRequest]) -> list[Job]:
        """Carry the requests out; each job has its record or its error at the end."""
        jobs = self._surveyed(requests)
        self._carry_out(jobs)
        # What was only settled now, and did not bring the domain where it is wanted, goes on as a new move.
        again = [index for index, job in enumerate(jobs) if self._goes_on(job)]
        if again:
            fresh = self._surveyed([jobs[index].request for index in again])
            self._carry_out(fresh)
            for index, job in zip(again, fresh, strict=True):
                job.moved = job.moved or jobs[index].moved
                jobs[index] = job
        return jobs

    # -- gather and decide ---------------------------------------------------------------------------------------

    def _surveyed(self, requests: list[MoveRequest]) -> list[Job]:
        for request in requests:
            known = self._ledger.find_domains(request.name) if request.name else []
            request.known_uuids = [document.body["uuid"] for document in known]
        work = {"wanted": [request.wanted() for request in requests]}
        self._survey = self._source.phase("prepare", work, self._module_args)["survey"]
        for request, domain in zip(requests, self._survey["domains"], strict=True):
            if domain["found"]:
                request.label = domain["info"]["name"]
        jobs = [Job(request, domain=domain) for request, domain in zip(requests, self._survey["domains"], strict=True)]
        check_unique([job.domain["info"]["uuid"] for job in jobs if job.domain["found"]])
        for job in jobs:
            self._guarded(job, self._decide)
        return jobs

    def _decide(self, job: Job) -> None:
        stored = self._unsettled(job)
        job.decision = d.decide(job.request, self._source.name, self._survey, job.domain, stored)
        if isinstance(job.decision, (d.Start, d.AdoptForeign)):
            self._ask_policy(job)
        if isinstance(job.decision, d.Start) and not job.error:
            check = self._traits(job)
            check.check_source()
            job.decision = d.Start(check.fitting(job.decision.candidates))

    def _ask_policy(self, job: Job) -> None:
        """Work the domain's own policy into the request. A wrong one is this domain's trouble, and not that of the task's other moves."""
        try:
            job.request.policy, warnings = policy_of(job.request, job.domain, self._settings, self._source.name)
        except InvalidArgument as error:
            job.error = error
        else:
            self.warnings += warnings

    def _traits(self, job: Job) -> TraitCheck:
        return TraitCheck(job.request, self._survey, self._settings, self._source.name)

    def _unsettled(self, job: Job) -> Stored | None:
        if job.domain["found"]:
            return self._ledger.unsettled_of(job.domain["info"]["uuid"])
        uuids = [job.request.uuid] if job.request.uuid else job.request.known_uuids
        held = [stored for stored in map(self._ledger.unsettled_of, uuids) if stored is not None]
        if len(held) > 1 or (len(uuids) > 1 and not job.domain["there"]):
            raise Conflict(f"The ledger knows {len(uuids)} domains named {job.request.label}: {', '.join(uuids)}.", "Name the one you mean by its UUID.")
        return held[0] if held else None

    def _predict_one(self, job: Job, booking: Booking) -> None:
        decision = job.decision
        if isinstance(decision, d.Start):
            self._check_versions(job, decision.candidates)
            job.record = booking.predict(job.request, job.domain, decision.candidates)
            self.warnings += self._traits(job).warnings(job.record["destination"]["host"])
            job.moved = True
        elif isinstance(decision, d.Conclude):
            job.record = decision.record
        elif isinstance(decision, (d.Observe, d.Adopt)):
            job.record = decision.stored.record
            job.moved = job.was_at_source
        elif isinstance(decision, d.AlreadyThere):
            job.record = self._already_there(job, decision)
        else:
            job.moved = True

    # -- act -----------------------------------------------------------------------------------------------------

    def _carry_out(self, jobs: list[Job]) -> None:
        booking = Booking(self._ledger, self._settings, self._source.name, self._survey, self._by)
        for job in jobs:
            self._guarded(job, lambda job: self._open(job, booking))
        self._start([job for job in jobs if job.order])
        followed = [job for job in jobs if job.mirror and not job.error]
        for attempt in range(MAX_ADOPTIONS + 1):
            orphans = self._follow(followed)
            if not orphans or attempt == MAX_ADOPTIONS:
                break
            for job in orphans:
                self._adopt_again(job)
            self._start(orphans)
            followed = orphans
        for job in jobs:
            self._conclude(job)

    def _open(self, job: Job, booking: Booking) -> None:
        decision = job.decision
        if isinstance(decision, d.AlreadyThere):
            job.record = self._already_there(job, decision)
        elif isinstance(decision, d.Start):
            self._check_versions(job, decision.candidates)
            job.mirror = Mirror(self._ledger, booking.book(job.request, job.domain, decision.candidates), owner=True)
            self.warnings += self._traits(job).warnings(job.mirror.record["destination"]["host"])
            job.order = self._order(job, adopt=False)
        elif isinstance(decision, d.AdoptForeign):
            job.mirror = Mirror(self._ledger, booking.adopt_foreign(job.request, job.domain, decision.host), owner=True)
            job.order = self._order(job, adopt=True)
        elif isinstance(decision, d.Conclude):
            job.mirror = Mirror(self._ledger, decision.stored, owner=True)
            job.mirror.write(decision.record)
        elif isinstance(decision, (d.Observe, d.Adopt)):
            self._warn_of_differences(job, decision.stored.record)
            job.mirror = Mirror(self._ledger, decision.stored, owner=isinstance(decision, d.Adopt))
            watch = job.domain["watch"]
            if isinstance(decision, d.Adopt):
                job.order = self._order(job, adopt=True)
            else:
                job.watcher = watch["record"]["watcher"]

    def _order(self, job: Job, adopt: bool) -> Facts:
        """Return what the watcher is told; an adopted move is told from its own state file where that knows more than the ledger."""
        record = d.newest(t.cast(Mirror, job.mirror).record, job.domain.get("watch"))
        options = job.request.options
        persistent = bool(job.domain["found"] and job.domain["info"]["view"]["persistent"])
        migrate_uri = job.request.migrate_uri or self._settings.migrate_uri(record["destination"]["host"])
        copied = [disk["target"] for disk in copies_of(record)]
        parameters = migration_parameters(options, copied)
        if migrate_uri:
            parameters["migrate_uri"] = migrate_uri
        return {
            "record": record,
            "source_uri": self._module_args["uri"],
            "destination_uri": self._destination_uri(record),
            "flags": migration_flags(options, persistent, value(record["policy"], "auto_converge"), value(record["policy"], "post_copy"), copied),
            "parameters": parameters,
            "adopt": adopt,
        }

    def _destination_uri(self, record: schema.Record) -> str:
        recorded = record.get("connection", {}).get("destination_uri")
        return str(recorded or self._settings.libvirt_uri(record["destination"]["host"], self._source.name))

    def _start(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        work = {"run_id": self._run_id, "parallel": self._parallel, "orders": [job.order for job in jobs]}
        try:
            started = self._source.phase("start", work, self._module_args)
        except KvmfleetError as error:
            for job in jobs:
                self._not_started(job, error)
            return
        for job in jobs:
            refusal = started["refused"].get(job.uuid)
            if refusal:
                self._not_started(job, Conflict(refusal["msg"]))
            else:
                job.watcher = started["watcher"]

    def _not_started(self, job: Job, error: KvmfleetError) -> None:
        """Keep the error; and close the record of a move of ours that certainly was not begun."""
        job.error = error
        certain = isinstance(error, (Forbidden, NotSupported, InvalidArgument, Conflict))
        if certain and job.mirror and job.order and not job.order["adopt"]:
            record = schema.copied(job.mirror.record)
            schema.advance(record, s.FAILED, self._by, f"Nothing was started: {error}")
            job.mirror.write(record)
            error.result["migrations"] = [job.mirror.record]

    def _follow(self, jobs: list[Job]) -> list[Job]:
        """Follow the jobs that have a watcher; return those whose watcher has died before it said how the move ended."""
        live = {job.uuid: job for job in jobs if job.watcher and not job.error}
        if not live:
            return []
        watchers = {uuid: t.cast("t.Mapping[str, t.Any]", job.watcher) for uuid, job in live.items()}
        mirrors = {uuid: t.cast(Mirror, job.mirror) for uuid, job in live.items()}
        try:
            return [live[uuid] for uuid in self._follower.follow(mirrors, watchers)]
        except Unreachable as error:
            for job in live.values():
                if job.mirror and not job.mirror.is_settled:
                    job.error = Unreachable(error.message, error.next_step, migrations=[job.mirror.record])
            return []

    def _adopt_again(self, job: Job) -> None:
        self.warnings.append(f"The watcher of domain {job.request.label} on {self._source.name} has died; a new one takes over.")
        fresh = self._source.phase("prepare", {"wanted": [job.request.wanted()]}, self._module_args)["survey"]["domains"][0]
        job.domain = {**job.domain, "watch": fresh["watch"]}
        job.order = self._order(job, adopt=True)
        job.watcher = None

    # -- conclude ------------------------------------------------------------------------------------------------

    def _conclude(self, job: Job) -> None:
        if job.error or not job.mirror:
            return
        job.record = job.mirror.record
        job.moved = job.record["status"] == s.COMPLETED and job.was_at_source
        job.error = error_of(job.record)

    def _goes_on(self, job: Job) -> bool:
        if job.mirror is None or job.record is None or job.record["status"] not in s.CLOSED:
            return False
        if job.record["status"] == s.COMPLETED:
            return job.request.destination not in (None, job.record["destination"]["host"])
        if isinstance(job.decision, d.Conclude):
            return True
        if isinstance(job.decision, d.Observe):
            return bool(job.record["reason"] == s.REASON_CONTROLLER_LOST)
        was_in_flight = job.domain["found"] and job.domain["info"]["view"]["job"] != "none"
        return isinstance(job.decision, d.Adopt) and not was_in_flight

    def _already_there(self, job: Job, decision: d.AlreadyThere) -> schema.Record:
        """Return the record of the move that brought the domain there, or one without an id that says that it is there."""
        document = self._ledger.domain(decision.uuid)
        last = document.body.get("last_record") if document else None
        if last:
            record = self._ledger.get(last).record
            if record["status"] == s.COMPLETED and record["destination"]["host"] == decision.host:
                return record
        record = schema.new_record(
            s.LIVE_MIGRATION,
            domain={"uuid": decision.uuid, "name": job.request.name},
            source=schema.place(None),
            destination=schema.place(decision.host, None, self._survey["destinations"][job.request.uris[decision.host]]["host_uuid"]),
            policy=job.request.policy,
            by=self._by,
        )
        schema.advance(record, s.COMPLETED, self._by, "The domain was there already.")
        record["id"] = None
        return record

    def _check_versions(self, job: Job, candidates: list[str]) -> None:
        options = job.request.options
        flags = migration_flags(options, True, value(job.request.policy, "auto_converge"), value(job.request.policy, "post_copy"))
        for host in candidates:
            versions = {self._source.name: self._survey["source"]["versions"], host: self._survey["destinations"][job.request.uris[host]]["versions"]}
            check_versions(options, flags, versions)

    def _warn_of_differences(self, job: Job, record: schema.Record) -> None:
        for option, given in job.request.given.items():
            recorded = value(record["policy"], option)
            if recorded != given:
                self.warnings.append(
                    f"The move of domain {job.request.label} was begun with {option}={recorded}; {option}={given} of this task is not applied."
                )

    @staticmethod
    def _guarded(job: Job, step: t.Callable[[Job], None]) -> None:
        """Run a step for one of several moves, and keep its error beside it: the others go on. Bad input ends the task."""
        if job.error:
            return
        try:
            step(job)
        except (InvalidArgument, Forbidden):
            raise
        except KvmfleetError as error:
            job.error = error
