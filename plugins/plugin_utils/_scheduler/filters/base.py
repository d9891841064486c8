# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a filter is, and what it answers."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable
from dataclasses import dataclass

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request


@dataclass(frozen=True)
class Finding:
    """A filter's answer for one host.

    :arg reason: why the host cannot take the domain; None where it can.
    :arg warnings: what could not be told, or what only the hypervisor itself can decide.
    :arg overridable: whether C(force) skips this reason; None: as the filter has it.
    """

    reason: t.Optional[str] = None
    warnings: tuple[str, ...] = ()
    overridable: t.Optional[bool] = None


PASS: t.Final = Finding()


class Filter(t.Protocol):
    """One rule, without memory of its own.

    :arg overridable: whether C(force) skips it; what cannot work at all is never skipped.
    :arg judges_silent: whether it can judge a host that did not answer; the others are not asked then.
    """

    name: str
    overridable: bool
    judges_silent: bool

    def concerns(self, request: Request) -> bool:
        """Return whether there is anything to judge; where not, every host passes and C(judge) is not called."""

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return whether the host passes. Called for every host of a fleet: what passes must cost next to nothing."""

    def passes(self, request: Request, host: HostState, fleet: Fleet) -> bool:
        """Return the same without the words."""


class Rule:
    """What most filters have in common."""

    overridable = True
    judges_silent = False

    def concerns(self, request: Request) -> bool:
        """Return that every domain is judged."""
        return True

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return whether the host passes."""
        raise NotImplementedError

    def passes(self, request: Request, host: HostState, fleet: Fleet) -> bool:
        """Ask for the finding; where many hosts are refused, a rule has a shorter way."""
        return self.judge(request, host, fleet).reason is None


def concerned(filters: Iterable[Filter], request: Request) -> list[Filter]:
    """Return the filters that have anything to judge, in their order."""
    return [rule for rule in filters if rule.concerns(request)]
