# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the inventory says: labels that a host carries, and how much it may be given to do."""

from __future__ import annotations

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from ..words import names_text, one_or_many
from .base import PASS, Finding, Rule


class Labels(Rule):
    """The host carries every label that the domain asks for."""

    name = "labels"

    def concerns(self, request: Request) -> bool:
        """Return whether it asks for any label."""
        return bool(request.labels)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the labels that are missing."""
        missing = request.labels - host.settings.labels
        if not missing:
            return PASS
        return Finding(f"It lacks the {one_or_many(len(missing), 'label', 'labels')} {names_text(missing)} (kvmfleet_scheduler.labels).")


class MaxDomains(Rule):
    """The host would not hold more domains than its limit says, those on their way there counted."""

    name = "max_domains"

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Count the domains that are active there or booked."""
        limit = host.settings.limits.domains
        if limit is None:
            return PASS
        others = len(host.guests) - (request.uuid in host.guests)
        return Finding(f"It has {others} domains, and its limit is {limit} (kvmfleet_scheduler.limits.domains).") if others >= limit else PASS


class MaxMoves(Rule):
    """Neither the host nor the source takes part in more moves at once than its limit says. Moves count from the start of their job on."""

    name = "max_moves"

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Count moves into the host and out of the source."""
        reasons = []
        limit = host.settings.limits.moves_in
        if limit is not None and len(host.moves_in - {request.uuid}) >= limit:
            reasons.append(f"{_moves(len(host.moves_in - {request.uuid}))} to it, and its limit is {limit} (kvmfleet_scheduler.limits.moves_in).")
        source = fleet.source_of(request)
        limit = source.settings.limits.moves_out if source else None
        if source and limit is not None and len(source.moves_out - {request.uuid}) >= limit:
            going = _moves(len(source.moves_out - {request.uuid}))
            reasons.append(f"{going} away from {source.name}, whose limit is {limit} (kvmfleet_scheduler.limits.moves_out).")
        return Finding(" ".join(reasons)) if reasons else PASS


def _moves(count: int) -> str:
    return f"{count} {one_or_many(count, 'domain is', 'domains are')} moving"
