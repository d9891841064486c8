# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One plan that distributes the domains of a dead host among all survivors."""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Forbidden,
    InvalidArgument,
    KvmfleetError,
    NotFound,
    NotSupported,
    Unreachable,
    Unsafe,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NO_MAPS, HostNames, Renaming
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import CONFLICT, EVACUATION, FAILED

from .._ledger.documents import HostEntry, pause_collector
from .._ledger.host_entries import find_host_id
from .._ledger.ledger import Ledger
from .._migrate.known_facts import add_profile_groups, readable_profiles
from .._observe.fleet_scan import ImageUsers
from .._scheduler import fleet as scheduler_fleet
from .._scheduler.filters.base import PASS, Filter, Finding, Rule
from .._scheduler.filters.storage import explain_silent_images
from .._scheduler.fleet import HostState, find_entry
from .._scheduler.planner import Placement, plan_placements
from .._scheduler.request import Request
from .._scheduler.verdicts import check_host
from .._settings.variables import read_facts
from .evacuation import Evacuation, ProbedFleet
from .fleet_answers import FleetAnswers, SurvivorView
from .job import EvacuationJob
from .renaming import rename_definition
from .reservation import OFF_FILTERS, START_FILTERS, build_request
from .result import UncoveredDomain
from .start_checks import list_unproved_images


@dataclass(frozen=True)
class SurvivingHosts:
    """The hosts that share a dead host's domains.

    :arg states: of them, and of hosts with members of groups.
    :arg host_ids: of them alone, by name.
    :arg present: the domains that each has, active or not: UUID by name.
    :arg pinned: UUID to survivor, for domains that an earlier run has reserved there or begun to start there.
    :arg image_users: the images that domains of all these hosts use.
    :arg failed: UUID to survivors, for domains whose start has failed there since they ran last.
    """

    states: Mapping[str, HostState]
    host_ids: Mapping[str, str]
    present: Mapping[str, Mapping[str, str]]
    pinned: Mapping[str, str]
    image_users: ImageUsers
    failed: Mapping[str, frozenset[str]]


class CanStart(Rule):
    """A host that was not proved to see a domain's disks while all hosts were healthy cannot start it, and neither can one whose file system with these disks
    does not answer now, that already has the domain or its name, or for which its definition cannot be rewritten.

    No option overrides that.
    """

    name = "can_start"
    overridable = False

    def __init__(self, jobs: Iterable[EvacuationJob], survivors: SurvivingHosts) -> None:
        self._jobs = {job.uuid: job for job in jobs}
        self._survivors = survivors
        self._problems: dict[tuple[str, str], str] = {}
        self._uuids = {host: frozenset(there.values()) for host, there in survivors.present.items()}

    def judge_host(self, request: Request, host: HostState, fleet: scheduler_fleet.Fleet) -> Finding:
        """Refuse the host, and name the disks or the existing definition."""
        present = self._survivors.present.get(host.name, {})
        if request.uuid in self._uuids.get(host.name, ()):
            return Finding("It has a definition of that domain already: clean it up first (kvmfleet.migration.evacuation_cleanup).")
        if request.name in present:
            return Finding(f"It has another domain named {request.name} ({present[request.name]}).")
        missing = list_unproved_images(self._jobs[request.uuid], self._survivors.host_ids[host.name])
        if missing:
            return Finding(f"Its access to {', '.join(missing)} was not proved.")
        problem = self._find_naming_problem(request, host) or explain_silent_images(request, host)
        return Finding(problem) if problem else PASS

    def _find_naming_problem(self, request: Request, host: HostState) -> str:
        """Return why the saved definition cannot be rewritten for that host; empty if it can."""
        if request.names is None or request.names.maps == host.resource_maps:
            return ""
        key = (request.uuid, host.name)
        if key not in self._problems:
            renaming = Renaming.between(request.names, HostNames(host.name, host.resource_maps))
            self._problems[key] = rename_definition(self._jobs[request.uuid].saved, renaming).problem
        return self._problems[key]


class HasNotFailed(Rule):
    """A host on which a start of the domain has failed is the last choice.

    Facts do not show everything that a start needs, so that it could fail there each time.
    """

    name = "has_not_failed"

    def __init__(self, failed: Mapping[str, frozenset[str]]) -> None:
        self._failed = failed

    def judge_host(self, request: Request, host: HostState, fleet: scheduler_fleet.Fleet) -> Finding:
        """Refuse the host."""
        return Finding("A start of it has failed there.") if host.name in self._failed.get(request.uuid, ()) else PASS


@dataclass(frozen=True)
class Shares:
    """C(by_host): the UUIDs that each survivor starts; C(uncovered): domains that cannot be placed, with reasons."""

    by_host: Mapping[str, list[str]]
    uncovered: list[UncoveredDomain]


def share_domains(jobs: Sequence[EvacuationJob], survivors: SurvivingHosts, destination: str, force: bool) -> Shares:
    """Return the shares of all survivors.

    :arg destination: the one that starts all domains, unless their start has begun on another one; empty for any.
    :arg force: whether the destination starts them although the scheduler refuses it.
    """
    fleet = scheduler_fleet.Fleet(survivors.states, frozenset(job.uuid for job in jobs))
    can_start, host_ids = CanStart(jobs, survivors), survivors.host_ids
    shares: dict[str, list[str]] = {host: [] for host in host_ids}
    uncovered: list[UncoveredDomain] = []
    for off in (False, True):
        some = [job for job in jobs if (job.wanted == domain_states.SHUTOFF) is off]
        rules = (*(OFF_FILTERS if off else START_FILTERS), can_start)
        for placement in _place(some, fleet, survivors, rules, [destination] if destination else host_ids):
            host = placement.destination
            if host is None and force and destination and check_host(placement.request, fleet.states[destination], fleet, rules, force=True).passed:
                host = destination
            if host is None:
                reasons = {verdict.host: verdict.reason for verdict in placement.verdicts if not verdict.passed}
                why = " ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items()))
                uncovered.append(UncoveredDomain(placement.request.uuid, placement.request.name, reasons, why))
                continue
            shares[host].append(placement.request.uuid)
            fleet = fleet if off else fleet.with_domain(placement.request, host)
    return Shares(shares, uncovered)


def _place(
    jobs: Sequence[EvacuationJob], fleet: scheduler_fleet.Fleet, survivors: SurvivingHosts, rules: Sequence[Filter], hosts: Iterable[str]
) -> list[Placement]:
    """Return the placement of each domain on one of these hosts; on one on which its start has failed only if it finds no other."""
    requests, pinned, failed = [build_request(job) for job in jobs], _pinned_among(survivors.pinned, jobs), survivors.failed
    while True:
        avoided = (HasNotFailed(failed),) if failed else ()
        placements = plan_placements(requests, fleet, pinned=pinned, filters=(*rules, *avoided), hosts=hosts)
        found_none = failed.keys() & {one.request.uuid for one in placements if one.destination is None}
        if not found_none:
            return placements
        # All are placed again: another domain may have the room, and one of the same group has to follow.
        failed = {uuid: names for uuid, names in failed.items() if uuid not in found_none}


def _pinned_among(pinned: Mapping[str, str], jobs: Iterable[EvacuationJob]) -> dict[str, str]:
    uuids = {job.uuid for job in jobs}
    return {uuid: host for uuid, host in pinned.items() if uuid in uuids}


def plan_evacuation(run: Evacuation, probed: ProbedFleet, names: Sequence[str], since: t.Optional[BootMoment] = None, destination: str = "") -> Shares:
    """Return the shares of these hosts. A domain that all of them refuse gets a record with the status C(conflict), unless in check mode.

    The evidence was collected before. Raises L(InvalidArgument) for a host without facts, L(Unsafe) for withdrawn evidence.

    :arg since: the time of the evidence. Facts that were received later are used, even if the slowest host took long.
    :arg destination: as for L(share_domains); one of C(names).
    """
    survivors = _read_survivors(run, probed.seen, names, since)
    arrivals = run.proofs.list_late_arrivals(run.context.ledger)
    for job in run.open_jobs():
        if job.uuid not in survivors.pinned:
            job.keep_error(lambda job: _judge_job(job, run, probed.fleet, survivors, arrivals))
    shares = share_domains(run.open_jobs(), survivors, destination, run.context.options.force)
    refused_host = survivors.states[destination or min(names)]
    jobs = {job.uuid: job for job in run.jobs}
    for one in shares.uncovered:
        run.record_refusal(jobs[one.uuid], refused_host.host_ref, one.reason, refused_host.settings.filters_off)
    uncovered = [replace(one, record=job.stored.record.id if (job := jobs[one.uuid]).stored else ABSENT) for one in shares.uncovered]
    return replace(shares, uncovered=uncovered)


# A plan is made from facts that are not older, even if they were received before the source was fenced: each survivor surveys itself again before it reserves.
RECENT_SECONDS = 30.0


def has_recent_facts(run: Evacuation, names: Iterable[str]) -> bool:
    """Whether this control node received facts of all these hosts within L(RECENT_SECONDS)."""
    now = boot_moment()
    since = replace(now, seconds=now.seconds - RECENT_SECONDS)
    return all(name == run.context.target_host or run.context.settings.facts_since(name, since) is not None for name in names)


def refuse_missing_destination(run: Evacuation, destination: str, survivors: Sequence[str], excluded: Mapping[str, str]) -> None:
    """Refuse all domains, with a record of each, if the named destination is not one of the survivors, which are the hosts that answered to root."""
    if not destination or not survivors or destination in survivors:
        return
    known = next((entry.host_ref for entry in run.entries if entry.name == destination), HostRef(destination, None, None))
    for job in run.open_jobs():
        job.error = _missing_destination(destination, job.name, excluded.get(destination))
        run.record_refusal(job, known, job.error.message)


def _missing_destination(destination: str, domain: str, why: str | None) -> KvmfleetError:
    if why:
        return Forbidden(
            f"The destination {destination} cannot start domains: {why}. Domain {domain} was not started.",
            f"Set become: true for {destination}, or name another host.",
        )
    return Unreachable(f"The destination {destination} does not answer. Domain {domain} was not started.", "Name another host, or none.")


def _judge_job(job: EvacuationJob, run: Evacuation, fleet: FleetAnswers, survivors: SurvivingHosts, arrivals: Mapping[str, frozenset[str]]) -> None:
    if fleet.is_active_at(job.uuid, fleet.destination):
        raise Unsafe(f"Domain {job.name} is active on {run.context.target_host}, which answers. It was not started.", "Protect that host.")
    run.check_runs_nowhere(job, fleet, arrivals, survivors.image_users)


@pause_collector()
def _read_survivors(run: Evacuation, seen: SurvivorView, names: Sequence[str], since: t.Optional[BootMoment]) -> SurvivingHosts:
    settings, entries, unreadable = run.context.settings, run.entries, run.unreadable_hosts
    known_since = {name: settings.facts_since(name, since) if since else None for name in settings.fleet()}
    facts = {name: answer or settings.fresh_facts(name) for name, answer in known_since.items() if name != run.source.name}
    facts[run.context.target_host] = seen.facts
    silent = [f"{name} ({settings.why_stale(name)})" for name in names if not facts.get(name)]
    if silent:
        raise InvalidArgument(f"The facts that a plan needs are missing: {', '.join(silent)}.", "Run kvmfleet.migration.host_facts there first.")
    known = {name: gathered for name, gathered in facts.items() if gathered}
    records = list(run.context.ledger.list_records(unsettled_only=True))
    all_facts = {name: add_profile_groups(read_facts(gathered), readable_profiles(run.settings, name)) for name, gathered in known.items()}
    states = {
        name: HostState.from_facts(
            name,
            host,
            records,
            find_entry(entries, name, host.host_uuid or None, host.host_id or None, unreadable),
            settings.scheduler(name),
            resource_maps=settings.resource_maps(name) if name in names else NO_MAPS,
            ledger_id=run.context.ledger.ledger_id,
        )
        for name, host in all_facts.items()
    }
    hosts = {name: all_facts[name] for name in names}
    ids = {name: _host_id_of(entries, name, host) for name, host in hosts.items()}
    present = {name: {domain.name: domain.uuid for domain in host.domains or ()} for name, host in hosts.items()}
    pinned = {job.uuid: name for job in run.jobs for name, host in hosts.items() if _is_held_for(job, host, ids[name])}
    survivors = {name: HostRef(name, ids[name], host.host_uuid or None) for name, host in hosts.items()}
    return SurvivingHosts(states, ids, present, pinned, ImageUsers(all_facts), _list_failed(run, survivors))


def _list_failed(run: Evacuation, survivors: Mapping[str, HostRef]) -> dict[str, frozenset[str]]:
    """Return the survivors on which the start of each domain has failed since it ran last, by UUID; domains without such a host are left out."""
    found: dict[str, frozenset[str]] = {}
    for job in run.open_jobs():
        if _has_ended_in_vain(run.context.ledger, job.candidate.entry.last_record):
            records = sorted(run.context.ledger.list_records(domain=job.uuid), key=lambda record: record.generation, reverse=True)
            failed = [record.destination for record in itertools.takewhile(_is_vain, records) if record.status == FAILED]
            found[job.uuid] = frozenset(name for name, here in survivors.items() if any(here.is_same(where) for where in failed))
    return {uuid: names for uuid, names in found.items() if names}


def _has_ended_in_vain(ledger: Ledger, record_id: Maybe[str]) -> bool:
    """Whether that record can be read, and has started nothing."""
    try:
        return bool(record_id) and _is_vain(ledger.read_record(str(record_id)).record)
    except (NotFound, NotSupported):
        return False


def _is_vain(record: MoveRecord) -> bool:
    """Whether this is an evacuation that has started nothing."""
    return record.type == EVACUATION and record.status in (FAILED, CONFLICT)


def _host_id_of(entries: Sequence[HostEntry], name: str, facts: HostFacts) -> str:
    """Return the host ID under which the ledger lists what the host sees; empty for a host without one that the ledger does not know."""
    return facts.host_id or find_host_id(entries, name, facts.host_uuid or None) or ""


def _is_held_for(job: EvacuationJob, facts: HostFacts, host_id: str) -> bool:
    """Whether an evacuation to that host, by an earlier run, holds the domain."""
    earlier = job.earlier_evacuation
    return earlier is not None and earlier.destination.is_same(HostRef(None, host_id, facts.host_uuid or None))
