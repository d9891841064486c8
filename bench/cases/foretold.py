# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain predicts beside what comes: the seconds of each move and of the whole drain, for kinds of guests, by the first drain of a fleet."""

from __future__ import annotations

import datetime
import json
import pathlib
import subprocess
import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Record

from ..figures import Effort, Figure, Section
from ..hosts import fleet

# The cable of the source, in Mbit/s; 0 for one that is as fast as the processors.
CABLE, FAST = 537, 0
OFF, MOST_OFF, MISSED, DRAIN_OFF = 1.5, 0.1, 0.1, 1.3
LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Kind:
    """A drain: its guests, as C(lab guest) takes them, the cable, and the options of the role."""

    name: str
    guests: t.Mapping[str, tuple[str, ...]]
    mbit: int
    options: t.Mapping[str, t.Any]


def _alike(name: str, number: int, *options: str) -> dict[str, tuple[str, ...]]:
    return {f"{name}{index}": options for index in range(number)}


IDLE, FULL = ("--mib", "256"), ("--mib", "512", "--dirty-mib", "200")
# 28 MiB/s over 128 MiB.
BUSY = ("--mib", "512", "--dirty-mib", "128", "--rate", "7168")
ONE = {"drain_host_parallel": 1}
KINDS = (
    Kind("idle, one after the other", _alike("idle", 3, *IDLE), CABLE, ONE),
    Kind("idle, fast cable", _alike("idle", 3, *IDLE), FAST, {}),
    Kind("full, one after the other", _alike("full", 3, *FULL), CABLE, ONE),
    Kind("full, fast cable", _alike("full", 3, *FULL), FAST, ONE),
    Kind("busy", _alike("busy", 1, *BUSY), CABLE, ONE),
    Kind("capped at 32 MiB/s", _alike("full", 2, *FULL), CABLE, {**ONE, "drain_host_options": {"bandwidth_mib": 32}}),
    Kind("two at once", _alike("full", 2, *FULL), CABLE, {"drain_host_parallel": 2}),
    Kind("mixed", {**_alike("busy", 1, *BUSY), **_alike("full", 3, *FULL), **_alike("idle", 2, *IDLE)}, CABLE, {}),
)


@dataclass(frozen=True)
class Told:
    """What was predicted, and what came, in seconds. C(low) and C(high) are the ends of the range."""

    predicted: float
    low: float
    high: float
    actual: float

    @property
    def ratio(self) -> float:
        """By which factor the prediction was off, either way."""
        return max(self.predicted / self.actual, self.actual / self.predicted)

    def text(self) -> str:
        """Return both as text."""
        return f"{self.predicted:g}: {self.actual:.1f}"


def run(effort: Effort) -> Section:
    """Drain a host of each kind of guests, each time with a ledger that has no history."""
    section = Section("What a drain predicts")
    moves: list[Told] = []
    drains: list[Told] = []
    with fleet("f", 2) as control:
        for kind in KINDS[:1] if effort.quick else KINDS:
            own: list[Told] = []
            for number in range(effort.rounds):
                told, whole = _Drained(control, kind).measure(f"{KINDS.index(kind)}-{number}")
                own += told
                drains.append(whole)
                section.figures.append(_figure(f"{kind.name}: whole drain", [whole]))
            section.figures.append(_figure(f"{kind.name}: moves", own))
            moves += own
    section.figures += _judge(moves, drains)
    section.notes.append(
        "Seconds predicted by the plan beside seconds that came, as `predicted: actual`. A move is judged by its job as libvirt reports it, a drain from its "
        "first record to the end of the last move. Every drain has a ledger of its own, without earlier moves. The factor is the larger of predicted/actual "
        "and actual/predicted. Source, destination and control node share the cores of one machine, so small moves depend on how busy these are."
    )
    return section


def _figure(what: str, told: list[Told]) -> Figure:
    worst = max(one.ratio for one in told)
    return Figure(what, ", ".join(one.text() for one in told), f"off by at most {worst:.2f}", worst)


def _judge(moves: list[Told], drains: list[Told]) -> list[Figure]:
    off = sum(one.ratio > OFF for one in moves)
    missed = sum(not one.low <= one.actual <= one.high for one in moves)
    worst = max(one.ratio for one in drains)
    return [
        Figure(f"moves off by more than {OFF}", f"{off} of {len(moves)}", "", off / len(moves), MOST_OFF),
        Figure("moves outside of the predicted range", f"{missed} of {len(moves)}", "", missed / len(moves), MISSED),
        Figure("whole drains: off by at most", f"{worst:.2f}", "", worst, DRAIN_OFF),
    ]


class _Drained:
    """The first of two hosts with the guests of a kind, which are drained once and then removed."""

    def __init__(self, control: Control, kind: Kind) -> None:
        self._control, self._kind, self._lab = control, kind, control.lab

    def measure(self, name: str) -> tuple[list[Told], Told]:
        """Return what was predicted and what came, of each move and of the drain."""
        for guest, options in self._kind.guests.items():
            self._lab("guest", guest, "--host", self._lab.host(1), *options)
        if self._kind.mbit:
            self._lab("slow", self._lab.host(1), "--mbit", str(self._kind.mbit))
        try:
            return self._drain(self._control.folder / f"ledger-{name}", self._control.folder / f"plan-{name}.json")
        finally:
            self._lab("heal", self._lab.host(1))
            for guest in self._kind.guests:
                self._lab("rmguest", guest)

    def _drain(self, ledger: pathlib.Path, saved: pathlib.Path) -> tuple[list[Told], Told]:
        settings = {"target": self._lab.host(1), "kvmfleet_ledger": str(ledger), "drain_host_plan_file": str(saved), **self._kind.options}
        command = ["ansible-playbook", "-i", self._control.inventory, "kvmfleet.migration.drain", "-e", json.dumps(settings)]
        done = subprocess.run(command, env=self._control.environment, timeout=LIMIT_SECONDS, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"The drain failed: {done.stdout}{done.stderr}")
        self._control.path, self._control.where = ledger, str(ledger)
        records = {str(record["domain"]["uuid"]): record for record in self._control.records()}
        plan = json.loads(saved.read_text(encoding="utf-8"))
        moves = [_told(move["predicted_seconds"], move["predicted_range"], records[move["uuid"]]["result"]["elapsed_ms"] / 1000) for move in plan["moves"]]
        host = self._lab.host(1)
        return moves, _told(plan["predicted_seconds"][host], plan["predicted_ranges"][host], _span(list(records.values())))


def _told(predicted: float, span: list[float], actual: float) -> Told:
    return Told(max(predicted, 0.1), span[0], span[1], max(actual, 0.1))


def _span(records: list[Record]) -> float:
    ends = [datetime.datetime.fromisoformat(record[key]) for record in records for key in ("created_at", "updated_at")]
    return (max(ends) - min(ends)).total_seconds()
