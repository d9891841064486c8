# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What all ended moves and evacuations add up to; it only ever grows."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.store import Body
from .histogram import DOWNTIME_MS, DURATION_MS, Histogram

MOVE_OUTCOMES = (s.COMPLETED, s.FAILED, s.CANCELLED, s.CONFLICT)
EVACUATION_OUTCOMES = (s.DONE, s.FAILED, s.CONFLICT)
MODES = ("pre-copy", "post-copy", "paused")
OTHER = "other"
REASONS = (*s.CANCEL_REASONS, OTHER)


def _zeros(words: t.Iterable[str]) -> t.Callable[[], dict[str, int]]:
    return lambda: dict.fromkeys(words, 0)


@dataclass
class Totals:
    """:arg moves: by outcome; C(evacuations) likewise, where one that has started its domain is C(done) whatever became of the tombstone.

    :arg cancelled: moves by reason.
    :arg modes: completed moves by how they ended.
    """

    moves: dict[str, int] = field(default_factory=_zeros(MOVE_OUTCOMES))
    cancelled: dict[str, int] = field(default_factory=_zeros(REASONS))
    modes: dict[str, int] = field(default_factory=_zeros(MODES))
    forced: int = 0
    transferred_bytes: int = 0
    durations: Histogram = field(default_factory=lambda: Histogram.empty(DURATION_MS))
    downtimes: Histogram = field(default_factory=lambda: Histogram.empty(DOWNTIME_MS))
    evacuations: dict[str, int] = field(default_factory=_zeros(EVACUATION_OUTCOMES))

    def add(self, record: Body) -> None:
        """Count a closed record, or an evacuation that is C(done). No record may be given twice."""
        if record["type"] == s.EVACUATION:
            self.evacuations[_evacuation_outcome(record)] += 1
            return
        self.moves[record["status"]] += 1
        self.forced += bool(record["forced"])
        self.transferred_bytes += record["result"]["bytes"] or 0
        if record["status"] == s.CANCELLED:
            self.cancelled[record["reason"] if record["reason"] in REASONS else OTHER] += 1
        if record["status"] == s.COMPLETED:
            self._add_completed(record["result"])

    def _add_completed(self, result: Body) -> None:
        mode = result.get("mode")
        if mode in MODES:
            self.modes[mode] += 1
        for histogram, key in ((self.durations, "elapsed_ms"), (self.downtimes, "downtime_ms")):
            if result[key] is not None:
                histogram.add(result[key])

    def as_dict(self) -> Body:
        """Return them as JSON can have them."""
        return {**self.__dict__, "durations": self.durations.as_dict(), "downtimes": self.downtimes.as_dict()}

    @classmethod
    def read(cls, saved: t.Mapping[str, t.Any]) -> Totals:
        """Return what was saved. Raises C(ValueError), C(KeyError), C(TypeError) or C(AttributeError) for what another version wrote, or nobody."""
        totals = cls(
            forced=int(saved["forced"]),
            transferred_bytes=int(saved["transferred_bytes"]),
            durations=Histogram.read(saved["durations"], DURATION_MS),
            downtimes=Histogram.read(saved["downtimes"], DOWNTIME_MS),
        )
        for name in ("moves", "cancelled", "modes", "evacuations"):
            counts = getattr(totals, name)
            if set(saved[name]) != set(counts):
                raise ValueError(f"other {name}")
            counts.update({word: int(count) for word, count in saved[name].items()})
        return totals


def is_countable(record: Body) -> bool:
    """Whether the record has ended: its outcome cannot become another one."""
    return record["status"] in s.CLOSED | s.TOMBSTONE


def _evacuation_outcome(record: Body) -> str:
    return s.DONE if record["status"] in (s.COMPLETED, s.DONE) else t.cast(str, record["status"])
