# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The hosts that are the best destinations: the least busy in all, and those that use the least of each resource."""

from __future__ import annotations

import bisect
import functools
import typing as t
from collections.abc import Callable, Iterable

from .goals import Goal
from .options import BalanceOptions

# So many hosts are tried from each order: what one guest needs most, the first of another order may have.
PER_ORDER: t.Final = 6


class _Order:
    """Hosts in the order of a value that changes."""

    def __init__(self, value_of: Callable[[int], float], count: int) -> None:
        self._value_of = value_of
        self._values = [value_of(host) for host in range(count)]
        self._sorted = sorted((value, host) for host, value in enumerate(self._values))

    def update(self, host: int) -> None:
        del self._sorted[bisect.bisect_left(self._sorted, (self._values[host], host))]
        self._values[host] = self._value_of(host)
        bisect.insort(self._sorted, (self._values[host], host))

    def first(self, count: int) -> Iterable[int]:
        return (host for _value, host in self._sorted[:count])


def _share_of(goal: Goal, resource: int, host: int) -> float:
    return goal.shares[host][resource]


class HostRanking:
    """The orders, kept up to date with the shares of the goal."""

    def __init__(self, goal: Goal, count: int, options: BalanceOptions) -> None:
        self._orders = [_Order(goal.load_of, count)]
        for resource, weight in enumerate(options.weight_vector):
            if weight:
                self._orders.append(_Order(functools.partial(_share_of, goal, resource), count))
        self._first: list[int] | None = None

    def update(self, hosts: Iterable[int]) -> None:
        """Sort these hosts again, whose shares have changed."""
        for host in hosts:
            for order in self._orders:
                order.update(host)
        self._first = None

    def destinations(self) -> list[int]:
        """Return the first hosts of each order, the least busy first."""
        if self._first is None:
            self._first = list(dict.fromkeys(host for order in self._orders for host in order.first(PER_ORDER)))
        return self._first
