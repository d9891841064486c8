# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The plan of a drain: every active domain of every host that is drained, and where it goes, or why it cannot."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now

from .._scheduler.check import check
from .._scheduler.fleet import Fleet
from .._scheduler.planner import Placement, plan
from .._scheduler.prediction import rate_mib, window_seconds
from .._scheduler.settings import SchedulerSettings
from . import entries as e
from .known import Known
from .saved import sealed
from .shapes import plain
from .sort import Sorted, sort_domains
from .survivors import Survivors
from .wish import Wish

Body = Mapping[str, t.Any]
Document = dict[str, t.Any]


def make_plan(known: Known, sources: Sequence[str], candidates: Sequence[str], wish: t.Optional[Wish] = None) -> Document:
    """Return the plan as JSON can carry it. Raises L(InvalidArgument) for a source of which there are no facts, and for settings that cannot be.

    A host that is drained is nobody's destination, whatever the ledger says of it yet.
    """
    wanted = wish or Wish()
    check_sources(known, sources)
    found = sort_domains(known, sources, wanted)
    fleet = fleet_of(known, sources, candidates, found)
    requests = [leaver.request for leaver in found.leavers.values()]
    survivors = Survivors(known, sorted({*candidates} - {*sources}), requests) if wanted.n_plus_one else None
    hosts = {*candidates, *sources}
    placements = plan(requests, fleet, ways_of(found, fleet, hosts), cost=survivors.cost if survivors else None, hosts=hosts)
    placed = [placement for placement in placements if placement.destination]
    rates = {source: _rate(known, wanted, placed, source) for source in sources}
    moves = [e.move(order, one, found.leavers[one.request.uuid], rates[one.request.source]) for order, one in enumerate(placed, 1)]
    return sealed(
        {
            "created_at": utc_now(),
            "sources": list(sources),
            "candidates": sorted({*candidates} - {*sources}),
            "options": wanted.as_json(),
            "settings": settings_of(known, sources, candidates),
            "moves": moves,
            "shutdowns": found.shutdowns,
            "unplaced": found.stuck + [e.unplaced(placement) for placement in placements if not placement.destination],
            "skipped": found.skipped,
            "n_plus_one": survivors.judge(_after(fleet, placements), {m["uuid"]: m["destination"] for m in moves}) if survivors else None,
            "predicted_seconds": {source: _window(moves, source, wanted.parallel) for source in sources},
        }
    )


def check_sources(known: Known, sources: Sequence[str]) -> None:
    """Raise L(InvalidArgument) where a source has no facts."""
    missing = [source for source in sources if not known.facts.get(source)]
    if missing:
        raise InvalidArgument(f"There are no facts of {', '.join(missing)}.", "Run kvmfleet.migration.host_facts there first.")


def fleet_of(known: Known, sources: Sequence[str], candidates: Sequence[str], found: Sorted) -> Fleet:
    """Return the fleet as the plan sees it: who is drained takes nobody, and what leaves or is shut down counts for no group where it is now.

    Hosts that are neither sources nor candidates are there for the members of groups that they have.
    """
    states = {host: known.state(host) for host in sorted({*candidates, *sources, *known.facts})}
    drained = {source: replace(states[source], state="maintenance", state_reason="it is being drained") for source in sources}
    leaving = frozenset(found.leavers) | {entry["uuid"] for entry in found.shutdowns}
    return Fleet({**states, **drained}, leaving)


def ways_of(found: Sorted, fleet: Fleet, hosts: Collection[str]) -> dict[str, str]:
    """Return the hosts to which domains are going already; a booking that has not begun counts while its host may still take the domain."""
    ways = {}
    for uuid, leaver in found.leavers.items():
        way = leaver.way
        if way and leaver.booked:
            way = way if way in hosts and check(leaver.request, fleet.states[way], fleet).passed else None
        if way:
            ways[uuid] = way
    return ways


def settings_of(known: Known, sources: Sequence[str], candidates: Sequence[str]) -> Document:
    """Return C(kvmfleet_scheduler) of the hosts that have one."""
    given = [host for host in sorted({*sources, *candidates}) if known.scheduler.get(host)]
    return {host: plain(SchedulerSettings.of(known.scheduler[host], host).as_json()) for host in given}


def _rate(known: Known, wish: Wish, placed: Sequence[Placement], source: str) -> float:
    together = min(wish.parallel, sum(1 for placement in placed if placement.request.source == source))
    return rate_mib(known.history, wish.moves.get("bandwidth_mib") or 0, wish.moves.get("link_mib"), together)


def _after(fleet: Fleet, placements: Sequence[Placement]) -> Fleet:
    for placement in placements:
        if placement.destination and placement.destination in fleet.states:
            fleet = fleet.taking(placement.request, placement.destination)
    return fleet


def _window(moves: Sequence[Body], source: str, parallel: int) -> float:
    return window_seconds([move["predicted_seconds"] for move in moves if move["source"] == source], parallel)
