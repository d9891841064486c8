# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The way that a fleet goes while a plan is carried out, one domain after the other."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from dataclasses import dataclass, field

from .fleet import Fleet
from .request import Request

Step = tuple[Request, t.Optional[str]]


@dataclass
class Course:
    """Every step is a domain and the host that takes it; None: it stays.

    A fleet of each step would be much to keep: only the last one that was asked for is, and the next ones are reached from there.
    """

    base: Fleet
    steps: Sequence[Step] = ()
    _at: int = field(default=0, init=False)
    _fleet: t.Optional[Fleet] = field(default=None, init=False)

    def before(self, number: int) -> Fleet:
        """Return the fleet before the step of that number, from 0. Asked for in order, all steps together cost one walk."""
        if self._fleet is None or number < self._at:
            self._at, self._fleet = 0, self.base
        for request, host in self.steps[self._at : number]:
            self._fleet = self._fleet.taking(request, host) if host else self._fleet
        self._at = number
        return self._fleet
