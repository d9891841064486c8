# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A histogram over fixed bounds, kept in milliseconds so that it adds up exactly however often it is saved and read."""

from __future__ import annotations

import bisect
import typing as t
from dataclasses import dataclass

DURATION_MS = (1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000)
DOWNTIME_MS = (10, 20, 50, 100, 200, 300, 500, 1_000, 2_000, 5_000, 10_000, 30_000)


@dataclass
class Histogram:
    """:arg counts: how many values are at most each bound and above the one before; the last are above all bounds."""

    bounds_ms: tuple[int, ...]
    counts: list[int]
    sum_ms: int = 0

    @classmethod
    def empty(cls, bounds_ms: tuple[int, ...]) -> Histogram:
        """Return one without a value."""
        return cls(bounds_ms, [0] * (len(bounds_ms) + 1))

    def add(self, value_ms: int) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.bounds_ms, value_ms)] += 1
        self.sum_ms += value_ms

    def as_dict(self) -> dict[str, t.Any]:
        """Return it as JSON can have it."""
        return {"bounds_ms": list(self.bounds_ms), "counts": self.counts, "sum_ms": self.sum_ms}

    @classmethod
    def read(cls, saved: t.Mapping[str, t.Any], bounds_ms: tuple[int, ...]) -> Histogram:
        """Return what was saved. Raises C(ValueError) unless it has these bounds."""
        counts = [int(count) for count in saved["counts"]]
        if tuple(saved["bounds_ms"]) != bounds_ms or len(counts) != len(bounds_ms) + 1:
            raise ValueError("other bounds")
        return cls(bounds_ms, counts, int(saved["sum_ms"]))
