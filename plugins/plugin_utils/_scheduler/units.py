# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What is placed in one step: a domain, or all domains of a plan that an affinity group keeps together."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .filters import Filter
from .fleet import Fleet
from .request import Request

AFFINITY = "affinity"


@dataclass(frozen=True)
class Unit:
    """Domains that go to one host or stay.

    :arg requests: by priority, then size, then name.
    """

    requests: tuple[Request, ...]

    @property
    def uuid(self) -> str:
        """Stands for the unit: the UUID of its first domain."""
        return self.requests[0].uuid

    @property
    def memory_mib(self) -> int:
        """What all of them need, in MiB."""
        return sum(request.memory_mib for request in self.requests)

    @property
    def rank(self) -> tuple[t.Any, ...]:
        """The place of the unit in a plan: by priority, then size, then name; the least comes first."""
        first = self.requests[0]
        return (-first.priority, -self.memory_mib, first.name, first.uuid)

    def signature(self) -> str:
        """Return a text that is the same for units of the same needs, whatever their names."""
        return json.dumps([request.needs for request in self.requests], sort_keys=True, default=str)

    def fits(self, fleet: Fleet, host: str, filters: Sequence[Filter]) -> bool:
        """Whether L(placed) would return a fleet; most units are one domain, for which no fleet need be made."""
        if len(self.requests) == 1:
            return passes(self.requests[0], fleet, host, filters)
        return self.placed(fleet, host, filters) is not None

    def placed(self, fleet: Fleet, host: str, filters: Sequence[Filter]) -> t.Optional[Fleet]:
        """Return the fleet with the unit on that host; None where a filter refuses one of its domains."""
        for request in self.requests:
            if not passes(request, fleet, host, filters):
                return None
            fleet = fleet.taking(request, host)
        return fleet


def units_of(requests: Iterable[Request]) -> list[Unit]:
    """Return the units of these domains in the order of a plan; the same for any order of the input."""
    shares: dict[tuple[str, str], list[Request]] = {}
    for request in requests:
        shares.setdefault(_share(request), []).append(request)
    units = [Unit(tuple(sorted(share, key=lambda request: Unit((request,)).rank))) for share in shares.values()]
    return sorted(units, key=lambda unit: unit.rank)


def passes(request: Request, fleet: Fleet, host: str, filters: Sequence[Filter]) -> bool:
    """Whether every filter lets the domain go to that host; ends at the first that does not."""
    state = fleet.states[host]
    asked = (rule for rule in filters if (rule.judges_silent or state.unanswered is None) and rule.concerns(request))
    return all(rule.passes(request, state, fleet) for rule in asked)


def _share(request: Request) -> tuple[str, str]:
    group = request.group
    return (AFFINITY, group["name"]) if group and group["policy"] == AFFINITY else ("", request.uuid)
