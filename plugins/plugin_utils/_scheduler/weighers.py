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

    def raw(self, request: Request, host: HostState, fleet: Fleet) -> float:
        """Return how well the host serves the wish, in a unit of the wish's own."""


class FreeMemory:
    """The host with the most memory left (MiB) comes first, so that a fleet fills evenly."""

    name = "free_memory"

    def raw(self, request: Request, host: HostState, fleet: Fleet) -> float:
        """Return the MiB that are free before the domain is there."""
        return float(host.free_mib(request.uuid))


class FreeCpu:
    """The host with the most vCPUs left comes first."""

    name = "free_cpu"

    def raw(self, request: Request, host: HostState, fleet: Fleet) -> float:
        """Return the vCPUs that are free before the domain is there."""
        return float(host.free_vcpus(request.uuid))


class SoftGroups:
    """Members of a soft group find each other, or keep apart."""

    name = "soft_groups"

    def raw(self, request: Request, host: HostState, fleet: Fleet) -> float:
        """Return the number of other members there, less than nothing for a group that keeps apart."""
        group = request.group
        if group is None or group["policy"] not in _SOFT:
            return 0.0
        there = fleet.members(group["name"]).get(host.name, {})
        return _SOFT[group["policy"]] * (len(there) - (request.uuid in there))


class Moves:
    """A host that takes part in many moves comes later; that is what its negative multiplier is for."""

    name = "moves"

    def raw(self, request: Request, host: HostState, fleet: Fleet) -> float:
        """Return the moves that have begun there, this domain's not counted."""
        return float(len(host.moves_in - {request.uuid}) + len(host.moves_out - {request.uuid}))


DEFAULT: t.Final[tuple[Weigher, ...]] = (FreeMemory(), FreeCpu(), SoftGroups(), Moves())


def weigh(request: Request, hosts: Sequence[HostState], fleet: Fleet, weighers: Sequence[Weigher] = DEFAULT) -> Mapping[str, float]:
    """Return the weight of each of these hosts, by name."""
    weights = dict.fromkeys((host.name for host in hosts), 0.0)
    for weigher in weighers:
        raw = [weigher.raw(request, host, fleet) for host in hosts]
        least, span = min(raw, default=0.0), max(raw, default=0.0) - min(raw, default=0.0)
        if span > 0:
            for host, value in zip(hosts, raw, strict=True):
                weights[host.name] += host.settings.weights.get(weigher.name, 0.0) * (value - least) / span
    return weights
