# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The plan of a drain: every active domain of every host that is drained, and where it goes, or why it cannot."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import BEFORE_JOB, UNSETTLED

from .._scheduler.check import Verdict, check
from .._scheduler.entries import entry_of
from .._scheduler.host_state import HostState
from .._scheduler.planner import Placement, plan
from .._scheduler.prediction import move_seconds, rate_mib, window_seconds
from .._scheduler.request import Request
from . import facts as read

SCHEMA = 1
NO_RECEIVER = "A migration of it that has no record is in progress, and no candidate says that it receives it: wait for its end and run again."

Body = Mapping[str, t.Any]
Document = dict[str, t.Any]


@dataclass(frozen=True)
class Known:
    """What a plan is made from.

    :arg facts: C(kvmfleet_host) by inventory name, of the sources and of the candidates that answered.
    :arg entries: the ledger's documents of hosts.
    :arg records: unsettled records of the whole fleet.
    :arg unreachable: why a candidate did not answer, by name.
    :arg scheduler: C(kvmfleet_scheduler) by name.
    :arg history: completed records, for the prediction.
    """

    facts: Mapping[str, Body]
    entries: Sequence[Body] = ()
    records: Sequence[Body] = ()
    unreachable: Mapping[str, str] = field(default_factory=dict)
    scheduler: Mapping[str, Body] = field(default_factory=dict)
    history: Sequence[Body] = ()

    def state(self, host: str) -> HostState:
        """Return the host as the scheduler sees it."""
        facts = self.facts.get(host) or {}
        entry = entry_of(self.entries, host, facts.get("host_uuid"), facts.get("host_id"))
        return HostState.from_survey(host, read.survey_of(facts, self.unreachable.get(host)), self.records, entry, self.scheduler.get(host))

    def record_from(self, uuid: str, source: str, source_uuid: str) -> t.Optional[Body]:
        """Return the unsettled record of the domain's move away from that host."""
        for record in self.records:
            ours = record["source"].get("host_uuid") == source_uuid or record["source"].get("host") == source
            if record["domain"]["uuid"] == uuid and record["status"] in UNSETTLED and ours:
                return record
        return None


def make_plan(known: Known, sources: Sequence[str], candidates: Sequence[str], parallel: int = 4, bandwidth_mib: int = 0) -> Document:
    """Return the plan as JSON can carry it. Raises L(InvalidArgument) for a source of which there are no facts.

    A host that is drained is nobody's destination, whatever the ledger says of it yet.
    """
    _check_sources(known, sources)
    hosts = [_as_drained(known.state(host), sources) for host in sorted({*candidates, *sources})]
    sorted_out = _Sorted()
    for source in sources:
        for domain in sorted(known.facts[source]["domains"], key=lambda domain: (domain["name"], domain["uuid"])):
            _sort(domain, source, known, hosts, sorted_out)
    placements = plan(sorted_out.requests, hosts, sorted_out.pinned)
    rate = rate_mib(known.history, bandwidth_mib)
    moves = [_move(placement, rate) for placement in placements if placement.destination]
    return {
        "schema": SCHEMA,
        "created_at": utc_now(),
        "sources": list(sources),
        "candidates": sorted({*candidates} - {*sources}),
        "moves": moves,
        "unplaced": sorted_out.stuck + [_unplaced(placement) for placement in placements if not placement.destination],
        "skipped": sorted_out.skipped,
        "predicted_seconds": {source: _window(moves, source, parallel) for source in sources},
    }


@dataclass
class _Sorted:
    requests: list[Request] = field(default_factory=list)
    pinned: dict[str, str] = field(default_factory=dict)
    stuck: list[Document] = field(default_factory=list)
    skipped: list[Document] = field(default_factory=list)


def _check_sources(known: Known, sources: Sequence[str]) -> None:
    missing = [source for source in sources if not known.facts.get(source)]
    if missing:
        raise InvalidArgument(f"There are no facts of {', '.join(missing)}.", "Run kvmfleet.migration.host_facts there first.")


def _as_drained(host: HostState, sources: Iterable[str]) -> HostState:
    return replace(host, state="maintenance", state_reason="it is being drained") if host.name in sources else host


def _sort(domain: Body, source: str, known: Known, hosts: Sequence[HostState], into: _Sorted) -> None:
    """Decide what a domain is for the plan: to be left, to be placed, on its way already, or not to be moved at all."""
    base = {"name": domain["name"], "uuid": domain["uuid"], "source": source}
    if not domain["active"]:
        into.skipped.append({**base, "state": domain["state"], "reason": f"It is {domain['state']}: its definition stays."})
        return
    request = read.request_of(domain, source, known.facts[source]["host_uuid"])
    way, problem = _way(domain, request, known, hosts)
    if problem:
        into.stuck.append({**base, "memory_mib": request.memory_mib, "reason": problem, "rejected": []})
        return
    into.requests.append(request)
    if way:
        into.pinned[request.uuid] = way


def _way(domain: Body, request: Request, known: Known, hosts: Sequence[HostState]) -> tuple[t.Optional[str], t.Optional[str]]:
    """Return where the domain is going already, and why it cannot be moved; mostly neither."""
    record = known.record_from(request.uuid, request.source, request.source_uuid)
    if read.is_leaving(domain):
        way = _destination_of(record, known) or _receiver(request, known)
        return way, None if way else NO_RECEIVER
    if read.is_arriving(domain):
        return None, "It is still arriving here: wait for the end of that migration and run again."
    if domain["state"] not in read.MOVABLE:
        return None, f"It is {domain['state']}: only a running or a paused domain can be moved live. Stop or repair it and run again."
    elsewhere = _active_elsewhere(request, known)
    if elsewhere:
        return None, f"It is active on {', '.join(elsewhere)} as well. Nothing is done to either: find out which of them is the right one."
    return _booked(record, request, known, hosts), None


def _booked(record: t.Optional[Body], request: Request, known: Known, hosts: Sequence[HostState]) -> t.Optional[str]:
    """Return the destination of a move that another run has booked and not begun, where the host may still take it."""
    if record is None or record["status"] not in BEFORE_JOB:
        return None
    way = _destination_of(record, known)
    return next((host.name for host in hosts if host.name == way and check(request, host).passed), None)


def _destination_of(record: t.Optional[Body], known: Known) -> t.Optional[str]:
    if record is None:
        return None
    named: t.Optional[str] = record["destination"].get("host")
    uuid = record["destination"].get("host_uuid")
    return named or next((host for host, facts in known.facts.items() if uuid and facts["host_uuid"] == uuid), None)


def _receiver(request: Request, known: Known) -> t.Optional[str]:
    """Return the host that has the domain as well, while it leaves its source."""
    others = _active_elsewhere(request, known)
    return others[0] if len(others) == 1 else None


def _active_elsewhere(request: Request, known: Known) -> list[str]:
    others = {host: read.find(facts, request.uuid) for host, facts in known.facts.items() if facts["host_uuid"] != request.source_uuid}
    return sorted(host for host, domain in others.items() if domain and domain["active"])


def _move(placement: Placement, rate: float) -> Document:
    request = placement.request
    others = [verdict for verdict in placement.verdicts if verdict.host != placement.destination]
    chosen = next((verdict for verdict in placement.verdicts if verdict.host == placement.destination), None)
    return {
        "name": request.name,
        "uuid": request.uuid,
        "source": request.source,
        "destination": placement.destination,
        "memory_mib": request.memory_mib,
        "predicted_seconds": move_seconds(request.memory_mib, rate),
        "reason": f"It has the most free memory, {chosen.weight:.0f} MiB." if chosen else "The domain is on its way there already.",
        "rejected": [{"host": verdict.host, "reason": _reason(verdict)} for verdict in others if verdict.host != request.source],
    }


def _unplaced(placement: Placement) -> Document:
    request = placement.request
    rejected = [{"host": verdict.host, "reason": verdict.reason} for verdict in placement.verdicts if verdict.host != request.source]
    why = "; ".join(f"{entry['host']}: {entry['reason'].rstrip('.')}" for entry in rejected)
    reason = f"No host can take it. {why}." if rejected else "There is no other host."
    return {
        "name": request.name,
        "uuid": request.uuid,
        "source": request.source,
        "memory_mib": request.memory_mib,
        "reason": reason,
        "rejected": rejected,
    }


def _reason(verdict: Verdict) -> str:
    return verdict.reason or f"It could take the domain too, but has no more free memory, {verdict.weight:.0f} MiB."


def _window(moves: Iterable[Body], source: str, parallel: int) -> float:
    return window_seconds([move["predicted_seconds"] for move in moves if move["source"] == source], parallel)
