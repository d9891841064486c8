# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What watching costs: the processor time of the watcher, and of the control node, while several moves go on that do not end."""

from __future__ import annotations

import os
import time
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control

from ..figures import Effort, Figure, Section
from ..hosts import fleet
from ..timing import Series

GOAL_PERCENT = 1.0
GUEST_MIB, DIRTY_MIB, CAP_MIB, PAGES_A_SECOND = 96, 32, 4, 2000


def run(effort: Effort) -> Section:
    """Follow capped moves of guests that write faster than the cap, and read the processor time from C(/proc)."""
    moves, seconds = effort.size(6, 1), float(effort.size(20, 3))
    section = Section("Watching")
    with fleet("w", 2) as control:
        names = [f"busy{number}" for number in range(moves)]
        for name in names:
            control.lab("guest", name, "--host", control.lab.host(1), "--mib", str(GUEST_MIB), "--dirty-mib", str(DIRTY_MIB), "--rate", str(PAGES_A_SECOND))
        running = control.begin_moves([(name, 2) for name in names], bandwidth_mib=CAP_MIB, parallel=moves)
        try:
            uuids = [control.lab.uuid(name) for name in names]
            states = [control.lab.under_way(uuid) for uuid in uuids]
            found = [_measured(control, states, running.process.pid, seconds) for dummy in range(effort.rounds)]
        finally:
            # The hosts are about to go, and the moves with them.
            running.kill()
    watcher, control_node = (Series(tuple(one[index] / moves for one in found)) for index in (0, 1))
    section.figures += [
        Figure(f"watcher on the source, {moves} moves at once, for each", watcher.told("% of a core"), value=watcher.median, goal=GOAL_PERCENT),
        Figure(f"`ansible` on the control node, {moves} moves at once, for each", control_node.told("% of a core")),
    ]
    section.notes.append(
        f"User and system time of the processes over {seconds:.0f} s, from /proc/PID/stat, while guests that write {PAGES_A_SECOND} pages/s are moved "
        f"under a cap of {CAP_MIB} MiB/s. The work of libvirtd for the queries is not included. On the control node, progress lines, polling over SSH "
        "and the heartbeat are included."
    )
    return section


def _measured(control: Control, states: list[dict[str, t.Any]], ansible: int, seconds: float) -> tuple[float, float]:
    """Return how many percent of a core the watcher, and Ansible with its worker and its SSH, have used meanwhile."""
    (pid,) = {state["watcher"]["pid"] for state in states}
    begin, before = time.monotonic(), (_on_source(control, pid), _of_tree(ansible))
    time.sleep(seconds)
    used = (_on_source(control, pid) - before[0], _of_tree(ansible) - before[1])
    elapsed = time.monotonic() - begin
    return 100 * used[0] / elapsed, 100 * used[1] / elapsed


def _on_source(control: Control, pid: int) -> float:
    return _seconds(control.lab.on(1, "cat", f"/proc/{pid}/stat"))


def _of_tree(pid: int) -> float:
    """Return the processor time of a process and of its children, those included that have ended and were waited for."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
        children = [int(child) for child in stream.read().split()]
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stream:
        own = _seconds(stream.read(), with_children=True)
    return own + sum(map(_of_tree, children))


def _seconds(stat: str, with_children: bool = False) -> float:
    """Return the seconds in a line of /proc/PID/stat: fields 14 to 17 of proc(5)."""
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_children else 13])) / os.sysconf("SC_CLK_TCK")
