# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a benchmark has found out: figures, each beside its goal."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

Way = t.TypeVar("Way")


@dataclass(frozen=True)
class Figure:
    """One line of a table.

    :arg measured: the figure in words, with its unit: C(8.4 s (8.1 to 9.0)).
    :arg beside: what it is compared with, in words too; empty where nothing is.
    :arg value: the number that the goal is about, mostly the ratio of the two; None where nothing was to be reached.
    :arg goal: at most this much; None where nothing was to be reached.
    """

    what: str
    measured: str
    beside: str = ""
    value: float | None = None
    goal: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the goal was reached, where there is one."""
        return None if self.value is None or self.goal is None else self.value <= self.goal


@dataclass
class Section:
    """A benchmark's table. C(notes) are sentences below it: how it was measured, and what a goal that was not reached would take."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, t.Any]:
        """Return it as it is kept in a file."""
        return asdict(self)


@dataclass(frozen=True)
class Effort:
    """How much a run may cost. Quick is to see that everything runs; its figures say nothing.

    :arg rounds: how often each command is timed.
    :arg only: a part of the names of the ways that are compared; those of other names are left out.
    """

    quick: bool
    rounds: int
    only: str = ""

    def size(self, full: int, quick: int) -> int:
        """Return the size of what is measured."""
        return quick if self.quick else full

    def chosen(self, ways: Mapping[str, Way]) -> dict[str, Way]:
        """Return those ways of doing the same that are to be measured."""
        return {name: way for name, way in ways.items() if self.only in name}
