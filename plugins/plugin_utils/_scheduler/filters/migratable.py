# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What keeps a domain from moving, whatever the destination."""

from __future__ import annotations

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from .base import Finding, Rule


class Migratable(Rule):
    """What libvirt and QEMU refuse to move is refused before the start."""

    name = "migratable"
    judges_silent = True

    def concerns(self, request: Request) -> bool:
        """Return whether anything was seen that keeps it from moving."""
        return bool(request.blockers)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Give each of the reasons that the domain's own host saw."""
        return Finding(f"{request.name} cannot be moved live: {' '.join(_sentence(blocker) for blocker in request.blockers)}")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
