# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS 3 after a power cut: the locks of a dead client never end. Nothing is started on them; when the host is back they are gone."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

FOLDER = "/srv/images3"
MOUNT = f"mkdir -p {FOLDER}; mount -t nfs -o vers=3 nfs:/srv/images {FOLDER}; findmnt -n -o OPTIONS {FOLDER}"
PROBE = f"qemu-img info {FOLDER}/web.qcow2"
HELD = "cat /proc/locks; ls /var/lib/nfs/sm"


def test_a_lock_that_outlives_its_host_keeps_the_guest_off(machines: Machines, site: Site) -> None:
    for number in machines.numbers:
        assert "vers=3" in machines.on(number, MOUNT)
    machines("guest", "web", "--host", "m1", "--mib", "24", "--storage", FOLDER)
    site.succeed("protect", target="kvmfleet_hosts")
    assert machines.run(2, "/bin/sh", "-c", PROBE).code != 0, "no lock of the running guest is on the server: " + machines.on("nfs", HELD)

    machines("poweroff", "m1")
    assert machines.run(2, "/bin/sh", "-c", PROBE).code != 0, "the lock ended with its host: " + machines.on("nfs", HELD)
    refused = site.play_book("evacuate", source="m1", evacuate_host_lock_wait_seconds=60)
    assert refused.code != 0, refused.text
    assert f"{FOLDER}/web.qcow2" in refused.text, refused.text
    assert "lock" in refused.text, refused.text
    assert machines.active() == {2: set(), 3: set()}
    assert machines.run(2, "/bin/sh", "-c", PROBE).code != 0, "the lock of the dead client is gone"

    # The returning host tells the server that it has forgotten its locks.
    machines("poweron", "m1")
    eventually(lambda: machines.run(2, "/bin/sh", "-c", PROBE).code == 0, "the lock is gone when its host is back")
    assert machines.active() == {1: set(), 2: set(), 3: set()}
    site.verify_audit()
