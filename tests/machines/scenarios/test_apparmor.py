# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AppArmor on the destination denies the image: nothing moves, the guest stays, the error names the cause; once it is permitted the move works."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

# Every guest's profile on a host includes this.
RULES = "/etc/apparmor.d/local/abstractions/libvirt-qemu"
DENY = f"echo 'deny /srv/images/** rwk,' >>{RULES}"
PERMIT = f"sed -i '/srv.images/d' {RULES}"


def test_a_move_fails_while_apparmor_denies_the_image_and_the_guest_stays(machines: Machines, site: Site) -> None:
    machines("guest", "web", "--host", "m1", "--mib", "24")
    machines.on(2, DENY)
    denied = site.do(1, "live_migrate", name="web", destination="m2")
    assert denied.code != 0, denied.text
    assert "Permission denied" in denied.text, denied.text
    assert machines.active() == {1: {"web"}, 2: set(), 3: set()}
    assert machines.known()[2] == {}, "the destination kept a definition"

    machines.on(2, PERMIT)
    moved = site.do(1, "live_migrate", name="web", destination="m2")
    assert moved.code == 0, moved.text
    site.check_end_state({1: set(), 2: {"web"}, 3: set()}, ("web", "failed", None, "m1", "m2"), ("web", "completed", None, "m1", "m2"))
