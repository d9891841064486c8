# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a balance run brought: how much higher the score would be now if its domains were still where they were before."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalancedMove, BalanceMeasurement, BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import parse_timestamp

from .._scheduler.fleet import HostState
from .goals import make_goal
from .load import HostUse, has_signals, read_uses
from .options import BalanceOptions
from .pressure import Vector
from .state import make_unit, share_of

# A move causes load of its own, and caches are cold after it.
MEASURE_SECONDS: t.Final = 3600.0
_DIGITS: t.Final = 4


class _WayBack(t.NamedTuple):
    """The move of a unit back to its source: which domains, from which host to which, by their numbers, and which shares of the two they use."""

    uuids: tuple[str, ...]
    ends: tuple[int, int]
    shares: tuple[Vector, Vector]


def measure_run(run: BalanceRun, states: Mapping[str, HostState]) -> t.Optional[BalanceRun]:
    """Return the run with what it brought; None if it was measured before, or if these facts do not show it.

    The facts of all of its hosts have to be gathered an hour after its end or later, and the means in them must not begin before the end.

    :arg states: all hosts of the fleet.
    """
    ended = parse_timestamp(run.ended_at)
    if not run.is_unmeasured or ended is None or not all(host in states and _shows_load_since(states[host], ended) for host in run.hosts):
        return None
    uses = read_uses({host: states[host] for host in run.hosts})
    options = BalanceOptions(goal=run.goal.kind, weights=run.goal.weights, tolerated_pressure=run.goal.tolerated_pressure)
    goal = make_goal([use.shares for use in uses], options)
    score, ways = goal.score(), list(_find_ways_back(run.moves, uses))
    gains = {uuid: round(-goal.gain(*way.ends, *way.shares), _DIGITS) for way in ways for uuid in way.uuids}
    for way in ways:
        goal.move(*way.ends, *way.shares)
    at = max(states[host].hardware.facts.gathered_at or "" for host in run.hosts)
    measured = BalanceMeasurement(at, round(score, _DIGITS), round(goal.score(), _DIGITS))
    return replace(run, moves=tuple(replace(move, measured_gain=gains.get(move.domain.uuid)) for move in run.moves), measured=measured)


def _shows_load_since(state: HostState, ended: datetime.datetime) -> bool:
    """Whether the host answered an hour after that time or later, with a load that was measured since."""
    facts = state.hardware.facts
    gathered = parse_timestamp(facts.gathered_at or None)
    if state.unanswered is not None or gathered is None or not has_signals(facts):
        return False
    passed = (gathered - ended).total_seconds()
    return passed >= MEASURE_SECONDS and passed >= ((facts.load.interval_seconds if facts.load else None) or 0.0)


def _find_ways_back(moves: Sequence[BalancedMove], uses: Sequence[HostUse]) -> Iterator[_WayBack]:
    """Yield the way back of each unit, of those of its domains that are on their destination."""
    numbers = {use.name: number for number, use in enumerate(uses)}
    units: dict[tuple[str, str, str], list[str]] = {}
    for move in moves:
        if move.is_completed:
            units.setdefault((move.unit, move.source, move.destination), []).append(move.domain.uuid)
    for (_unit, source, destination), uuids in units.items():
        here, there = numbers[destination], numbers[source]
        guests = [guest for guest in uses[here].guests if guest.uuid in uuids]
        if guests:
            amounts = make_unit(guests).amounts
            shares = share_of(amounts, uses[here].capacity), share_of(amounts, uses[there].capacity)
            yield _WayBack(tuple(guest.uuid for guest in guests), (here, there), shares)
