# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS 4.2 after a power cut: the server keeps the dead client's locks until its lease ends, and the evacuation waits for that."""

from __future__ import annotations

import time

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

# Longer than Linux' 90 s, so that the lock is still held when an evacuation under emulation has come so far. The time to reclaim begins anew with the server.
LEASE_SECONDS = 300
LEASE = f"""
printf '[nfsd]\\nlease-time={LEASE_SECONDS}\\ngrace-time=15\\n' >/etc/nfs.conf.d/lease.conf
systemctl restart nfs-server
cat /proc/fs/nfsd/nfsv4leasetime
"""
# As libvirt's QEMU opens it.
LOCKED = "qemu-img info /srv/images/web.qcow2 2>&1 | grep -q 'Failed to get shared \"write\" lock' && echo locked || echo free"


def test_an_evacuation_after_a_power_cut_waits_for_the_nfs_lease(machines: Machines, site: Site) -> None:
    assert machines.on("nfs", LEASE).strip() == str(LEASE_SECONDS)
    machines("guest", "web", "--host", "m1", "--mib", "24")
    site.succeed("protect", target="kvmfleet_hosts")

    # What a client asks for renews its lease.
    machines.on(1, "touch /srv/images/renewed")
    machines("poweroff", "m1")
    cut = time.monotonic()
    assert machines.on(2, LOCKED).strip() == "locked", "the lock of a dead client is gone before its lease has ended"

    site.succeed("evacuate", source="m1", evacuate_host_lock_wait_seconds=600)
    passed = time.monotonic() - cut
    # A client asks for the time of its lease when it mounts, and renews in time: the server counts from the last sign of life.
    assert passed > LEASE_SECONDS - 30, f"the guest was started {passed:.0f} s after the cut, while the lock was held"
    active = machines.active()
    assert active in ({2: {"web"}, 3: set()}, {2: set(), 3: {"web"}}), active
    record = site.only_record()
    images = [one for one in record["evidence"] if one.get("kind") == "locks"]
    assert images, record["evidence"]
    site.check_end_state(active, ("web", "done", None, "m1", record["destination"]["host"]))
