# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One thing that happens in a soak, as it was drawn: a verb, what it takes, and the pause after it."""

from __future__ import annotations

import dataclasses
import typing as t

HOSTS = (1, 2, 3)
SETTLE = "settle"
# Verbs by what they are: tasks of operators, faults, and the ends of faults.
TASKS = ("move", "moves", "rivals", "abort", "force", "drain", "enable", "policy", "protect", "archive", "evacuate", "recover", "again")
FAULTS = (
    "kill ansible",
    "kill control node",
    "kill watcher",
    "kill libvirtd",
    "restart libvirtd",
    "stop libvirtd",
    "kill sshd",
    "kill qemu",
    "cut",
    "slow",
    "hang storage",
    "fill ledger",
    "clock",
    "power off",
)
ENDS = ("start libvirtd", "heal", "let storage answer", "make room", "right clock", "power on")
VERBS = frozenset({*TASKS, *FAULTS, *ENDS, SETTLE})


@dataclasses.dataclass(frozen=True)
class Action:
    """:arg given: what the verb takes, as JSON has it.

    :arg gap: seconds to let pass after it has begun.
    """

    verb: str
    given: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    gap: float = 0.0

    def __str__(self) -> str:
        words = [f"{key}={_told(value)}" for key, value in self.given.items()]
        return " ".join([self.verb, *words])

    def as_json(self) -> dict[str, t.Any]:
        """Return what a journal keeps of it."""
        return {"verb": self.verb, "given": dict(self.given), "gap": self.gap}


def from_json(found: t.Mapping[str, t.Any]) -> Action:
    """Return the action of a line of a journal. Raises L(ValueError) for what is none."""
    if found.get("verb") not in VERBS or not isinstance(found.get("given"), dict) or not isinstance(found.get("gap"), (int, float)):
        raise ValueError(f"no action: {found}")
    return Action(found["verb"], found["given"], float(found["gap"]))


def _told(value: t.Any) -> str:
    return ",".join(f"{key}:{one}" for key, one in value.items()) or "-" if isinstance(value, dict) else str(value)
