# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How much a host is wanted among those that pass. Weights are made comparable as in Nova: (w - least) / (most - least), times a multiplier."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from .fleet import Fleet
from .host_state import HostState
from .request import Request

_SOFT = {"soft-affinity": 1.0, "soft-anti-affinity": -1.0}


class Weigher(t.Protocol):
    """One wish. The multiplier of that name in a host's settings says how much it counts there."""

    name: str

    def raw(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return how well each of the hosts serves the wish, in a unit of the wish's own."""


class FreeMemory:
    """The host with the most memory left (MiB) comes first, so that a fleet fills evenly."""

    name = "free_memory"

    def raw(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return the MiB that are free before the domain is there."""
        return [host.free_mib(request.uuid) for host in hosts]


class FreeCpu:
    """The host with the most vCPUs left comes first."""

    name = "free_cpu"

    def raw(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return the vCPUs that are free before the domain is there."""
        return [host.free_vcpus(request.uuid) for host in hosts]


class SoftGroups:
    """Members of a soft group find each other, or keep apart."""

    name = "soft_groups"

    def raw(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return the number of other members there, less than nothing for a group that keeps apart."""
        group = request.group
        if group is None or group["policy"] not in _SOFT:
            return [0.0] * len(hosts)
        members = fleet.members(group["name"])
        there = [members.get(host.name, {}) for host in hosts]
        return [_SOFT[group["policy"]] * (len(guests) - (request.uuid in guests)) for guests in there]


class Moves:
    """A host that takes part in many moves comes later; that is what its negative multiplier is for."""

    name = "moves"

    def raw(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return the moves that have begun there, this domain's not counted."""
        own = {request.uuid}
        return [len(host.moves_in - own) + len(host.moves_out - own) if host.moves_in or host.moves_out else 0 for host in hosts]


DEFAULT: t.Final[tuple[Weigher, ...]] = (FreeMemory(), FreeCpu(), SoftGroups(), Moves())


def weigh(request: Request, hosts: Sequence[HostState], fleet: Fleet, weighers: Sequence[Weigher] = DEFAULT) -> Mapping[str, float]:
    """Return the weight of each of these hosts, by name."""
    weights = [0.0] * len(hosts)
    for weigher in weighers:
        raw = weigher.raw(request, hosts, fleet)
        add_weights(weights, weigher, hosts, raw, min(raw, default=0.0), max(raw, default=0.0))
    return {host.name: weight for host, weight in zip(hosts, weights, strict=True)}


def add_weights(weights: list[float], weigher: Weigher, hosts: Sequence[HostState], raw: Sequence[float], least: float, most: float) -> None:
    """Add what one wish counts for to the weight of each host.

    :arg least: of the hosts that pass; C(most) likewise.
    """
    span = most - least
    if span > 0:
        name = weigher.name
        multipliers = [host.settings.weights.get(name, 0.0) for host in hosts]
        weights[:] = [weight + multiplier * (value - least) / span for weight, multiplier, value in zip(weights, multipliers, raw, strict=True)]
