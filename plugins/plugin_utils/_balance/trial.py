# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A fleet as numbers, on which many moves are tried quickly: what hosts use, and what memory and vCPUs they have left.

It knows memory, vCPUs and groups that keep apart. L(Annealing) asks the other filters before it keeps a move.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass

from .._scheduler.filters.policy import ANTI_AFFINITY
from .._scheduler.guests import Guest
from .pressure import RESOURCES, Vector
from .state import SOFT_ANTI_AFFINITY, BalanceState, GuestUnit, share_of


@dataclass(frozen=True)
class TrialUnit:
    """A unit of one guest that may move. Guests that must or should be together with others are left where they are.

    :arg home: the number of its host before the plan; C(at) after it.
    """

    unit: GuestUnit
    home: int
    at: int
    guest: Guest


class TrialFleet:
    """The units of a fleet that may move, and its hosts, by number. Units that repair something are not among them.

    C(at) is where each unit is, C(moved) are the units that are not at home, and C(at_home) the units whose home a host is.
    """

    def __init__(self, state: BalanceState) -> None:
        hosts = [state.fleet.states[use.name] for use in state.uses]
        capacities = [use.capacity for use in state.uses]
        kinds = sorted(set(capacities))
        self.units = sorted(_list_units(state), key=lambda one: (one.home, one.unit.uuid))
        self.home, self.at = [one.home for one in self.units], [one.at for one in self.units]
        self.moved = [number for number, one in enumerate(self.units) if one.at != one.home]
        self._positions = {unit: position for position, unit in enumerate(self.moved)}
        self.at_home = [[number for number, home in enumerate(self.home) if home == host] for host in range(len(hosts))]
        self.shares = list(state.goal.shares)
        self._weights, self._count = state.options.weight_vector, len(hosts)
        self._sums, self._squares = _add_up(self.shares, 1), _add_up(self.shares, 2)
        self._kinds = [kinds.index(capacity) for capacity in capacities]
        # What each unit uses of a host of each kind.
        self._parts = [[share_of(one.unit.amounts, capacity) for capacity in kinds] for one in self.units]
        # What each unit needs of the memory of each host beside huge pages; for two kinds of hosts.
        mib = {host.hardware.page_pool_mib > 0: [host.ordinary_mib(one.guest) for one in self.units] for host in hosts}
        self._mib, self._vcpus = [mib[host.hardware.page_pool_mib > 0] for host in hosts], [one.guest.vcpus for one in self.units]
        self._free_mib, self._free_vcpus = [host.free_mib() for host in hosts], [host.free_vcpus() for host in hosts]
        self._members = Counter((guest.group.name, number) for number, host in enumerate(hosts) for guest in host.guests.values() if guest.group)

    def score(self) -> float:
        """Return the score of L(EvenGoal). It may be a little lower here: use of guests that exceeds what was measured for their host is not cut off."""
        sums = zip(self._weights, self._sums, self._squares, strict=True)
        return sum(weight * math.sqrt(max(0.0, squares * self._count - total * total)) for weight, total, squares in sums)

    def score_with(self, unit: int, host: int) -> float:
        """Return the score with a unit on another host. One loop, because it is computed for each trial."""
        source, kinds, parts, count = self.at[unit], self._kinds, self._parts[unit], self._count
        found = 0.0
        for weight, total, squares, there, here, less, more in zip(
            self._weights, self._sums, self._squares, self.shares[source], self.shares[host], parts[kinds[source]], parts[kinds[host]], strict=True
        ):
            total += more - less
            variance = (squares + less * (less - 2.0 * there) + more * (more + 2.0 * here)) * count - total * total
            if variance > 0.0:
                found += weight * math.sqrt(variance)
        return found

    def step(self, unit: int, host: int) -> None:
        """Move a unit to another host, whether that has room or not."""
        source, kinds, parts = self.at[unit], self._kinds, self._parts[unit]
        (x0, x1, x2, x3), (a0, a1, a2, a3) = self.shares[source], parts[kinds[source]]
        (y0, y1, y2, y3), (b0, b1, b2, b3) = self.shares[host], parts[kinds[host]]
        s0, s1, s2, s3 = self._sums
        q0, q1, q2, q3 = self._squares
        self.at[unit] = host
        self.shares[source], self.shares[host] = (x0 - a0, x1 - a1, x2 - a2, x3 - a3), (y0 + b0, y1 + b1, y2 + b2, y3 + b3)
        self._sums = (s0 + b0 - a0, s1 + b1 - a1, s2 + b2 - a2, s3 + b3 - a3)
        self._squares = (
            q0 + a0 * (a0 - 2.0 * x0) + b0 * (b0 + 2.0 * y0),
            q1 + a1 * (a1 - 2.0 * x1) + b1 * (b1 + 2.0 * y1),
            q2 + a2 * (a2 - 2.0 * x2) + b2 * (b2 + 2.0 * y2),
            q3 + a3 * (a3 - 2.0 * x3) + b3 * (b3 + 2.0 * y3),
        )
        self._free_mib[source] += self._mib[source][unit]
        self._free_mib[host] -= self._mib[host][unit]
        self._free_vcpus[source] += self._vcpus[unit]
        self._free_vcpus[host] -= self._vcpus[unit]

    def keep_step(self, unit: int, source: int) -> None:
        """Note that a unit has left a host for good."""
        host, home, group = self.at[unit], self.home[unit], self.units[unit].guest.group
        if group is not None:
            self._members[group.name, source] -= 1
            self._members[group.name, host] += 1
        if source == home:
            self._positions[unit] = len(self.moved)
            self.moved.append(unit)
        elif host == home:
            # The last one takes its place.
            last, position = self.moved.pop(), self._positions.pop(unit)
            if last != unit:
                self.moved[position] = last
                self._positions[last] = position

    def has_room(self, unit: int, host: int) -> bool:
        """Whether a host has room for a unit."""
        return self._free_mib[host] >= self._mib[host][unit] and self._free_vcpus[host] >= self._vcpus[unit]

    def is_overfull(self, host: int) -> bool:
        """Whether the guests of a host need more memory or vCPUs than it may promise."""
        return self._free_mib[host] < 0 or self._free_vcpus[host] < 0

    def is_kept_apart(self, unit: int, host: int) -> bool:
        """Whether a group of the unit permits it on a host, and does not get worse there than it is on its home."""
        group = self.units[unit].guest.group
        if group is None:
            return True
        there = self._members[group.name, host]
        if group.policy == ANTI_AFFINITY:
            return there < (group.max_per_host or 1)
        return there <= self._members[group.name, self.home[unit]] - (self.at[unit] == self.home[unit])


def _add_up(shares: list[Vector], power: int) -> Vector:
    cpu, memory, io, vcpus = (sum(one[resource] ** power for one in shares) for resource in range(len(RESOURCES)))
    return cpu, memory, io, vcpus


def _list_units(state: BalanceState) -> Iterator[TrialUnit]:
    """Yield the units that stay, and those that move although they repair nothing."""
    staying = ((unit, host, host) for host, units in enumerate(state.units) for unit in units)
    moving = ((move.unit, move.source, move.destination) for move in state.unit_moves if not move.why)
    for unit, home, at in (*staying, *moving):
        guest = state.fleet.states[state.uses[at].name].guests.get(unit.uuid)
        if guest and len(unit.guests) == 1 and (guest.group is None or guest.group.policy in (ANTI_AFFINITY, SOFT_ANTI_AFFINITY)):
            yield TrialUnit(unit, home, at, guest)
