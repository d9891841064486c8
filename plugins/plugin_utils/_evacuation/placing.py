# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the scheduler says of a host that is to take a dead host's domains from their saved requests, and a plan for many hosts."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h

from .._ledger.store import Body
from .._moves.fleet_view import FleetView
from .._scheduler import fleet as scheduler_fleet
from .._scheduler.check import Verdict, check
from .._scheduler.filters import DEFAULT, Filter
from .._scheduler.filters.base import PASS, Finding, Rule
from .._scheduler.host_state import HostState
from .._scheduler.planner import plan
from .._scheduler.request import Request
from .decide import unproved_for
from .job import Job

# A start is no move: no QEMU hands over to another, nothing need be able to migrate, and tokens prove more of the storage than its names do.
_MOVES_ONLY = ("max_moves", "migratable", "traits", "hypervisor", "cpu_threads", "storage")
FILTERS: t.Final[tuple[Filter, ...]] = tuple(rule for rule in DEFAULT if rule.name not in _MOVES_ONLY)
# A domain that stays off takes no room.
OFF_FILTERS: t.Final[tuple[Filter, ...]] = tuple(rule for rule in FILTERS if rule.name in ("not_source", "up", "enabled", "machine_type", "labels"))


def filters_for(job: Job) -> tuple[Filter, ...]:
    """Return the rules by which a host is judged for this domain."""
    return OFF_FILTERS if job.wanted == h.SHUTOFF else FILTERS


def request_of(job: Job) -> Request:
    """Return what the domain needs. Raises L(InvalidArgument) for a saved request that cannot be."""
    try:
        return Request.of(
            job.saved.get("request"), job.uuid, job.name, job.source.name, str(job.source.entry.get("host_uuid") or ""), source_id=job.source.host_id
        )
    except InvalidArgument as error:
        raise InvalidArgument(f"What was saved of the needs of domain {job.name} ({job.uuid}) cannot be: {error.message}", "It was not started.") from error


def verdict_on(job: Job, view: FleetView, uri: str, cpu: t.Optional[Body], force: bool) -> Verdict:
    """Return the verdict on the host that the task runs on, from the ledger as it is now."""
    asked = {"cpu": {uri: cpu} if cpu else {}, "paths": {}}
    fleet = view.fleet(asked, job.uuid, {view.source: uri})
    return check(request_of(job), fleet.states[view.source], fleet, filters_for(job), force)


@dataclass(frozen=True)
class Survivors:
    """The hosts among which a dead host's domains are shared out.

    :arg states: of them, and of hosts with members of groups.
    :arg host_ids: of them alone, by name.
    :arg present: UUIDs of the domains that each has, active or not.
    :arg pinned: UUID to survivor, where an evacuation has begun already.
    """

    states: Mapping[str, HostState]
    host_ids: Mapping[str, str]
    present: Mapping[str, frozenset[str]]
    pinned: Mapping[str, str]


class CanStart(Rule):
    """A host that was not proved to see a domain's disks while all was well does not start it, nor one that has it already; by no option."""

    name = "can_start"
    overridable = False

    def __init__(self, jobs: Iterable[Job], survivors: Survivors) -> None:
        self._jobs = {job.uuid: job for job in jobs}
        self._survivors = survivors

    def judge(self, request: Request, host: HostState, fleet: scheduler_fleet.Fleet) -> Finding:
        """Name the disks, or what is in the way."""
        if request.uuid in self._survivors.present.get(host.name, ()):
            return Finding("It has a definition of that domain already: clean it up first (kvmfleet.migration.evacuation_cleanup).")
        missing = unproved_for(self._jobs[request.uuid], self._survivors.host_ids[host.name])
        return Finding(f"That it sees {', '.join(missing)} was not proved.") if missing else PASS


@dataclass(frozen=True)
class Shares:
    """C(by_host): the UUIDs that each survivor starts; C(uncovered): domains that find no place, with why."""

    by_host: Mapping[str, list[str]]
    uncovered: list[Body]


def share_out(jobs: Sequence[Job], survivors: Survivors, force: bool) -> Shares:
    """Return who starts what, of all survivors at once."""
    fleet = scheduler_fleet.Fleet(survivors.states, frozenset(job.uuid for job in jobs))
    can_start, host_ids = CanStart(jobs, survivors), survivors.host_ids
    shares: dict[str, list[str]] = {host: [] for host in host_ids}
    uncovered: list[Body] = []
    for off in (False, True):
        some = [job for job in jobs if (job.wanted == h.SHUTOFF) is off]
        rules = (*(OFF_FILTERS if off else FILTERS), can_start)
        for placement in plan([request_of(job) for job in some], fleet, pinned=_of(survivors.pinned, some), filters=rules, hosts=host_ids):
            host = placement.destination
            if host is None and force:
                host = _forced(placement.request, fleet, sorted(host_ids), rules)
            if host is None:
                reasons = {verdict.host: verdict.reason for verdict in placement.verdicts if not verdict.passed}
                uncovered.append({"uuid": placement.request.uuid, "name": placement.request.name, "reasons": reasons})
                continue
            shares[host].append(placement.request.uuid)
            fleet = fleet if off else fleet.taking(placement.request, host)
    return Shares(shares, uncovered)


def _of(pinned: Mapping[str, str], jobs: Iterable[Job]) -> dict[str, str]:
    uuids = {job.uuid for job in jobs}
    return {uuid: host for uuid, host in pinned.items() if uuid in uuids}


def _forced(request: Request, fleet: scheduler_fleet.Fleet, hosts: Sequence[str], rules: Sequence[Filter]) -> t.Optional[str]:
    """Return the host with the most free memory of those on which it can be forced."""
    able = [host for host in hosts if check(request, fleet.states[host], fleet, rules, force=True).passed]
    return min(able, key=lambda host: (-fleet.states[host].free_mib(), host), default=None)
