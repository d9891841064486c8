# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Determines what has changed since a plan was made. All differences are listed, and nothing is applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import LEAVE, MIGRATE, SHUTDOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import SIZES_OF_IMAGES
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import KINDS, NO_MAPS

from .._scheduler.fleet import Fleet
from .._scheduler.verdicts import DEFAULT_FILTERS, check_host
from .inputs import DrainInputs, DrainOptions
from .plan import DEFINITION_FILTERS, RemainingHosts, build_fleet, check_sources, list_resource_maps, read_scheduler_settings
from .plan_entries import PlannedColdMove, PlannedMove, PlannedShutdown, SkippedDomain
from .reserve import find_reserve_drift, plan_reserve
from .saved_plan import DrainPlan, read_plan, short_text, to_plain_object
from .sorting import LeavingDomain, SortedDomains, sort_domains

# Values that are reserved or measured each time do not show what the domain needs, and an earlier version saved no secrets. The destination is judged anyway.
_VOLATILE_KEYS = ("copied_disk_bytes", "secrets")


def apply_saved_plan(saved: Json | bytes, inputs: DrainInputs, sources: Sequence[str], candidates: Sequence[str], given: JsonObject) -> DrainPlan:
    """Return the saved plan, to be carried out unchanged.

    :arg given: those arguments of L(DrainOptions.from_values) that the task gives; the others are as in the plan.

    Raises L(InvalidArgument) for an incomplete plan or one for other hosts, and L(Conflict) that names everything that drifted.
    """
    plan = read_plan(saved)
    if plan.balance:
        raise InvalidArgument("The saved plan is that of a balance, and not of a drain.", "Apply it with the role balance. Nothing was moved.")
    if {*plan.sources} != {*sources}:
        raise InvalidArgument(
            f"The saved plan was made to drain {', '.join(sorted(plan.sources))}, and not {', '.join(sorted(sources)) or 'no host'}.",
            "Give the plan of these hosts, or run on those of the plan. Nothing was moved.",
        )
    check_sources(inputs, sources)
    drain_options = DrainOptions.from_plan(plan.options, given)
    problems = find_drift(plan, inputs, candidates, drain_options)
    if problems:
        raise Conflict(f"The plan of {plan.created_at} no longer applies. {' '.join(problems)}", "Make a new plan. Nothing was moved.")
    return plan


def find_drift(plan: DrainPlan, inputs: DrainInputs, candidates: Sequence[str], drain_options: DrainOptions) -> list[str]:
    """Return a sentence for everything that has changed since the plan was made, except for domains that already run at their destination."""
    now = sort_domains(inputs, plan.sources, drain_options, _list_refused(plan))
    settings = read_scheduler_settings(inputs, plan.sources, candidates)
    return [
        *list_changes("The option", encode(plan.options), encode(drain_options.for_plan())),
        *find_settings_drift(plan.settings, settings, {*plan.sources, *candidates}),
        *find_maps_drift(plan, inputs, candidates),
        *_find_newcomers(plan, inputs),
        *_find_strategy_drift(plan, inputs, now),
        *_find_move_drift(plan, inputs, candidates, now),
    ]


def _list_refused(plan: DrainPlan) -> dict[str, dict[str, str]]:
    """Return the strategies that were not possible when the plan was made: the plan applies although one of them would be possible now."""
    parts = (plan.moves, plan.cold_moves or (), plan.shutdowns, plan.skipped)
    return {entry.uuid: {one.strategy: one.reason for one in entry.not_possible} for part in parts for entry in part if entry.not_possible}


def list_changes(what: str, before: JsonObject, now: JsonObject, prefix: str = "") -> list[str]:
    """Return a sentence for each key that has another value now, also within dictionaries."""
    found = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += list_changes(what, old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{what} {prefix}{key} is {short_text(new)} now; the plan was made with {short_text(old)}.")
    return found


def find_settings_drift(before: Mapping[str, JsonObject], now: Mapping[str, JsonObject], hosts: Iterable[str]) -> list[str]:
    """Return a sentence for each change of C(kvmfleet_scheduler) of these hosts."""
    found = []
    for host in sorted(hosts):
        if (host in before) != (host in now):
            found.append(f"kvmfleet_scheduler of {host} {'was removed' if host in before else 'is new'} since the plan was made.")
        elif host in before:
            found += list_changes(f"In kvmfleet_scheduler of {host}", before[host], now[host])
    return found


def find_maps_drift(plan: DrainPlan, inputs: DrainInputs, candidates: Sequence[str]) -> list[str]:
    """Return a sentence for each change of a resource map of the hosts of a plan. The plan of an earlier version does not have the maps."""
    if plan.resource_maps is ABSENT:
        return []
    before, now = plan.resource_maps, list_resource_maps(inputs, plan.sources, candidates)
    return [
        line
        for host in sorted({*plan.sources, *candidates})
        for kind, about in KINDS.items()
        for line in list_changes(f"In {about.variable} of {host}", dict(before.get(host, NO_MAPS).of_kind(kind)), dict(now.get(host, NO_MAPS).of_kind(kind)))
    ]


def _find_newcomers(plan: DrainPlan, inputs: DrainInputs) -> list[str]:
    """Name the domains that are active on a source and are not in the plan, or were shut off when it was made."""
    expected = plan.active_uuids | {entry.uuid for entry in plan.skipped if entry.drain}
    active = [(source, domain) for source in plan.sources for domain in inputs.hosts[source].domains or () if domain.active]
    return [f"{domain.name} is active on {source}, but was not when the plan was made." for source, domain in active if domain.uuid not in expected]


def _find_strategy_drift(plan: DrainPlan, inputs: DrainInputs, now: SortedDomains) -> list[str]:
    """Name the domains that were to be shut down or left, and have another strategy now."""
    stopping, left = {entry.uuid for entry in now.shutdowns}, {entry.uuid for entry in now.skipped if entry.drain}
    wanted: list[tuple[PlannedShutdown | SkippedDomain, str, set[str]]] = [(entry, SHUTDOWN, stopping) for entry in plan.shutdowns]
    wanted += [(entry, LEAVE, left) for entry in plan.skipped if entry.drain]
    found = []
    for entry, strategy, same in wanted:
        if is_active_on(inputs, entry.source, entry.uuid) and entry.uuid not in same:
            found.append(f"{entry.name} on {entry.source} had the drain strategy {strategy}. {_instead_text(entry.uuid, now)}")
    return found


def _find_move_drift(plan: DrainPlan, inputs: DrainInputs, candidates: Sequence[str], now: SortedDomains) -> list[str]:
    fleet = build_fleet(inputs, plan.sources, candidates, now)
    found: list[str] = []
    for move in plan.all_moves:
        leaver, is_live = now.all_leavers.get(move.uuid), isinstance(move, PlannedMove)
        if _is_there(inputs, move.source, move.uuid, is_live):
            if leaver is None or leaver.method != _method_of(move):
                found.append(f"{move.name} was to move to {move.destination}{_how_text(move)}. {_instead_text(move.uuid, now)}")
                continue
            found += find_domain_drift(move, leaver)
            found += _find_destination_drift(move, leaver, fleet, candidates)
            fleet = fleet.with_domain(leaver.request, move.destination) if leaver.start and move.destination in fleet.states else fleet
        elif not _is_there(inputs, move.destination, move.uuid, is_live):
            found.append(describe_gone(move, inputs))
    return [*found, *_find_n_plus_one_drift(plan, inputs, candidates, now, fleet), *_find_reserve_drift(plan, inputs, candidates, now)]


def _is_there(inputs: DrainInputs, host: str, uuid: str, is_live: bool) -> bool:
    """Whether the domain is on the host: active there for a live move, in any state for another one."""
    facts = inputs.hosts.get(host)
    domain = facts.find_domain(uuid) if facts else None
    return bool(domain and (domain.active or not is_live))


def _method_of(move: PlannedMove | PlannedColdMove) -> str:
    return move.method if isinstance(move, PlannedColdMove) else ""


def _how_text(move: PlannedMove | PlannedColdMove) -> str:
    return f" by the method {move.method}" if isinstance(move, PlannedColdMove) else ""


def _find_n_plus_one_drift(plan: DrainPlan, inputs: DrainInputs, candidates: Sequence[str], now: SortedDomains, fleet: Fleet) -> list[str]:
    """Name the host whose loss would no longer be absorbed, if every loss would have been according to the plan."""
    if not (plan.n_plus_one and plan.n_plus_one.holds):
        return []
    assignment = {move.uuid: move.destination for move in plan.all_moves if move.uuid in now.leavers}
    survivors = RemainingHosts(inputs, sorted({*candidates} - {*plan.sources}), [leaver.request for leaver in now.leavers.values()])
    spare = survivors.judge_losses(fleet, assignment)
    if spare.holds:
        return []
    return [f"N+1 no longer holds: if {spare.host} were lost, {', '.join(spare.domains)} could not be placed."]


def _find_reserve_drift(plan: DrainPlan, inputs: DrainInputs, candidates: Sequence[str], now: SortedDomains) -> list[str]:
    moves = [(now.leavers[move.uuid].request, move.destination) for move in plan.all_moves if move.uuid in now.leavers]
    return find_reserve_drift(plan.reserve, plan_reserve(inputs, candidates, moves, plan.sources))


def find_domain_drift(move: PlannedMove | PlannedColdMove, leaver: LeavingDomain) -> list[str]:
    """Return a sentence for each change of what a domain needs of a host."""
    before, now = _lasting_needs(move.request), _lasting_needs(to_plain_object(leaver.request.as_json()))
    now = {**now, "networks": _without_new_keys(now.get("networks"), before.get("networks"))}
    changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    words = {"memory_mib": "MiB of memory", "vcpus": "vCPUs"}
    found = [f"{move.name} has {now.get(key)} {words[key]} now, {short_text(before.get(key))} when the plan was made." for key in changed if key in words]
    others = [key for key in changed if key not in words]
    return found + ([f"{move.name} has other requirements than when the plan was made: its {', '.join(others)} changed."] if others else [])


def _lasting_needs(request: JsonObject) -> JsonObject:
    given = request.get("disks")
    listed = given if isinstance(given, list) else []
    disks = [{key: value for key, value in disk.items() if key not in SIZES_OF_IMAGES} for disk in listed if isinstance(disk, dict)]
    return {**{key: value for key, value in request.items() if key not in _VOLATILE_KEYS}, "disks": disks}


def _without_new_keys(interfaces: Json, saved: Json) -> Json:
    """Return the interfaces by the keys that the plan has of each. An earlier version saved fewer; whether the destination has what is new is judged there."""
    if not isinstance(interfaces, list) or not isinstance(saved, list) or len(interfaces) != len(saved):
        return interfaces
    pairs = zip(interfaces, saved, strict=True)
    return [{key: value for key, value in now.items() if key in old} if isinstance(now, dict) and isinstance(old, dict) else now for now, old in pairs]


def _find_destination_drift(move: PlannedMove | PlannedColdMove, leaver: LeavingDomain, fleet: Fleet, candidates: Sequence[str]) -> list[str]:
    destination = move.destination
    if leaver.destination and not leaver.reserved:
        return [] if leaver.destination == destination else [f"{move.name} is on its way to {leaver.destination}, and not to {destination}."]
    if destination not in candidates:
        return [f"{destination}, where {move.name} was to move, is no longer a candidate."]
    verdict = check_host(leaver.request, fleet.states[destination], fleet, DEFAULT_FILTERS if leaver.start else DEFINITION_FILTERS)
    return [] if verdict.passed else [f"{destination} can no longer accept {move.name}: {verdict.reason}"]


def describe_gone(move: PlannedMove | PlannedColdMove, inputs: DrainInputs) -> str:
    """Return where a domain is that is active neither on its source nor on its destination."""
    present = inputs.hosts[move.source].find_domain(move.uuid)
    elsewhere = inputs.hosts_where_active(move.uuid)
    what = f"{move.name} is {present.state} on {move.source}" if present else f"{move.name} is no longer on {move.source}"
    return f"{what}, and active on {', '.join(elsewhere)}." if elsewhere else f"{what}, and not active on {move.destination}."


def _instead_text(uuid: str, now: SortedDomains) -> str:
    reasons = {entry.uuid: entry.reason for part in (now.skipped, now.shutdowns, now.stuck) for entry in part}
    if uuid in reasons:
        return reasons[uuid]
    leaver = now.all_leavers.get(uuid)
    return f"It is to be moved now (drain: {leaver.strategy if leaver else MIGRATE})."


def is_active_on(inputs: DrainInputs, host: str, uuid: str) -> bool:
    """Whether the domain is active on the host, according to its facts."""
    facts = inputs.hosts.get(host)
    present = facts.find_domain(uuid) if facts else None
    return bool(present and present.active)
