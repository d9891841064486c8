# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reasons why a host cannot take a domain. Each filter says in words what is missing, or nothing when the host passes."""

from __future__ import annotations

import typing as t

from .host_state import ENABLED, HostState
from .request import Request


class Filter(t.Protocol):
    """One rule. It passes a host that it cannot judge because the host did not answer: L(Answers) refuses that one."""

    name: str

    def problem(self, request: Request, host: HostState) -> t.Optional[str]:
        """Return why the host cannot take the domain, or None."""


class NotSource:
    """A domain does not move to the host that it is on, whatever that host is called there."""

    name = "not_source"

    def problem(self, request: Request, host: HostState) -> t.Optional[str]:
        """Compare libvirt's UUIDs, and the names where one is not known."""
        same = request.source_uuid == host.host_uuid if request.source_uuid and host.host_uuid else request.source == host.name
        return f"{request.name} runs there already." if same else None


class Enabled:
    """A host in maintenance, fenced, or in a state that this version does not know, is nobody's destination."""

    name = "enabled"

    def problem(self, request: Request, host: HostState) -> t.Optional[str]:
        """Judge the state in the ledger."""
        if host.state == ENABLED:
            return None
        why = f" ({host.state_reason})" if host.state_reason else ""
        words = {"maintenance": "It is in maintenance", "fenced": "It is fenced"}
        return f"{words.get(host.state, f'Its state in the ledger is {host.state!r}')}{why}."


class Answers:
    """A host of which nothing is known takes no guest."""

    name = "answers"

    def problem(self, request: Request, host: HostState) -> t.Optional[str]:
        """Give the host's own failure to answer as the reason."""
        return f"It did not answer: {host.unanswered.rstrip('.')}." if host.unanswered is not None else None


class Memory:
    """The domain's memory fits beside what is active there and what is on its way there; an exact fit passes."""

    name = "memory"

    def problem(self, request: Request, host: HostState) -> t.Optional[str]:
        """Count in MiB; no domain may be larger than the host, however much the ratio promises."""
        if host.unanswered is not None:
            return None
        if request.memory_mib > host.total_mib:
            return f"{request.name} has {request.memory_mib} MiB of memory, the whole host has {host.total_mib} MiB."
        missing = request.memory_mib - host.free_mib(request.uuid)
        if missing <= 0:
            return None
        return (
            f"It is {missing} MiB short of memory: {request.memory_mib} MiB are needed, {max(0, host.free_mib(request.uuid))} MiB "
            f"of {host.capacity_mib} MiB are free ({host.reserved_memory_mib} MiB are reserved for the host itself)."
        )


DEFAULT: t.Final[tuple[Filter, ...]] = (NotSource(), Answers(), Enabled(), Memory())
