# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What happens, drawn from a seed alone: nothing that is seen in the fleet has a part in it, so one seed is one story."""

from __future__ import annotations

import random
import typing as t

from .actions import HOSTS, SETTLE, Action

STEPS_OF_A_ROUND = 36
LONGEST_GAP_SECONDS = 5.0
# Until a task that was begun moves something.
BEGINNING_SECONDS = 2.5
# After so many steps at the latest a fault has its end.
MOST_STEPS = 6

# How often each is drawn, beside the others.
WEIGHTS = {
    "move": 34,
    "moves": 9,
    "rivals": 5,
    "abort": 7,
    "force": 5,
    "drain": 5,
    "policy": 4,
    "protect": 2,
    "archive": 3,
    "kill ansible": 5,
    "kill control node": 3,
    "kill watcher": 5,
    "kill libvirtd": 4,
    "restart libvirtd": 2,
    "stop libvirtd": 2,
    "kill sshd": 3,
    "kill qemu": 1,
    "cut": 7,
    "slow": 2,
    "hang storage": 3,
    "fill ledger": 3,
    "clock": 3,
    "power off": 3,
}
# What is drawn when something has just begun to move, every other time.
MEDDLING = ("abort", "force", "kill ansible", "kill control node", "kill watcher", "kill libvirtd", "stop libvirtd", "cut", "rivals", "power off")
BEGINNING = ("move", "moves", "rivals", "drain")
CONTROL = 0


class Drawing:
    """An endless sequence of actions: rounds that end with a settling run.

    :arg guests: their names.
    """

    def __init__(self, seed: int, guests: t.Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._guests = tuple(guests)
        self._due: list[tuple[int, Action]] = []
        self._off: int | None = None
        self._busy: set[tuple[str, int]] = set()
        self._before = ""

    def __iter__(self) -> t.Iterator[Action]:
        while True:
            yield from self._round()

    def _round(self) -> t.Iterator[Action]:
        for step in range(STEPS_OF_A_ROUND):
            yield from self._ended_by(step)
            yield self._drawn(step)
        yield from self._ended_by(STEPS_OF_A_ROUND + MOST_STEPS * 4)
        yield Action(SETTLE)

    def _ended_by(self, step: int) -> list[Action]:
        """Return what is due now, in the order in which it fell due."""
        due = sorted((one for one in self._due if one[0] <= step), key=lambda one: one[0])
        self._due = [one for one in self._due if one[0] > step]
        for dummy, action in due:
            if action.verb == "power on":
                self._off = None
            self._busy.discard((action.verb, action.given.get("host", action.given.get("on", CONTROL))))
        return [action for dummy, action in due]

    def _drawn(self, step: int) -> Action:
        meddles = self._before in BEGINNING and self._random.random() < 0.5
        among = {verb: weight for verb, weight in WEIGHTS.items() if verb in MEDDLING or not meddles}
        while True:
            verb = self._random.choices(list(among), list(among.values()))[0]
            given = getattr(self, f"_{verb.replace(' ', '_')}", self._of_a_host)(step)
            if given is not None:
                self._before = verb
                return Action(verb, given, round(self._gap() + (BEGINNING_SECONDS if verb in BEGINNING else 0), 1))

    # What each verb takes; none where it cannot be now. What has an end puts that among what will be due.

    def _move(self, _step: int) -> dict[str, t.Any]:
        return {"guest": self._guest(), "to": self._random.choice((0, *HOSTS)), "options": self._options()}

    def _moves(self, _step: int) -> dict[str, t.Any]:
        chosen = {"from": self._host(), "to": self._host(), "most": self._random.randint(2, 4)}
        return {**chosen, "parallel": self._random.randint(1, 4), "options": self._options()}

    def _rivals(self, _step: int) -> dict[str, t.Any]:
        return {"guest": self._guest(), "to": [self._host(), self._host()], "options": self._options()}

    def _abort(self, _step: int) -> dict[str, t.Any]:
        return {"guest": self._guest()}

    def _force(self, _step: int) -> dict[str, t.Any]:
        return {"guest": self._guest()}

    def _drain(self, step: int) -> dict[str, t.Any] | None:
        return self._until(step, "enable", {"host": self._host()}, 2)

    def _policy(self, _step: int) -> dict[str, t.Any]:
        fields: dict[str, t.Any] = {
            "auto_converge": self._random.choice((True, False)),
            "downtime_ms": self._random.choice((100, 500, 2000)),
            "priority": self._random.randint(-10, 10),
            "timeout_seconds": self._random.choice((15, 30)),
            "on_timeout": self._random.choice(("abort", "force_complete")),
        }
        names = self._random.sample(sorted(fields), self._random.randint(0, 3))
        return {"guest": self._guest(), "fields": {name: fields[name] for name in names} if names else {"state": "absent"}}

    def _protect(self, _step: int) -> dict[str, t.Any]:
        return {}

    def _archive(self, _step: int) -> dict[str, t.Any]:
        return {}

    def _kill_ansible(self, step: int) -> dict[str, t.Any]:
        return self._killed(step)

    def _kill_control_node(self, step: int) -> dict[str, t.Any]:
        return self._killed(step)

    def _killed(self, step: int) -> dict[str, t.Any]:
        """Who loses a task mostly runs it once more."""
        if self._random.random() < 0.7:
            self._due.append((step + self._random.randint(1, 3), Action("again", {}, self._gap())))
        return {"which": self._random.randint(0, 2)}

    def _kill_watcher(self, _step: int) -> dict[str, t.Any]:
        return {"which": self._random.randint(0, 5)}

    def _stop_libvirtd(self, step: int) -> dict[str, t.Any] | None:
        return self._until(step, "start libvirtd", {"host": self._host()})

    def _kill_qemu(self, _step: int) -> dict[str, t.Any]:
        return {"guest": self._guest(), "which": self._random.randint(0, 1)}

    def _cut(self, step: int) -> dict[str, t.Any] | None:
        cable: dict[str, t.Any] = {"host": self._host()}
        kind = self._random.choice(("cable", "data", "data", "control", "ssh", "one way", "peer"))
        if kind in ("data", "control", "ssh"):
            cable["only"] = [kind]
        if kind == "one way":
            cable["direction"] = self._random.choice(("in", "out"))
        if kind == "peer":
            cable["peer"] = self._other(cable["host"])
        return cable if self._until(step, "heal", {"host": cable["host"]}) else None

    def _slow(self, step: int) -> dict[str, t.Any] | None:
        found = self._until(step, "heal", {"host": self._host()})
        return {**found, "mbit": self._random.choice((20, 100))} if found else None

    def _hang_storage(self, step: int) -> dict[str, t.Any] | None:
        return self._until(step, "let storage answer", {"host": self._host()})

    def _fill_ledger(self, step: int) -> dict[str, t.Any] | None:
        return self._until(step, "make room", {}, most=2)

    def _clock(self, step: int) -> dict[str, t.Any] | None:
        found = self._until(step, "right clock", {"on": self._random.choice((CONTROL, CONTROL, *HOSTS))})
        return {**found, "seconds": self._random.choice((-3600, -90, 90, 3600))} if found else None

    def _power_off(self, step: int) -> dict[str, t.Any] | None:
        """A host is lost: mostly it is evacuated, then it returns and is recovered; at times it returns while it is evacuated, or is not missed at all."""
        if self._off is not None:
            return None
        self._off = host = self._host()
        back = step + self._random.randint(3, MOST_STEPS)
        if self._random.random() < 0.8:
            self._due.append((step + self._random.randint(1, 2), Action("evacuate", {"host": host}, self._gap())))
        self._due.append((back, Action("power on", {"host": host}, self._gap())))
        if self._random.random() < 0.8:
            self._due.append((back + self._random.randint(1, 2), Action("recover", {"host": host}, self._gap())))
        return {"host": host}

    def _of_a_host(self, _step: int) -> dict[str, t.Any]:
        return {"host": self._host()}

    def _options(self) -> dict[str, t.Any]:
        """Return the options of a move: each has a limit, for a soak has one too."""
        found: dict[str, t.Any] = {
            "timeout_seconds": self._random.randint(4, 30),
            "on_timeout": self._random.choice(("abort", "force_complete")),
            "bandwidth_mib": self._random.choice((0, 2, 4, 4, 8, 16)),
            "force_suspend_seconds": self._random.choice((2, 10)),
        }
        if self._random.random() < 0.3:
            found["downtime_strategy"] = self._random.choice(("stepped", "adaptive"))
        if self._random.random() < 0.3:
            found["downtime_ms"] = self._random.choice((50, 300, 1500))
        how = self._random.choice(("", "", "", "post_copy", "auto_converge", "parallel_connections", "compression"))
        return {**found, **({how: {"parallel_connections": 2, "compression": "xbzrle"}.get(how, True)} if how else {})}

    def _until(self, step: int, end: str, given: dict[str, t.Any], least: int = 1, most: int = MOST_STEPS) -> dict[str, t.Any] | None:
        """Let the fault have its end some steps later; none where there is such a fault already."""
        key = (end, given.get("host", given.get("on", CONTROL)))
        if key in self._busy:
            return None
        self._busy.add(key)
        self._due.append((step + self._random.randint(least, most), Action(end, given, self._gap() / 2)))
        return given

    def _guest(self) -> str:
        return self._random.choice(self._guests)

    def _host(self) -> int:
        return self._random.choice(HOSTS)

    def _other(self, host: int) -> int:
        return self._random.choice([one for one in HOSTS if one != host])

    def _gap(self) -> float:
        return round(self._random.uniform(0.2, LONGEST_GAP_SECONDS), 1)
