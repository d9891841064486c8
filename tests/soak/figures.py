# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a soak has come to, in numbers, and whether that was enough to prove anything."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s

from .actions import ENDS, FAULTS, SETTLE, TASKS, Action

Record = t.Mapping[str, t.Any]


@dataclasses.dataclass
class Figures:
    """Counts over a whole soak."""

    actions: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    moves: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    evacuations: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    looks: int = 0
    settlings: int = 0
    memories: int = 0
    accounted: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0

    def act(self, action: Action) -> None:
        self.actions[action.verb] += 1

    def read(self, records: t.Iterable[Record]) -> None:
        """Count what the records say; only for people, nothing is judged by it."""
        self.moves.clear()
        self.evacuations.clear()
        for record in records:
            counter = self.evacuations if record["type"] == s.EVACUATION else self.moves
            counter[record["status"] if not record["reason"] else f"{record['status']} ({record['reason']})"] += 1

    @property
    def completed(self) -> int:
        """How many moves have moved a guest."""
        return sum(count for status, count in self.moves.items() if status.startswith(s.COMPLETED))

    def not_enough(self) -> list[str]:
        """Return why this proves nothing; empty where it does."""
        found = [] if self.completed else ["no guest was moved"]
        found += [] if any(self.actions[verb] for verb in FAULTS) else ["no fault happened"]
        return found + ([] if self.settlings and self.looks else ["nothing was looked at"])

    def lines(self) -> list[str]:
        """Return the counts for people."""
        drawn = {verb: count for verb, count in self.actions.items() if verb != SETTLE}
        return [
            f"{self.seconds / 60:.1f} minutes, {sum(drawn.values())} actions, {self.settlings} settling runs",
            f"tasks: {_told({verb: drawn[verb] for verb in TASKS if drawn.get(verb)})}",
            f"moves: {_told(self.moves)}",
            f"evacuations: {_told(self.evacuations)}",
            f"faults: {_told({verb: drawn[verb] for verb in FAULTS if drawn.get(verb)})}",
            f"their ends: {_told({verb: drawn[verb] for verb in ENDS if drawn.get(verb)})}",
            f"guests that died by a fault: {_told(self.accounted)}",
            f"invariants: {self.looks} pairs of looks at every host, {self.memories} memories read, {self.settlings} times everything",
        ]


def _told(counts: t.Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda one: -one[1])) or "none"
