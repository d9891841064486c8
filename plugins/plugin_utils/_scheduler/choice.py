# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which of many hosts takes a domain: the one that C(rank) would put first, found without asking the filters about each of them."""

from __future__ import annotations

import heapq
import typing as t
from collections.abc import Iterator, Sequence

from .filters import Filter, concerned
from .fleet import Fleet
from .host_state import HostState
from .request import Request
from .weighers import DEFAULT, add_weights


def most_wanted(request: Request, fleet: Fleet, names: Sequence[str], filters: Sequence[Filter]) -> Iterator[str]:
    """Yield the hosts that pass all filters, the highest weight first, equal ones by name: those that C(rank) passes, in that order.

    A weight depends on the least and the most among the hosts that pass. They are looked for from both ends, so that of a large fleet only the hosts at
    the ends and the ones that are wanted most are judged.
    """
    hosts = [fleet.states[name] for name in names]
    passing = _Passing(request, hosts, fleet, concerned(filters, request))
    weights = [0.0] * len(hosts)
    for weigher in DEFAULT:
        raw = weigher.raw(request, hosts, fleet)
        ends = passing.ends(raw)
        if ends is None:
            return
        add_weights(weights, weigher, hosts, raw, *ends)
    queue = [(-weight, name, number) for number, (weight, name) in enumerate(zip(weights, names, strict=True))]
    heapq.heapify(queue)
    while queue:
        _weight, name, number = heapq.heappop(queue)
        if passing(number):
            yield name


class _Passing:
    """Whether a host passes, by its number; each is judged once."""

    def __init__(self, request: Request, hosts: Sequence[HostState], fleet: Fleet, rules: Sequence[Filter]) -> None:
        self._request = request
        self._hosts = hosts
        self._fleet = fleet
        self._rules = rules
        self._silent_rules = [rule for rule in rules if rule.judges_silent]
        self._known: dict[int, bool] = {}

    def __call__(self, number: int) -> bool:
        if number not in self._known:
            host = self._hosts[number]
            rules = self._rules if host.unanswered is None else self._silent_rules
            self._known[number] = all(rule.passes(self._request, host, self._fleet) for rule in rules)
        return self._known[number]

    def ends(self, raw: Sequence[float]) -> t.Optional[tuple[float, float]]:
        """Return the least and the most of these values, one a host, among the hosts that pass; None where no host does."""
        least = self._first(raw)
        if least is None:
            return None
        most = self._first([-value for value in raw])
        return (least, -most) if most is not None else None

    def _first(self, values: Sequence[float]) -> t.Optional[float]:
        if not values:
            return None
        least = min(values)
        if self(values.index(least)):
            return least
        queue = [(value, number) for number, value in enumerate(values)]
        heapq.heapify(queue)
        while queue:
            value, number = heapq.heappop(queue)
            if self(number):
                return value
        return None
