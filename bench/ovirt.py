# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The schedule that oVirt calls "minimal downtime", for comparison: the allowed pause by iterations, then the end."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import Allowance, ScheduleMoment

# After so many iterations since the first that was seen: so many ms. What comes after the last is an abort.
STEPS = ((1, 150), (2, 200), (3, 300), (4, 400), (6, 500))
FIRST_MS = 100


@dataclass
class MinimalDowntime:
    """At each new iteration at most one step, when its number is passed; the iteration after the last step is one too many.

    oVirt itself looks only every ten seconds by default. Here every iteration is seen, which is kinder to it.
    """

    is_attentive: bool = True
    gives_up: bool = False
    _taken: int = 0
    _first: int | None = None
    _seen: int = 0

    @property
    def first_ms(self) -> int:
        return FIRST_MS

    @property
    def longest_ms(self) -> int:
        return STEPS[-1][1]

    def allowance_at(self, moment: ScheduleMoment) -> Allowance:
        number = moment.iterations.number
        if number and self._first is None:
            self._first = self._seen = number
        if self._first is not None and number > self._seen:
            self._seen = number
            self._next_step(number - self._first)
        return Allowance(STEPS[self._taken - 1][1] if self._taken else FIRST_MS)

    def _next_step(self, stalling: int) -> None:
        if self._taken == len(STEPS):
            self.gives_up = True
        elif STEPS[self._taken][0] < stalling:
            self._taken += 1
