# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The planner on simulated fleets, on one core, in CPU seconds: one host drained, many hosts lost, how time grows, and beside Ganeti's hbal."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.bench import hbal
from ansible_collections.kvmfleet.migration.bench.figures import Effort, Figure, Section
from ansible_collections.kvmfleet.migration.bench.timing import Series, in_turn
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import pause_collector
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.planner import Placement, plan_placements
from ansible_collections.kvmfleet.migration.tests.simulator import exhaustive, fleets

PER_HOST = 20
GROWTH = (10, 30, 100, 300, 1000, 2000)
# So full that what one of ten hosts holds has hardly room on the other nine.
TIGHT = 0.88
# So full that a third of what is lost has no room.
OVERFULL = 0.95
# Hosts, and how full they are. The largest takes hbal half a minute.
HBAL = ((10, 0.5), (10, TIGHT), (100, 0.5), (100, TIGHT), (300, 0.5))

_PARTS = (
    "CPU seconds of one process. The plan of a drain is everything that its playbook shows: a host for each domain, and the reason why each other host "
    "was not chosen. Building the fleet from the facts of all hosts, which happens once for each plan, is shown separately and is part of the growth."
)
_LOSS = (
    "A loss is planned as by `evacuate`: reasons are computed only for domains without a destination. The filters are those of a drain, which has more "
    "filters than an evacuation. The time grows with the number of hosts times the number of lost domains: the free memory of each host is checked once "
    "for each domain, the filters are not."
)
_HBAL = (
    "hbal (ganeti-htools) gets the same hosts with memory, CPUs and anti-affinity groups, and moves only the domains of the offline host. It evaluates "
    "the whole cluster again for every possible move, because it has another goal: an evenly loaded cluster. It does not consider CPU models, networks, "
    "storage and machine types."
)


def run(effort: Effort) -> Section:
    """Measure drains and losses."""
    section = Section("The planner", notes=[_PARTS, _LOSS])
    hosts = effort.size(1000, 20)
    section.figures += [_drained(hosts, effort), _lost(hosts, 0.5, effort, 5), _lost(hosts, TIGHT, effort), _lost(hosts, OVERFULL, effort), _growth(effort)]
    if hbal.is_installed():
        section.figures += [_beside_hbal(hosts, filled, effort) for hosts, filled in (HBAL[:2] if effort.quick else HBAL)]
        section.notes.append(_HBAL)
    else:
        section.notes.append("hbal is not installed here (Debian: ganeti-htools), so nothing was compared with it.")
    return section


@dataclass(frozen=True)
class _Timed:
    """CPU seconds of the parts of a drain's plan."""

    fleet: float
    choice: float
    reasons: float

    @property
    def plan(self) -> float:
        return self.choice + self.reasons


def _cpu_seconds(act: Callable[[], object]) -> float:
    begin = time.process_time()
    act()
    return time.process_time() - begin


def _drain(drain: fleets.Drain) -> _Timed:
    made: list[Fleet] = []
    placements: list[Placement] = []
    # What earlier rounds have left is not to be collected in this one.
    gc.collect()
    fleet = _cpu_seconds(lambda: made.append(exhaustive.fleet_of(drain)))
    with pause_collector():  # as for the plan of a drain
        choice = _cpu_seconds(lambda: placements.extend(plan_placements(exhaustive.requests_of(drain), made[0])))
        return _Timed(fleet, choice, _cpu_seconds(lambda: [placement.verdicts for placement in placements]))


def _drained(hosts: int, effort: Effort) -> Figure:
    drain = fleets.large(hosts, PER_HOST * hosts, PER_HOST)
    timed = [_drain(drain) for _round in range(effort.rounds)]
    whole = Series(tuple(one.plan for one in timed))
    choice, made = (Series(tuple(values)) for values in zip(*((one.choice, one.fleet) for one in timed), strict=True))
    what = f"Plan of one host's drain, {PER_HOST} domains of {hosts:,} hosts / {PER_HOST * hosts:,} domains (s)"
    return Figure(
        what, whole.told(digits=3), f"{choice.told(digits=3)} of it the choice; {made.told(digits=3)} more for the fleet from facts", whole.median, 0.3
    )


def _lost(hosts: int, filled: float, effort: Effort, goal: float | None = None) -> Figure:
    gone = hosts // 10
    loss = fleets.bereft(hosts, PER_HOST * hosts, gone, filled)
    requests = [request for name, facts in loss.lost.items() for request in exhaustive.requests_from(name, facts)]
    fleet = Fleet({name: HostState.from_facts(name, decode(HostFacts, facts)) for name, facts in loss.facts.items()})
    without: list[int] = []

    def planned() -> float:
        gc.collect()
        return _cpu_seconds(lambda: without.append(sum(not one.destination and bool(one.verdicts) for one in plan_placements(requests, fleet))))

    series = in_turn({"plan": planned}, effort.rounds)["plan"]
    what = f"Plan for {gone} hosts lost at once of {hosts:,}, {filled:.0%} full, {len(requests):,} domains (s)"
    return Figure(what, series.told(digits=3), f"{without[-1]} without a place", series.median if goal else None, goal)


def _growth(effort: Effort) -> Figure:
    sizes = GROWTH[:3] if effort.quick else GROWTH
    seconds = []
    for hosts in sizes:
        drain = fleets.large(hosts, PER_HOST * hosts, PER_HOST)
        seconds.append(statistics.median(timed.fleet + timed.plan for timed in (_drain(drain) for _round in range(effort.rounds))))
    exponent = statistics.linear_regression(*([math.log(value) for value in values] for values in (sizes, seconds))).slope
    told = ", ".join(f"{hosts:,}: {one:.3f} s" for hosts, one in zip(sizes, seconds, strict=True))
    return Figure(f"Growth of one host's drain, {sizes[0]} to {sizes[-1]:,} hosts: exponent n of the log-log fit", f"n^{exponent:.2f}", told, exponent, 1.2)


def _beside_hbal(hosts: int, filled: float, effort: Effort) -> Figure:
    drain = fleets.large(hosts, PER_HOST * hosts, PER_HOST, filled=filled)
    left: dict[str, int] = {}

    def ours() -> float:
        timed = _drain(drain)
        left["ours"] = sum(not placement.destination for placement in plan_placements(exhaustive.requests_of(drain), exhaustive.fleet_of(drain)))
        return timed.fleet + timed.plan

    def theirs() -> float:
        found = hbal.emptied(drain)
        left["theirs"] = found.left
        return found.seconds

    found = in_turn({"ours": ours, "theirs": theirs}, 1 if hosts == HBAL[-1][0] else effort.rounds)
    what = f"One host's drain of {hosts} hosts, {filled:.0%} full (s, domains without a place)"
    ratio = found["ours"].median / found["theirs"].median
    return Figure(what, f"{found['ours'].told(digits=3)}, {left['ours']}", f"{found['theirs'].told(digits=3)}, {left['theirs']} by hbal", ratio)
