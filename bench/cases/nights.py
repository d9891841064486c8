# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nights of maintenance: how often a limit was broken, with faults in a fifth of the steps and a process that is killed at a random step."""

from __future__ import annotations

import collections
import os
import pathlib
import tempfile

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.simulator import nights
from ansible_collections.kvmfleet.migration.tests.simulator.nights import Night

from ..figures import Effort, Figure, Section

NIGHTS = 100
# The disk is not what is measured.
SHM = "/dev/shm"
_NOTE = f"""{nights.HOSTS} simulated hosts, one seed for each night; faults in {nights.FAULTY_SHARE:.0%} of the steps: the step fails, takes very long, or
its process is killed in it or soon after. In {nights.GONE_SHARE:.0%} of the reboots the host does not come back, and is fenced. Some agents report an error,
hang, do nothing and report success, or cannot switch the host on again. In {nights.STRANGER_SHARE:.0%} of these reboots a guest is started on the
host, or the host is enabled, after it was found safe to reboot. The decisions and the ledger are those of the collection; an independent model of the
fleet judges what was done.
After the end of a run that was stopped, a person has repaired what failed and continues it, at most {nights.MAX_CONTINUATIONS} times."""


def run(effort: Effort) -> Section:
    """Simulate the nights, and count what must never be."""
    counts: collections.Counter[str] = collections.Counter()
    number = effort.size(NIGHTS, 5)
    for seed in range(number):
        with tempfile.TemporaryDirectory(dir=SHM if os.path.isdir(SHM) else None) as folder:
            counts.update(judge_night(Night(seed, FileLedger(str(pathlib.Path(folder) / "ledger")))))
    what = f"{number} nights, {counts['kills']} kills, {counts['faults']} faults, {counts['done']} hosts maintained"
    what += f", {counts['fences']} fenced, {counts['refused']} fences refused"
    section = Section("Nights of maintenance", notes=[_NOTE])
    for name, text in BROKEN.items():
        section.figures.append(Figure(text, str(counts[name]), what, counts[name], 0))
    return section


BROKEN = {
    "down": "Nights with more hosts out of service than `max_unavailable`, or a host drained while the fleet could not lose one more",
    "late": "Hosts begun that were not predicted to be back in the window",
    "rebooted": "Hosts rebooted twice",
    "fenced": "Hosts fenced while a guest may be there, fenced again before a person looked at them, or fenced after they had come back",
    "left_off": "Hosts that were left without power although their agent works",
    "open": "Nights that neither ended nor said what they wait for",
    "not_killed": "Nights whose process was never killed",
}


def judge_night(night: Night) -> dict[str, int]:
    """Carry out the night, and return how often each rule was broken, and its figures."""
    run = night.carry_out()
    is_told = all(one.error for one in run.hosts_with(m.FAILED, m.WAITING))
    return {
        "down": int(bool(night.fleet.violations) or night.fleet.most_down > night.options.max_unavailable),
        "fenced": len(night.fleet.wrong_fences),
        "left_off": len(night.left_off),
        "late": len(night.begun_late),
        "rebooted": sum(times > 1 for times in night.fleet.reboots.values()),
        "open": int(not (run.state == m.FINISHED or (run.reason and is_told and not run.hosts_with(m.IN_PROGRESS)))),
        "not_killed": int(not night.kills),
        "kills": night.kills,
        "faults": night.faults,
        "fences": night.fences,
        "refused": night.refused_fences,
        "done": len(run.hosts_with(m.DONE)),
    }
