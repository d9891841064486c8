# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host gets Debian 13 on a new root disk, keeps its identity and libvirt's state, and is taken back; guests move to it, and back where QEMU permits that."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

RELEASE = "trixie"
IDENTITY = "cat /var/lib/kvmfleet/host-id /etc/ssh/ssh_host_ed25519_key.pub; virsh -q list --all --name"
GUARD = "systemctl show -P ActiveState kvmfleet-guard.service"


def test_a_host_keeps_its_identity_in_an_upgrade_and_guests_move_to_it(protected: Site) -> None:
    site, machines = protected, protected.machines
    machines("guest", "own", "--host", "m2", "--mib", "24", "--storage", "local", "--off")
    before = machines.on(2, IDENTITY)
    cordoned = site.do(2, "host", state="maintenance", reason="It gets Debian 13")
    assert cordoned.code == 0, cordoned.text
    upgrade(machines, 2)
    assert machines.on(2, IDENTITY) == before
    site.succeed("recover", target="m2")
    site.succeed("protect", target="m2")
    assert machines.on(2, GUARD).strip() == "active", "the boot guard is not there again"

    there = site.do(1, "live_migrate", name="web", destination="m2")
    assert there.code == 0, there.text
    # The machine type of the old release is known to both; that QEMU takes guests back from a newer one is nobody's promise.
    older = site.do(2, "live_migrate", name="web", destination="m1")
    assert older.refused() == "conflict"
    assert "Its QEMU is older" in older.msg
    back = site.do(2, "live_migrate", name="web", destination="m1", force=True)
    assert back.code == 0, back.text
    assert back.record["forced"] == "FORCED_MIGRATE"

    machines("guest", "new", "--host", "m2", "--mib", "24")
    unknown = site.do(2, "live_migrate", name="new", destination="m1", force=True)
    assert unknown.refused() == "conflict"
    assert "It does not have the machine type pc-i440fx-10.0" in unknown.msg

    assert machines.active() == {1: {"web", "db"}, 2: {"new"}, 3: set()}
    told = [(name, status, source, destination) for name, status, _reason, source, destination in site.record_summaries()]
    assert told == [
        ("web", "completed", "m1", "m2"),
        ("web", "conflict", "m2", "m1"),
        ("web", "completed", "m2", "m1"),
        ("new", "conflict", "m2", "m1"),
    ], told
    site.verify_audit()


def upgrade(machines: Machines, number: int) -> None:
    """Shut a host down, give it a root disk of the new release, and switch it on."""
    machines.shut_down(number)
    machines("upgrade", machines.host(number), "--release", RELEASE)
    machines("poweron", machines.host(number))
    assert machines.release(number) == RELEASE
