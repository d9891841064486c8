# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Opening the record of a new move: the destination is verified under its lock, and writing C(scheduled) is the booking."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import required_traits
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.copying import plan_storage
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.check import Verdict, best, check
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.entries import entry_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.host_state import HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

MIB = 1024**2

Facts = dict[str, t.Any]


@dataclass
class Booking:
    """Verifies destinations and opens records, for the moves of one source host."""

    ledger: Ledger
    settings: Settings
    source: str
    survey: Facts
    by: str

    def predict(self, request: MoveRequest, domain: Facts, candidates: list[str]) -> schema.Record:
        """Return the record that L(book) would write, without an id. Raises L(Conflict) where no candidate passes."""
        verdict = self._best(request, domain, candidates)
        if not verdict.passed:
            raise Conflict(_refusal(request, verdict), "Nothing was moved.")
        record = self._record(request, domain, verdict.host)
        schema.advance(record, s.SCHEDULED, self.by, "predicted in check mode")
        record["id"] = None
        return record

    def book(self, request: MoveRequest, domain: Facts, candidates: list[str]) -> Stored:
        """Open the record and bring it to C(queued). Raises L(Conflict), with the record, where no candidate passes."""
        best = self._best(request, domain, candidates)
        stored = self.ledger.open_record(self._record(request, domain, best.host))
        while True:
            with self.ledger.locked(f"host-{self._facts(request, best.host)['host_uuid']}"):
                verdict = self._verdict(request, domain, best.host)
                if verdict.passed:
                    stored = self._scheduled(stored, request, domain, best.host)
                    return self._advance(stored, s.QUEUED)
            candidates = [host for host in candidates if host != best.host]
            if not candidates:
                refusal = _refusal(request, verdict)
                stored = self._advance(stored, s.CONFLICT, refusal)
                raise Conflict(refusal, "Nothing was moved.", migrations=[stored.record])
            best = self._best(request, domain, candidates)

    def adopt_foreign(self, request: MoveRequest, domain: Facts, host: str) -> Stored:
        """Open the record of a move that somebody else began."""
        record = self._record(request, domain, host)
        info = domain["info"]
        # Its definition at the destination may be the mover's own: it is never removed by us.
        record["before"] = {"state": info["view"]["state"], "persistent": info["view"]["persistent"], "autostart": info["autostart"], "at_destination": True}
        return self.ledger.open_record(record)

    def _best(self, request: MoveRequest, domain: Facts, candidates: list[str]) -> Verdict:
        """Return the best verdict that passed; where none did, the first refusal."""
        verdicts = [self._verdict(request, domain, host) for host in candidates]
        return best(verdicts) or verdicts[0]

    def _verdict(self, request: MoveRequest, domain: Facts, host: str) -> Verdict:
        facts = self._facts(request, host)
        state = HostState.from_survey(
            host,
            facts,
            records=self.ledger.records(host=facts["host_uuid"], unsettled_only=True),
            entry=entry_of((document.body for document in self.ledger.hosts()), host, facts["host_uuid"]),
            settings=self.settings.of(host, "kvmfleet_scheduler"),
        )
        return check(self._needs(domain), state)

    def _needs(self, domain: Facts) -> Request:
        info = domain["info"]
        return Request(
            uuid=info["uuid"],
            name=info["name"],
            source=self.source,
            source_uuid=self.survey["source"]["host_uuid"],
            memory_mib=-(-info["memory_bytes"] // MIB),
            vcpus=info["vcpus"],
        )

    def _record(self, request: MoveRequest, domain: Facts, host: str) -> schema.Record:
        info, needs = domain["info"], self._needs(domain)
        record = schema.new_record(
            s.LIVE_MIGRATION,
            domain={"uuid": info["uuid"], "name": info["name"]},
            source=self._place(self.source, self.survey["source"]["host_uuid"]),
            destination=self._place(host, self._facts(request, host)["host_uuid"]),
            policy=request.policy,
            by=self.by,
            request={**needs.needs(), "traits": required_traits(request.policy)},
        )
        record["connection"] = {"destination_uri": request.uris[host], "bandwidth_mib": request.options.bandwidth_mib, "link_mib": request.link_mib}
        plan_storage(record, request, domain, host)
        return record

    def _scheduled(self, stored: Stored, request: MoveRequest, domain: Facts, host: str) -> Stored:
        """Write the booking: the host that passed, which need not be the one that the record was opened with."""
        record = schema.copied(stored.record)
        record["destination"] = self._place(host, self._facts(request, host)["host_uuid"])
        record["connection"]["destination_uri"] = request.uris[host]
        plan_storage(record, request, domain, host)
        schema.advance(record, s.SCHEDULED, self.by, "The destination was verified and booked.")
        return self.ledger.update(stored, record)

    def _advance(self, stored: Stored, status: str, detail: str = "") -> Stored:
        record = schema.copied(stored.record)
        schema.advance(record, status, self.by, detail)
        return self.ledger.update(stored, record)

    def _facts(self, request: MoveRequest, host: str) -> Facts:
        return t.cast(Facts, self.survey["destinations"][request.uris[host]])

    def _place(self, host: str, uuid: str) -> schema.Record:
        entry = self.ledger.find_host(host_uuid=uuid)
        return schema.place(host, entry.body.get("host_id") if entry else None, uuid)


def _refusal(request: MoveRequest, verdict: Verdict) -> str:
    if request.destination:
        return f"{verdict.host} may not take domain {request.label}: {verdict.reason}"
    return f"No host of the group kvmfleet_hosts may take domain {request.label}; {verdict.host}, for one: {verdict.reason}"
