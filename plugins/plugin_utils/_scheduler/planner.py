# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A place for each of many domains at once: the largest first, and every placement counts for the next."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from . import filters as f
from . import weighers as w
from .check import Verdict, best, check
from .host_state import HostState
from .request import Request


@dataclass(frozen=True)
class Placement:
    """Where a domain goes (None: nowhere), and what was said of each host when it was decided."""

    request: Request
    destination: t.Optional[str]
    verdicts: list[Verdict] = field(default_factory=list)
    pinned: bool = False


def plan(
    requests: Iterable[Request],
    hosts: Sequence[HostState],
    pinned: t.Optional[Mapping[str, str]] = None,
    filters: Sequence[f.Filter] = f.DEFAULT,
    weighers: Sequence[w.Weigher] = w.DEFAULT,
) -> list[Placement]:
    """Return a placement for each request. The same input gives the same plan, in whatever order it comes.

    :arg pinned: domain UUID to host name, for domains whose way is decided already: they are placed first and not judged.
    """
    states = {host.name: host for host in sorted(hosts, key=lambda host: host.name)}
    ways = pinned or {}
    ordered = sorted(requests, key=lambda request: (request.uuid not in ways, -request.memory_mib, request.name, request.uuid))
    placements = []
    for request in ordered:
        placement = _place(request, states, ways.get(request.uuid), filters, weighers)
        if placement.destination in states:
            states[placement.destination] = states[placement.destination].taking(request)
        placements.append(placement)
    return placements


def _place(request: Request, states: Mapping[str, HostState], way: t.Optional[str], filters: Sequence[f.Filter], weighers: Sequence[w.Weigher]) -> Placement:
    if way is not None:
        return Placement(request, way, pinned=True)
    verdicts = [check(request, host, filters, weighers) for host in states.values()]
    chosen = best(verdicts)
    return Placement(request, chosen.host if chosen else None, verdicts)
