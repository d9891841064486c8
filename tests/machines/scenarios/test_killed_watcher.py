# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel kills a watcher for its memory while a move runs: the task that follows it starts another one, and the move ends as it should."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

SCOPE = "systemctl list-units --no-legend --plain 'kvmfleet-watcher-*.scope' | cut -d' ' -f1"
# Less than it has already: the kernel finds nothing to take back and kills it.
SQUEEZE = "echo 1M >/sys/fs/cgroup/system.slice/$1/memory.max; echo 0 >/sys/fs/cgroup/system.slice/$1/memory.swap.max 2>/dev/null || true"
KILLED = "journalctl -k -q --no-pager | grep -c 'Memory cgroup out of memory: Killed process'"


def test_a_move_completes_after_the_kernel_kills_its_watcher(machines: Machines, site: Site) -> None:
    machines("guest", "busy", "--host", "m1", "--mib", "64", "--dirty-mib", "40", "--rate", "50")
    task = site.begin_task(1, "live_migrate", name="busy", destination="m2", bandwidth_mib=1, timeout_seconds=900)
    site.wait_until_moving(task, "busy")
    scope = eventually(lambda: machines.on(1, SCOPE).strip(), "the watcher has a scope of its own")
    machines.on(1, SQUEEZE.replace("$1", scope))
    eventually(lambda: int(machines.run(1, "/bin/sh", "-c", KILLED).out or 0) > 0, "the kernel has killed the watcher")
    text = site.finish(task)
    assert task.returncode == 0, text
    assert "has died; a new one takes over" in " ".join(text.split()), text
    site.check_end_state({1: set(), 2: {"busy"}, 3: set()}, ("busy", "completed", None, "m1", "m2"))
