# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Opening the record of an evacuation: the host is verified under its lock, and C(pre-migrating) is on disk before anything is started."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._hosts.places import lock_of
from .._ledger.places import same_host
from .._ledger.rules import describe
from .._ledger.store import Body, Stored
from .._moves.fleet_view import FleetView
from .._scheduler.check import BYPASSED, Verdict, check
from .._scheduler.fleet import Fleet
from .job import Context, Job
from .placing import filters_for, request_of, verdict_on

FORCED_REBUILD = "FORCED_REBUILD"


@dataclass
class Booking:
    """:arg here: the host that takes the domains, as a place of records.

    :arg cpu: libvirt's verdicts by UUID.
    """

    context: Context
    view: FleetView
    here: Body
    cpu: t.Mapping[str, t.Optional[Body]]
    _records: dict[str, Body] = field(default_factory=dict)
    _fleet: Fleet = field(default_factory=Fleet)

    def predict(self, job: Job) -> None:
        """Give the job the record that would be opened, without an id. Raises L(Conflict) where the host may not take it."""
        verdict = verdict_on(job, self.view, self.context.uri, self.cpu.get(job.uuid), self.context.wish.force)
        if not verdict.passed:
            raise self._refusal(job, verdict)
        record = self._record(job, [])
        record["id"] = None
        job.prediction, job.changed = record, True
        self.view.planned.append(record)

    def rejoin(self, job: Job, evidence: Sequence[Body]) -> None:
        """Take up the job's record where an earlier run left it."""
        stored = self.context.ledger.unsettled_of(job.uuid)
        if stored is None or stored.record["id"] != (job.candidate.record or {}).get("id"):
            raise Conflict(f"The record of domain {job.name} was settled by another run meanwhile.", "Run the task again.")
        record = schema.copied(stored.record)
        record["evidence"] += evidence
        if record["status"] == s.ERROR:
            schema.advance(record, s.PRE_MIGRATING, self.context.by, "An earlier run could not tell how it ended. It is asked again.")
        else:
            schema.note(record, "rejoined", self.context.by, "An earlier run did not see its end. The host is asked again.")
        job.stored = self.context.ledger.update(stored, record)

    def give_up_older(self, job: Job, evidence: Sequence[Body]) -> None:
        """Let the record go, if any, that the one which L(book) will write takes the place of. Raises L(Conflict) where it is at work after all."""
        if job.older is not None:
            self._records[job.uuid] = self._record(job, evidence)
            self._give_up(job, job.older, self._records[job.uuid]["id"], evidence)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep everybody else from booking towards this host: what was read at the beginning, and what is booked here, is all that it has."""
        with self.context.ledger.locked(lock_of(self.here)):
            self._fleet = self.view.fleet({}, "", {self.view.source: self.context.uri})
            yield

    def book(self, job: Job, evidence: Sequence[Body]) -> None:
        """Bring a new record to C(pre-migrating), while L(held). Raises L(Conflict), with the record, where the host may not take the domain."""
        verdict = self._verdict(job)
        stored = self.context.ledger.open_record(self._records.get(job.uuid) or self._record(job, evidence))
        if stored.record["generation"] != int(job.candidate.document.get("generation") or 0) + 1:
            self._advance(stored, s.CONFLICT, "Another run had a record of this domain meanwhile.")
            raise Conflict(f"Another run had a record of domain {job.name} meanwhile. It was not started.", "Run the task again.")
        if not verdict.passed:
            refusal = self._refusal(job, verdict)
            job.stored = self._advance(stored, s.CONFLICT, refusal.message)
            raise refusal
        job.stored = self._advance(stored, s.PRE_MIGRATING, _mark(self.context.wish.force, verdict))
        if job.wanted != h.SHUTOFF:
            self._fleet = self._fleet.taking(request_of(job), self.view.source)
        self.context.warnings += [f"Domain {job.name}: {warning}" for warning in verdict.warnings]

    def _record(self, job: Job, evidence: Sequence[Body]) -> Body:
        wish, saved = self.context.wish, job.saved
        record = schema.new_record(
            s.EVACUATION,
            domain={"uuid": job.uuid, "name": job.name},
            source=job.source.place,
            destination=self.here,
            policy={},
            by=self.context.by,
            request={} if job.wanted == h.SHUTOFF else request_of(job).as_json(),
            forced=FORCED_REBUILD if wish.force else None,
        )
        before = {key: saved.get(key) for key in ("state", "state_at", "persistent", "autostart")}
        # Once its new host has protected the domain, only the record still says what its disks were here.
        disks = saved.get("disks") if same_host(saved.get("host") or {}, job.source.place) else None
        return {**record, "before": {**before, "saved_at": saved.get("at"), "disks": disks}, "wanted_state": job.wanted, "evidence": list(evidence)}

    def _verdict(self, job: Job) -> Verdict:
        cpu = self.cpu.get(job.uuid)
        host = replace(self._fleet.states[self.view.source], cpu_verdicts={job.uuid: cpu} if cpu else {})
        return check(request_of(job), host, self._fleet, filters_for(job), self.context.wish.force)

    def _give_up(self, job: Job, older: Body, new_id: str, evidence: Sequence[Body]) -> None:
        """Let the record go that holds the domain and whose hosts are off or have it not."""
        # Whoever brings a record from accepted to pre-migrating does so under its destination's lock.
        with self.context.ledger.locked(lock_of(older["destination"])):
            stored = self.context.ledger.unsettled_of(job.uuid)
            if stored is None:
                return
            if stored.record["id"] != older["id"] or stored.record["status"] != older["status"]:
                raise Conflict(f"{describe(stored.record)} changed meanwhile: its status is '{stored.record['status']}'.", "Run the task again.")
            record = schema.copied(stored.record)
            record["evidence"] += evidence
            if _never_arrived(record, job.source.place):
                schema.advance(record, s.FAILED, self.context.by, f"{job.source.name} is off by evidence, and {record['destination']['host']} has it not.")
            else:
                record["superseded_by"] = new_id
                schema.note(record, "superseded", self.context.by, f"Its hosts are off by evidence, or do not have it. Taken over by {new_id}.")
            self.context.ledger.update(stored, record)

    def _advance(self, stored: Stored, status: str, detail: str) -> Stored:
        record = schema.copied(stored.record)
        schema.advance(record, status, self.context.by, detail)
        return self.context.ledger.update(stored, record)

    def _refusal(self, job: Job, verdict: Verdict) -> Conflict:
        return Conflict(f"{verdict.host} may not take domain {job.name}: {verdict.reason}", "It was not started.")


def _never_arrived(record: Body, source: Body) -> bool:
    """Whether the record can be closed: an evacuation that had not begun, or a live migration away from a host that is off now."""
    if record["type"] == s.EVACUATION:
        return bool(record["status"] == s.ACCEPTED)
    return same_host(record["source"], source)


def _mark(force: bool, verdict: Verdict) -> str:
    if not force:
        return "The host was verified and booked."
    bypassed = [warning.removeprefix(BYPASSED) for warning in verdict.warnings if warning.startswith(BYPASSED)]
    return f"The host was booked by force. {'Bypassed: ' + ' '.join(bypassed) if bypassed else 'Nothing had to be bypassed.'}"
