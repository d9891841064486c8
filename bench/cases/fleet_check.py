# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet check on simulated fleets, on one core, in CPU seconds: every pair of hosts that could be lost, and where each guest can run."""

from __future__ import annotations

import collections
import gc
import time
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.bench.figures import Effort, Figure, Section
from ansible_collections.kvmfleet.migration.bench.timing import Series, in_turn
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import pause_collector
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.loss_rules import make_loss_rules
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.losses import VERDICTS, LossSearch
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.reach import REACH_FILTERS, find_reach
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import check_host
from ansible_collections.kvmfleet.migration.tests.simulator import exhaustive, fleets

PER_HOST = 20
# Half full; so full that most pairs can just be lost; and so full that the answer depends on the pair.
FILLED = (0.5, 0.88, 0.92)
PAIRS_SECONDS, REACH_SECONDS = 60.0, 10.0


def run(effort: Effort) -> Section:
    """Measure the pairs of hosts at several loads, and the table of guests and hosts."""
    hosts = effort.size(100, 10)
    section = Section("The fleet check")
    section.figures += [*(_pairs(hosts, filled, effort) for filled in FILLED), _reach(hosts, effort)]
    section.notes.append(
        "CPU seconds of one process. The verdict on a pair is exact: `can` has a place for each guest, and `cannot` is proved. A pair is `unknown` where "
        "the search was given up. A unit test compares the verdicts on 1,000 fleets of up to 6 hosts with an exhaustive search."
    )
    section.notes.append("Beside the table of guests and hosts: the same verdicts without grouping equal guests and equal hosts.")
    return section


def _cpu_seconds(act: Callable[[], object]) -> float:
    gc.collect()
    begin = time.process_time()
    act()
    return time.process_time() - begin


def _fleet(hosts: int, filled: float) -> LossSearch:
    whole = fleets.Whole(fleets.large(hosts, PER_HOST * hosts, PER_HOST, filled=filled).facts, {})
    guests = {name: exhaustive.requests_from(name, facts) for name, facts in whole.facts.items()}
    return LossSearch(exhaustive.whole_fleet_of(whole), guests, make_loss_rules())


def _pairs(hosts: int, filled: float, effort: Effort) -> Figure:
    counts: collections.Counter[str] = collections.Counter()

    def judge() -> float:
        search = _fleet(hosts, filled)
        counts.clear()
        return _cpu_seconds(lambda: counts.update(loss.verdict for loss in search.judge_all(2)))

    series = in_turn({"pairs": judge}, effort.rounds)["pairs"]
    what = f"All {sum(counts.values()):,} pairs of {hosts} hosts with {hosts * PER_HOST:,} guests, {filled:.0%} full (s)"
    verdicts = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS)
    return Figure(what, series.told(digits=2), verdicts, series.median, PAIRS_SECONDS)


def _reach(hosts: int, effort: Effort) -> Figure:
    search = _fleet(hosts, FILLED[0])
    requests = [request for guests in search.guests.values() for request in guests]

    def one_by_one() -> None:
        with pause_collector():
            for request in requests:
                for state in search.fleet.states.values():
                    check_host(request, state, search.fleet, REACH_FILTERS)

    grouped = Series(tuple(_cpu_seconds(lambda: find_reach(requests, search.fleet)) for _round in range(effort.rounds)))
    alone = _cpu_seconds(one_by_one)
    what = f"Where each of {len(requests):,} guests can run, {hosts} hosts (s)"
    return Figure(what, grouped.told(digits=2), f"{alone:.2f} s guest by guest", grouped.median, REACH_SECONDS)
