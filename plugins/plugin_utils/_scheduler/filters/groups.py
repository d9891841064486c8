# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Domains that keep together, and domains that keep apart. The soft kinds of groups refuse nobody: they are weights."""

from __future__ import annotations

from ..fleet import Fleet
from ..hardware import Body
from ..host_state import HostState
from ..request import Request
from ..words import names_text, one_or_many
from .base import PASS, Finding, Rule

AFFINITY = "affinity"
ANTI_AFFINITY = "anti-affinity"


class Affinity(Rule):
    """Where a group keeps together, its domains go where the others are; where there are no others, anywhere."""

    name = "affinity"

    def concerns(self, request: Request) -> bool:
        """Return whether it is of a group that keeps together."""
        return bool(request.group and request.group["policy"] == AFFINITY)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the members, and where they are."""
        group = request.group or {}
        members = fleet.members(group["name"])
        if any(uuid != request.uuid for uuid in members.get(host.name, ())):
            return _consistent(group, request, fleet)
        elsewhere = {name: {guest.name for guest in there.values() if guest.uuid != request.uuid} for name, there in members.items()}
        places = [f"{names_text(names)} on {name}" for name, names in sorted(elsewhere.items()) if names]
        if not places:
            return PASS
        return Finding(f"{request.name} keeps together with its group {group['name']}: {', '.join(places)}.")


class AntiAffinity(Rule):
    """Where a group keeps apart, a host has no more of its domains than C(max_per_host) (1)."""

    name = "anti_affinity"

    def concerns(self, request: Request) -> bool:
        """Return whether it is of a group that keeps apart."""
        return bool(request.group and request.group["policy"] == ANTI_AFFINITY)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the members that are there."""
        group = request.group or {}
        there = fleet.members(group["name"]).get(host.name, {})
        most = group.get("max_per_host") or 1
        if len(there) - (request.uuid in there) < most:
            return _consistent(group, request, fleet)
        names = {guest.name for guest in there.values() if guest.uuid != request.uuid}
        allowed = f"at most {most} of them on a host" if most > 1 else "no two of them on a host"
        verb = one_or_many(len(names), "is", "are")
        return Finding(f"{request.name} keeps apart from its group {group['name']} ({allowed}), of which {names_text(names)} {verb} there.")


def _consistent(group: Body, request: Request, fleet: Fleet) -> Finding:
    """Refuse a group whose members do not agree on what it is."""
    policies = fleet.policies(group["name"])
    if all(policy == group["policy"] for policy in policies):
        return PASS
    said = "; ".join(f"{policy} by {names_text(names)}" for policy, names in sorted(policies.items()) if policy != group["policy"])
    return Finding(f"The group {group['name']} has two policies: {group['policy']} by {request.name}, {said}. Set one of them with domain_policy.")
