# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which hosts may be a destination at all, whatever the domain needs."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host

from ..fleet import Fleet
from ..host_state import ENABLED, HostState
from ..request import Request
from .base import PASS, Finding, Rule

_WORDS = {"maintenance": "It is in maintenance", "fenced": "It is fenced"}


class NotSource(Rule):
    """A domain does not move to the host that it is on, whatever that host is called there."""

    name = "not_source"
    overridable = False
    judges_silent = True

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Compare the host IDs; libvirt's UUIDs, and then the names, where one is not known."""
        return Finding(f"{request.name} runs there already.") if same_host(request.source_place, host.place) else PASS


class Up(Rule):
    """A host of which nothing is known takes no guest."""

    name = "up"
    overridable = False
    judges_silent = True

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Give the host's own failure to answer as the reason."""
        return PASS if host.unanswered is None else Finding(f"It did not answer: {host.unanswered.rstrip('.')}.")


class Enabled(Rule):
    """A host in maintenance, fenced, or in a state that this version does not know, is nobody's destination."""

    name = "enabled"
    judges_silent = True

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Judge the state in the ledger."""
        if host.state == ENABLED:
            return PASS
        why = f" ({host.state_reason})" if host.state_reason else ""
        return Finding(f"{_WORDS.get(host.state, f'Its state in the ledger is {host.state!r}')}{why}.")
