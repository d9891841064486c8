# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of a run: rates, and the distribution of what took long."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.tests.simulator.crowd.control import Log


@dataclass(frozen=True)
class Figures:
    """What came of a run in one store.

    :arg wrong: what does not hold.
    """

    store: str
    seconds: float
    logs: Sequence[Log]
    lines: int
    wrong: Sequence[str]

    @property
    def moves(self) -> Counter[str]:
        """How many moves ended how."""
        return Counter(status for log in self.logs for status in log.ended.values())

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each operation: its name, how often it was done, and milliseconds: median, 99th percentile and the longest."""
        kinds = sorted({kind for log in self.logs for kind in log.seconds})
        rows = [(kind, [one for log in self.logs for one in log.seconds.get(kind, ())]) for kind in kinds]
        rows.append(("a whole task", [one for log in self.logs for one in log.task_seconds]))
        return [(kind, str(len(values)), *(f"{1000 * value:.0f}" for value in _spread(values))) for kind, values in rows]

    def errors(self) -> Counter[str]:
        """Return how often moves failed, by what was said."""
        return sum((log.errors for log in self.logs), Counter())

    def summary(self) -> str:
        """Return the run in a sentence."""
        moves, ended = self.moves, ", ".join(f"{count} {status}" for status, count in sorted(self.moves.items()))
        rates = f"{moves['completed'] / self.seconds:.1f} completed moves and {self.lines / self.seconds:.0f} changes of a record a second"
        return f"{self.store}: {self.seconds:.0f} s, {ended}; {rates}; {len(self.wrong) or 'nothing'} wrong"


def _spread(values: Iterable[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], ordered[-1]
