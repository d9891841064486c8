# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move that is forced to its end under a bandwidth cap: how long the guest stands still, beside a suspend under that cap, and how well that was predicted."""

from __future__ import annotations

import statistics
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ..commuter import Commuter, Shape, commuter
from ..figures import Effort, Figure, Section
from ..hosts import fleet
from ..timing import Series, in_turn

CAP_MIB = 32
AFTER_SECONDS = 12
GOAL = 0.03
PREDICTION_GOAL = 2.0


def run(effort: Effort) -> Section:
    """Force a guest that never converges, by our ladder and by a suspend."""
    # A small set takes four seconds under the cap, so that a quick round has not arrived when it is forced after two.
    cap = effort.size(CAP_MIB, 16)
    after = effort.size(AFTER_SECONDS, 2)
    shape = Shape(effort.size(200, 64), effort.size(8100, 32000), empty_mib=312)
    ends: list[_End] = []
    with fleet("f", 2) as control, commuter(control, "busy", shape) as guest:
        pauses = in_turn({"forced": lambda: _forced(guest, cap, after, ends), "suspended": lambda: _suspended(guest, cap, after)}, effort.rounds)
    return _section(pauses, ends, cap, after, shape)


@dataclass(frozen=True)
class _End:
    """Milliseconds of one pause."""

    predicted: float
    lived: float

    @property
    def off(self) -> float:
        """By which factor the prediction was off; nobody can be wrong by less than what a pause of nothing takes."""
        ratio = max(self.predicted, 1) / max(self.lived, 1)
        return max(ratio, 1 / ratio)

    def __str__(self) -> str:
        return f"{self.predicted:.0f}: {self.lived:.0f}"


def _forced(guest: Commuter, cap: int, after: int, ends: list[_End]) -> float:
    result = _ended(guest.move(strategy="stepped", timeout_seconds=after, on_timeout="force_complete", bandwidth_mib=cap))
    ends.append(_End(result["predicted_ms"], float(result["downtime_ms"])))
    return ends[-1].lived / 1000


def _suspended(guest: Commuter, cap: int, after: int) -> float:
    return float(_ended(guest.move(strategy="stepped", timeout_seconds=600, suspend_after_seconds=after, bandwidth_mib=cap))["downtime_ms"]) / 1000


def _ended(result: Mapping[str, object]) -> Mapping[str, float]:
    if not result["ended"]:
        raise RuntimeError(f"The move did not end: {result['history']}")
    return t.cast("Mapping[str, float]", result)


def _section(pauses: Mapping[str, Series], ends: list[_End], cap: int, after: int, shape: Shape) -> Section:
    ratio = pauses["forced"].median / pauses["suspended"].median
    wrong = sorted(end.off for end in ends)
    off = statistics.median(wrong)
    figures = [
        Figure("pause of a forced end, to that of a suspend under the cap", pauses["forced"].told(digits=3), pauses["suspended"].told(), ratio, GOAL),
        Figure(
            "prediction: off by a factor of",
            f"{off:.2f} ({wrong[0]:.2f} to {wrong[-1]:.2f})",
            f"ms predicted: lived: {', '.join(map(str, ends))}",
            off,
            PREDICTION_GOAL,
        ),
    ]
    notes = [
        f"""A guest with a set of {shape.dirty_mib} MiB, {shape.pages_per_second} pages a second, cap {cap} MiB/s, forced {after} s after the start of its job,
when the remaining memory has long stopped falling. The pause is measured by libvirt. Forced: the cap is lifted, the link is measured, and the downtime that
the rest needs is allowed. Suspended: the guest is suspended, and the rest is sent under the cap.""",
    ]
    return Section("The forced end of a move under a bandwidth cap", figures, notes)
