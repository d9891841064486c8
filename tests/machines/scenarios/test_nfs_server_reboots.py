# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NFS server reboots while memory moves: the guests' disks stand still meanwhile, the move goes on, and nothing is lost."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site


def test_a_move_completes_while_the_nfs_server_reboots(machines: Machines, site: Site) -> None:
    machines("guest", "busy", "--host", "m1", "--mib", "64", "--dirty-mib", "48", "--rate", "50")
    task = site.begin_task(1, "live_migrate", name="busy", destination="m2", bandwidth_mib=1, timeout_seconds=1200)
    site.wait_until_moving(task, "busy")
    machines("reboot", "nfs")
    text = site.finish(task)
    assert task.returncode == 0, text
    site.check_end_state({1: set(), 2: {"busy"}, 3: set()}, ("busy", "completed", None, "m1", "m2"))
    # The lock came along, and the server knows it after its reboot.
    assert machines.run(3, "qemu-img", "info", "/srv/images/busy.qcow2").code != 0, "nobody holds the image's lock"
