# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last second of a move: when a busy guest may be stopped, by the adaptive strategy and by others, in the same engine."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control

from ..commuter import Commuter, Shape, commuter
from ..figures import Effort, Figure, Section
from ..hosts import fleet
from ..timing import Series, in_turn

DOWNTIME_MS = 1000
TIMEOUT_SECONDS = 120
CAP_MIB = 64
# Twice what the cap lets through: without a longer pause such a guest never comes over.
PAGES_PER_SECOND = 2 * CAP_MIB * 256
EMPTY_MIB = 128
COLD_MIB = 224
SHARES = (0.2, 0.5, 0.9)
TRIED = (1.0, 0.75, 0.5, 0.25)
TRY_SECONDS = 20

ADAPTIVE, STEPPED, FIXED, OVIRT = "adaptive", "stepped", "best fixed", "oVirt"
# Pauses of a few pages differ by chance.
CHANCE = 1.25
GOALS = {FIXED: 1.15, STEPPED: 0.5, OVIRT: 0.7}
# A small set beside the firmware of a guest needs one more iteration, which is a fifth of D: see the notes.
SMALL_GOALS = {**GOALS, FIXED: 1.3}

NOTES = [
    f"""Guests of the lab between two hosts under a cap of {CAP_MIB} MiB/s, longest downtime D = {DOWNTIME_MS} ms, timeout {TIMEOUT_SECONDS} s. Each writes
its set repeatedly at twice the cap; sending the set under the cap takes the given share of D. All strategies run in the same engine. Times are
measured by libvirt, from the start of the job to its end; an aborted move counts with the time that it took.""",
    """The best fixed downtime is the fastest of those that were tried once. oVirt's schedule sees every iteration in this benchmark; vdsm polls every 10 s
by default, so the real one is slower. It ends at 500 ms, and aborts moves that need more.""",
    """The adaptive strategy decides at the end of the first iteration if the guest wrote as much as was sent. If it did not, because of memory that is never
written (the 3 MiB of a small guest's firmware are sufficient with a small set), it needs one more iteration: a pass over the set, at most D. Up to
0.15 s are added: the strategy polls every 50 ms, and the hypervisor applies a new limit every 100 ms.""",
    """With much cold memory, no strategy can be much faster than another: the duration of the first pass is the same, and oVirt's few iterations over the
set are short. The best fixed downtime shows how close to 0.7 of oVirt any strategy can come.""",
]


@dataclass
class Trial:
    """Moves of one guest; keeps the pause of each that ended, and how many did not."""

    guest: Commuter
    cap_mib: int = CAP_MIB
    pauses: dict[str, list[float]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)

    def of(self, name: str, strategy: str, downtime_ms: int = DOWNTIME_MS, seconds: int = TIMEOUT_SECONDS) -> Callable[[], float]:
        """Return a move by that strategy, which returns its seconds; one that was given up counts with the seconds that it took."""

        def move() -> float:
            result = self.guest.move(strategy=strategy, downtime_ms=downtime_ms, timeout_seconds=seconds, bandwidth_mib=self.cap_mib)
            if result["ended"]:
                self.pauses.setdefault(name, []).append(result["downtime_ms"])
            else:
                self.lost[name] = self.lost.get(name, 0) + 1
            return float(result["elapsed_ms"]) / 1000

        return move

    def best_fixed_ms(self, shares: tuple[float, ...]) -> int:
        """Return the fixed pause that was fastest of those tried."""
        found = {}
        for share in shares:
            lost = sum(self.lost.values())
            seconds = self.of("tried", "fixed", int(share * DOWNTIME_MS), TRY_SECONDS)()
            if sum(self.lost.values()) == lost:
                found[int(share * DOWNTIME_MS)] = seconds
        return min(found, key=found.__getitem__, default=DOWNTIME_MS)

    def told(self, name: str, series: Series) -> str:
        """Return seconds and pause of a strategy in words."""
        pause = f", pause {statistics.median(self.pauses[name]):.0f} ms" if self.pauses.get(name) else ""
        lost = f", given up {self.lost[name]} times" if self.lost.get(name) else ""
        return f"{name} {series.told()}{pause}{lost}"


def run(effort: Effort) -> Section:
    """Move each guest by each strategy, in turn."""
    section = Section("The last second of a busy guest's move", notes=list(NOTES))
    longest: list[float] = []
    with fleet("d", 2) as control:
        for share in SHARES[1:2] if effort.quick else SHARES:
            longest += _busy(section, control, share, 0, (STEPPED, OVIRT), effort)
        if not effort.quick:
            longest += _busy(section, control, SHARES[1], COLD_MIB, (OVIRT,), effort)
            longest += _converging(section, control, effort)
            longest += _lived(section, control, effort)
    section.figures.append(
        Figure("longest pause under the adaptive strategy", f"{max(longest):.0f} ms", f"D {DOWNTIME_MS} ms", max(longest) / DOWNTIME_MS, 1.1)
    )
    return section


def _busy(section: Section, control: Control, share: float, cold_mib: int, others: tuple[str, ...], effort: Effort) -> list[float]:
    with commuter(control, "busy", Shape(_set_mib(share), PAGES_PER_SECOND, cold_mib, EMPTY_MIB)) as guest:
        trial = Trial(guest)
        best = DOWNTIME_MS if effort.quick else trial.best_fixed_ms(TRIED)
        moves = {ADAPTIVE: trial.of(ADAPTIVE, "adaptive"), FIXED: trial.of(FIXED, "fixed", best)}
        if not effort.quick:
            moves |= {name: trial.of(name, name.lower()) for name in others}
        found = in_turn(moves, effort.rounds)
    beside = f" beside {cold_mib} MiB that are never written" if cold_mib else ""
    for name in (FIXED, *others):
        if name in found:
            what = f"needs {share:g} D{beside}: adaptive to {name}" + (f" ({best} ms)" if name == FIXED else "")
            section.figures.append(_compared(what, trial, found, name, SMALL_GOALS if share == SHARES[0] else GOALS))
    return trial.pauses.get(ADAPTIVE, [])


def _set_mib(share: float) -> int:
    return round(share * DOWNTIME_MS / 1000 * CAP_MIB)


def _compared(what: str, trial: Trial, found: Mapping[str, Series], name: str, goals: Mapping[str, float]) -> Figure:
    ratio = found[ADAPTIVE].median / found[name].median
    return Figure(what, trial.told(ADAPTIVE, found[ADAPTIVE]), trial.told(name, found[name]), ratio, goals[name])


def _converging(section: Section, control: Control, effort: Effort) -> list[float]:
    """A guest that writes half of what is sent: what is compared is its pause, which under both is what the last iteration happened to leave."""
    with commuter(control, "calm", Shape(_set_mib(1), PAGES_PER_SECOND // 4, 0, EMPTY_MIB)) as guest:
        trial = Trial(guest)
        found = in_turn({ADAPTIVE: trial.of(ADAPTIVE, "adaptive"), STEPPED: trial.of(STEPPED, "stepped")}, effort.rounds)
    ratio = statistics.median(trial.pauses[ADAPTIVE]) / statistics.median(trial.pauses[STEPPED])
    figure = Figure(
        "converges by itself: pause, adaptive to stepped", trial.told(ADAPTIVE, found[ADAPTIVE]), trial.told(STEPPED, found[STEPPED]), ratio, CHANCE
    )
    section.figures.append(figure)
    return trial.pauses[ADAPTIVE]


def _lived(section: Section, control: Control, effort: Effort) -> list[float]:
    """Without a cap, over a cable that carries no more: the guest lives the whole pause."""
    lab = control.lab
    with commuter(control, "wired", Shape(_set_mib(SHARES[-1]), PAGES_PER_SECOND, 0, EMPTY_MIB)) as guest:
        for host in (1, 2):
            lab("slow", lab.host(host), "--mbit", str(CAP_MIB * 8))
        trial = Trial(guest, cap_mib=0)
        found = in_turn({ADAPTIVE: trial.of(ADAPTIVE, "adaptive"), FIXED: trial.of(FIXED, "fixed")}, effort.rounds)
        for host in (1, 2):
            lab("heal", lab.host(host))
    what = f"needs {SHARES[-1]:g} D, a cable of {CAP_MIB} MiB/s instead of the cap: adaptive to {FIXED} ({DOWNTIME_MS} ms)"
    section.figures.append(_compared(what, trial, found, FIXED, GOALS))
    return trial.pauses.get(ADAPTIVE, [])
