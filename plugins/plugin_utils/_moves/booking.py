# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Opening the record of a new move: the destination is verified under its lock, and writing C(scheduled) is the booking."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, KvmfleetError, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.places import lock_of, place_told
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.copying import plan_storage
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.decide import Start
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Context, Job
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.judging import Judge, judge_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.known import Facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.reasons import compact
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.check import BYPASSED, Verdict, best

FORCED_MIGRATE = "FORCED_MIGRATE"

Verdicts = dict[str, Verdict]


@dataclass
class Booking:
    """Verifies destinations and opens records, for the moves of one source host."""

    context: Context
    view: FleetView

    def predict(self, job: Job, decision: Start) -> schema.Record:
        """Return the record that L(book) would write, without an id. Raises L(Conflict) where no candidate passes."""
        judge = judge_of(self.view, job.request, job.domain)
        verdicts = judge.rank(decision.candidates)
        chosen = best(list(verdicts.values()))
        if chosen is None:
            raise _refusal(job, decision, verdicts)
        record = self._record(job, judge, chosen.host)
        self._warn(job, chosen)
        schema.advance(record, s.SCHEDULED, self.context.by, f"Predicted in check mode. {_mark(job, chosen, 'would be')}")
        record["id"] = None
        # What would be booked leaves less room for the task's further moves.
        self.view.planned.append(record)
        return record

    def book(self, job: Job, decision: Start) -> Stored:
        """Open the record and bring it to C(queued). Raises L(Conflict), with the record, where no candidate passes."""
        judge = judge_of(self.view, job.request, job.domain)
        verdicts = judge.rank(decision.candidates)
        chosen = best(list(verdicts.values()))
        stored = self.context.ledger.open_record(self._record(job, judge, chosen.host if chosen else decision.candidates[0]))
        while chosen is not None:
            booked = self._tried(stored, job, judge, chosen.host, verdicts)
            if booked is not None:
                return booked
            verdicts |= judge.rank([host for host, verdict in verdicts.items() if verdict.passed])
            chosen = best(list(verdicts.values()))
        refusal = _refusal(job, decision, verdicts)
        refusal.result["migrations"] = [self._advance(stored, s.CONFLICT, refusal.message).record]
        raise refusal

    def _tried(self, stored: Stored, job: Job, judge: Judge, host: str, verdicts: Verdicts) -> Stored | None:
        """Book the host; where that cannot be done for want of its lock, close the record, for nothing came of it."""
        try:
            return self._booked(stored, job, judge, host, verdicts)
        except (Conflict, TimedOut) as error:
            with contextlib.suppress(KvmfleetError):
                error.result["migrations"] = [self._advance(stored, s.CONFLICT, f"Nothing was booked: {error.message}").record]
            raise

    def _booked(self, stored: Stored, job: Job, judge: Judge, host: str, verdicts: Verdicts) -> Stored | None:
        """Ask once more under the host's lock, where nobody else can take the room, and book it; return None where it does not pass any more."""
        with self.context.ledger.locked(lock_of(self._place(host, judge.facts(host)))):
            verdicts |= judge.rank([host])
            if not verdicts[host].passed:
                return None
            stored = self._scheduled(stored, job, judge, verdicts[host])
        self._warn(job, verdicts[host])
        return self._advance(stored, s.QUEUED)

    def adopt_foreign(self, job: Job, host: str) -> Stored:
        """Open the record of a move that somebody else began."""
        record, info = self._record(job, judge_of(self.view, job.request, job.domain), host), job.domain["info"]
        # Its definition at the destination may be the mover's own: it is never removed by us.
        record["before"] = {"state": info["view"]["state"], "persistent": info["view"]["persistent"], "autostart": info["autostart"], "at_destination": True}
        record["forced"] = None
        return self.context.ledger.open_record(record)

    def _record(self, job: Job, judge: Judge, host: str) -> schema.Record:
        info, request = job.domain["info"], job.request
        record = schema.new_record(
            s.LIVE_MIGRATION,
            domain={"uuid": info["uuid"], "name": info["name"]},
            source=self._place(self.context.source.name, self.view.source_facts()),
            destination=self._place(host, judge.facts(host)),
            policy=request.policy,
            by=self.context.by,
            request=judge.needs(host).as_json(),
            forced=FORCED_MIGRATE if request.force else None,
        )
        record["ledger_id"] = self.context.ledger.ledger_id
        record["connection"] = {"destination_uri": request.uris[host], "bandwidth_mib": request.options.bandwidth_mib, "link_mib": request.link_mib}
        plan_storage(record, request, job.domain, host)
        return record

    def _scheduled(self, stored: Stored, job: Job, judge: Judge, verdict: Verdict) -> Stored:
        """Write the booking: the host that passed, which need not be the one that the record was opened with."""
        record, host = schema.copied(stored.record), verdict.host
        record["destination"] = self._place(host, judge.facts(host))
        record["connection"]["destination_uri"] = job.request.uris[host]
        plan_storage(record, job.request, job.domain, host)
        schema.advance(record, s.SCHEDULED, self.context.by, _mark(job, verdict))
        return self.context.ledger.update(stored, record)

    def _advance(self, stored: Stored, status: str, detail: str = "") -> Stored:
        record = schema.copied(stored.record)
        schema.advance(record, status, self.context.by, detail)
        return self.context.ledger.update(stored, record)

    def _place(self, host: str, facts: Facts) -> schema.Record:
        return place_told(self.context.ledger, host, facts)

    def _warn(self, job: Job, verdict: Verdict) -> None:
        self.context.warnings += [f"Domain {job.request.label} to {verdict.host}: {warning}" for warning in verdict.warnings]


def _mark(job: Job, verdict: Verdict, verb: str = "was") -> str:
    """Return what history says of the booking; of a forced one, all that was bypassed."""
    if not job.request.force:
        return f"The destination {verb} verified and booked."
    bypassed = [warning.removeprefix(BYPASSED) for warning in verdict.warnings if warning.startswith(BYPASSED)]
    return f"The destination {verb} booked by force. {'Bypassed: ' + ' '.join(bypassed) if bypassed else 'Nothing had to be bypassed.'}"


def _refusal(job: Job, decision: Start, verdicts: Verdicts) -> Conflict:
    """Return the error with the reasons of every host that was asked, those included that could not receive the domain at all."""
    label = job.request.label
    if job.request.destination:
        (verdict,) = verdicts.values()
        return Conflict(f"{verdict.host} may not take domain {label}: {verdict.reason}", "Nothing was moved.")
    reasons = {**decision.refused, **{host: verdict.reason for host, verdict in verdicts.items()}}
    return Conflict(f"No host of the group kvmfleet_hosts may take domain {label}. {compact(reasons)}", "Nothing was moved.")
