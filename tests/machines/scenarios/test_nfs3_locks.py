# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NFS 3 after a power cut: the locks of a dead client never end. Nothing is started on them; when the host is back they are gone."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support import nfs3
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site


def test_a_guest_is_not_started_while_its_image_has_an_nfs3_lock(machines: Machines, site: Site) -> None:
    nfs3.mount_everywhere(machines)
    machines("guest", "web", "--host", "m1", "--mib", "24", "--storage", nfs3.FOLDER)
    site.succeed("protect", target="kvmfleet_hosts")

    machines("poweroff", "m1")
    assert nfs3.is_locked(machines, "web"), "the lock ended with its host"
    refused = site.play_book("evacuate", source="m1", evacuate_host_lock_wait_seconds=60)
    assert refused.code != 0, refused.text
    assert f"{nfs3.image_of('web')} is still open for writing" in " ".join(refused.text.split()), refused.text
    assert machines.active() == {2: set(), 3: set()}
    assert nfs3.is_locked(machines, "web"), "the lock of the dead client is gone"

    # The returning host tells the server that it has forgotten its locks.
    machines("poweron", "m1")
    eventually(lambda: not nfs3.is_locked(machines, "web"), "the lock is gone when its host is back")
    assert machines.active() == {1: set(), 2: set(), 3: set()}
    site.verify_audit()
