# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the inventory says: labels that a host carries, and how much it may be given to do."""

from __future__ import annotations

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from ..settings import VARIABLE
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
    """A host that takes part in no move at all is left alone. At any other limit a move waits for its turn, which is only said."""

    name = "max_moves"

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Judge the limit of moves into the host, and of those out of the source. Moves count from the start of their job on."""
        source = fleet.source_of(request)
        sides = [(f"to {host.name}", "moves_in", host.settings.limits.moves_in, host.moves_in)]
        if source:
            sides.append((f"away from {source.name}", "moves_out", source.settings.limits.moves_out, source.moves_out))
        reached = [(where, name, limit) for where, name, limit, moving in sides if limit is not None and len(moving - {request.uuid}) >= limit]
        if not reached:
            return PASS
        never = [f"No move {where} is permitted: {VARIABLE}.limits.{name} is 0." for where, name, limit in reached if limit == 0]
        waits = (
            f"As many domains are moving {where} as may, {limit}: it would wait for its turn ({VARIABLE}.limits.{name})." for where, name, limit in reached
        )
        return Finding(" ".join(never)) if never else Finding(warnings=tuple(waits))
