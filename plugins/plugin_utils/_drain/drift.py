# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What has changed since a plan was made. Everything is named, and nothing is applied."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument

from .._scheduler.check import check
from .._scheduler.fleet import Fleet
from . import facts as read
from . import policy as p
from .known import Known
from .plan import check_sources, fleet_of, settings_of
from .saved import read as read_plan
from .shapes import plain, short
from .sort import Leaver, Sorted, sort_domains
from .survivors import Survivors
from .wish import Wish

# What is booked or measured anew each time says nothing of what the domain needs.
_VOLATILE = ("copied_disk_bytes",)

Body = Mapping[str, t.Any]
Document = dict[str, t.Any]


def apply(saved: t.Any, known: Known, sources: Sequence[str], candidates: Sequence[str], given: Body) -> Document:
    """Return the saved plan, to be carried out as it is.

    :arg given: those arguments of L(Wish.of) that the task gives; what it does not give is as in the plan.

    Raises L(InvalidArgument) for what is no whole plan or is one for other hosts, and L(Conflict) that names everything that drifted.
    """
    plan = read_plan(saved)
    if {*plan["sources"]} != {*sources}:
        raise InvalidArgument(
            f"The saved plan was made to drain {', '.join(sorted(plan['sources']))}, and not {', '.join(sorted(sources)) or 'no host'}.",
            "Give the plan of these hosts, or run on those of the plan. Nothing was moved.",
        )
    check_sources(known, sources)
    options = plan["options"]
    wish = Wish.of(**{"parallel": options["parallel"], "n_plus_one": options["n_plus_one"], "options": options["moves"], **given})
    problems = drift(plan, known, candidates, wish)
    if problems:
        raise Conflict(f"The plan of {plan['created_at']} does not fit any more. {' '.join(problems)}", "Make a new plan. Nothing was moved.")
    return plan


def drift(plan: Body, known: Known, candidates: Sequence[str], wish: Wish) -> list[str]:
    """Return a sentence for everything that is not as it was when the plan was made; a domain that runs at its destination already is none."""
    now = sort_domains(known, plan["sources"], wish)
    settings = settings_of(known, plan["sources"], candidates)
    return [
        *_changes("The option", plan["options"], wish.as_json()),
        *_settings(plan["settings"], settings, {*plan["sources"], *candidates}),
        *_newcomers(plan, known),
        *_strategies(plan, known, now),
        *_moves(plan, known, candidates, now),
    ]


def _changes(what: str, before: Body, now: Body, prefix: str = "") -> list[str]:
    found = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _changes(what, old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{what} {prefix}{key} is {short(new)} now; the plan was made with {short(old)}.")
    return found


def _settings(before: Body, now: Body, hosts: Iterable[str]) -> list[str]:
    found = []
    for host in sorted(hosts):
        if (host in before) != (host in now):
            found.append(f"kvmfleet_scheduler of {host} {'was taken away' if host in before else 'is new'} since the plan was made.")
        elif host in before:
            found += _changes(f"In kvmfleet_scheduler of {host}", before[host], now[host])
    return found


def _newcomers(plan: Body, known: Known) -> list[str]:
    """Name what is active on a source and not in the plan, or was shut off when it was made."""
    expected = {entry["uuid"] for key in ("moves", "shutdowns", "unplaced") for entry in plan[key]}
    expected |= {entry["uuid"] for entry in plan["skipped"] if entry["drain"]}
    here = [(source, domain) for source in plan["sources"] for domain in known.facts[source]["domains"] if domain["active"]]
    return [f"{domain['name']} is active on {source}, and was not when the plan was made." for source, domain in here if domain["uuid"] not in expected]


def _strategies(plan: Body, known: Known, now: Sorted) -> list[str]:
    """Name what was to be shut down or left, and is to be treated otherwise now."""
    wanted = [(entry, p.SHUTDOWN, now.shutdowns) for entry in plan["shutdowns"]]
    wanted += [(entry, p.LEAVE, [other for other in now.skipped if other["drain"]]) for entry in plan["skipped"] if entry["drain"]]
    found = []
    for entry, strategy, same in wanted:
        if _is_active(known, entry["source"], entry["uuid"]) and entry["uuid"] not in {other["uuid"] for other in same}:
            found.append(f"{entry['name']} on {entry['source']} had the drain strategy {strategy}. {_instead(entry['uuid'], now)}")
    return found


def _moves(plan: Body, known: Known, candidates: Sequence[str], now: Sorted) -> list[str]:
    fleet = fleet_of(known, plan["sources"], candidates, now)
    found: list[str] = []
    for move in plan["moves"]:
        there = move["destination"] in known.active_on(move["uuid"])
        leaver = now.leavers.get(move["uuid"])
        if _is_active(known, move["source"], move["uuid"]):
            if leaver is None:
                found.append(f"{move['name']} was to move to {move['destination']}. {_instead(move['uuid'], now)}")
                continue
            found += _of_domain(move, leaver)
            found += _of_destination(move, leaver, fleet, candidates)
            fleet = fleet.taking(leaver.request, move["destination"]) if move["destination"] in fleet.states else fleet
        elif not there:
            found.append(_gone(move, known))
    return found + _spare(plan, known, candidates, now, fleet)


def _spare(plan: Body, known: Known, candidates: Sequence[str], now: Sorted, fleet: Fleet) -> list[str]:
    """Name the host whose loss would no longer be absorbed, where the plan said that every loss would be."""
    if not (plan["n_plus_one"] or {}).get("holds"):
        return []
    ways = {move["uuid"]: move["destination"] for move in plan["moves"] if move["uuid"] in now.leavers}
    survivors = Survivors(known, sorted({*candidates} - {*plan["sources"]}), [leaver.request for leaver in now.leavers.values()])
    spare = survivors.judge(fleet, ways)
    if spare["holds"]:
        return []
    return [f"N+1 held, and does not any more: if {spare['host']} were lost, {', '.join(spare['domains'])} would find no place."]


def _of_domain(move: Body, leaver: Leaver) -> list[str]:
    before, now = _lasting(move["request"]), _lasting(plain(leaver.request.as_json()))
    changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    words = {"memory_mib": "MiB of memory", "vcpus": "vCPUs"}
    found = [f"{move['name']} has {now.get(key)} {words[key]} now, {short(before.get(key))} when the plan was made." for key in changed if key in words]
    others = [key for key in changed if key not in words]
    return found + ([f"{move['name']} asks for something else than when the plan was made: its {', '.join(others)} changed."] if others else [])


def _lasting(request: Body) -> Document:
    disks = [{key: value for key, value in disk.items() if key != "bytes"} for disk in request.get("disks") or [] if isinstance(disk, dict)]
    return {**{key: value for key, value in request.items() if key not in _VOLATILE}, "disks": disks}


def _of_destination(move: Body, leaver: Leaver, fleet: Fleet, candidates: Sequence[str]) -> list[str]:
    destination = move["destination"]
    if leaver.way and not leaver.booked:
        return [] if leaver.way == destination else [f"{move['name']} is on its way to {leaver.way}, and not to {destination}."]
    if destination not in candidates:
        return [f"{destination}, where {move['name']} was to move, is no candidate any more."]
    verdict = check(leaver.request, fleet.states[destination], fleet)
    return [] if verdict.passed else [f"{destination} cannot take {move['name']} any more: {verdict.reason}"]


def _gone(move: Body, known: Known) -> str:
    here = read.find(known.facts[move["source"]], move["uuid"])
    elsewhere = known.active_on(move["uuid"])
    what = f"{move['name']} is {here['state']} on {move['source']}" if here else f"{move['name']} is no longer on {move['source']}"
    return f"{what}, and active on {', '.join(elsewhere)}." if elsewhere else f"{what}, and not active on {move['destination']}."


def _instead(uuid: str, now: Sorted) -> str:
    entries = [*now.stuck, *now.shutdowns, *now.skipped]
    reason: t.Optional[str] = next((entry["reason"] for entry in entries if entry["uuid"] == uuid), None)
    return reason or "It is to be moved now (drain: migrate)."


def _is_active(known: Known, source: str, uuid: str) -> bool:
    here = read.find(known.facts[source], uuid)
    return bool(here and here["active"])
