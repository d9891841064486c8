# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How much a host is wanted among those that pass: the more, the better."""

from __future__ import annotations

import typing as t

from .host_state import HostState
from .request import Request


class Weigher(t.Protocol):
    """One wish."""

    name: str

    def weight(self, request: Request, host: HostState) -> float:
        """Return how well the host serves it."""


class FreeMemory:
    """The host with the most memory left (MiB) comes first, so that a fleet fills evenly."""

    name = "free_memory"

    def weight(self, request: Request, host: HostState) -> float:
        """Return the MiB that are free before the domain is there."""
        return float(host.free_mib(request.uuid))


DEFAULT: t.Final[tuple[Weigher, ...]] = (FreeMemory(),)
