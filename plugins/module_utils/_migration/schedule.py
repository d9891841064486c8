# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which pause at its end a move is allowed at which moment: the seam between the monitor and the strategies."""

from __future__ import annotations

import dataclasses
import typing as t

from .downtime import Step, downtime_at
from .iterations import Iterations


@dataclasses.dataclass(frozen=True)
class Moment:
    """What a schedule may go by. C(allowed_ms) is what is allowed already, null at the first look."""

    elapsed_seconds: float
    iterations: Iterations
    allowed_ms: t.Optional[int]


@dataclasses.dataclass(frozen=True)
class Allowance:
    """The pause that is allowed from now on; where the schedule has a reason that a person may want to read, with it and with the pause it predicts."""

    milliseconds: int
    predicted_ms: t.Optional[int] = None
    reason: str = ""


class Schedule(t.Protocol):
    """How the allowed pause grows. C(is_attentive) schedules want to see each iteration end, not only each quarter of a second."""

    @property
    def first_ms(self) -> int:
        """What is allowed from the start, in ms."""

    @property
    def is_attentive(self) -> bool:
        """Whether to look again as soon as the current iteration should be over."""

    def allow(self, moment: Moment) -> Allowance:
        """Return what is allowed at that moment."""


@dataclasses.dataclass(frozen=True)
class Stepped:
    """A ramp of steps, each at its time."""

    ramp: t.Tuple[Step, ...]
    is_attentive: bool = False

    @property
    def first_ms(self) -> int:
        return self.ramp[0][1]

    def allow(self, moment: Moment) -> Allowance:
        return Allowance(downtime_at(self.ramp, moment.elapsed_seconds))
