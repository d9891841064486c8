# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that gets another release of its operating system as in a rolling upgrade: a new root disk, to which its identity and libvirt's state are carried."""

from __future__ import annotations

import pathlib
import shutil

from ...lab.kvmlab import releases
from ...lab.kvmlab.errors import LabError, UsageError
from . import alone, image, qemu, warming
from .layout import Fleet, Machine
from .requirements import require_room

NEEDED_GIB = 3
# Who the host is, whom it lets in, and what libvirt and kvmfleet.migration keep. Name, machine ID and address come from the kernel's command line.
CARRIED = (
    "etc/libvirt",
    "etc/ssh/ssh_host_ed25519_key",
    "etc/ssh/ssh_host_ed25519_key.pub",
    "home/operator/.ssh",
    "root/.ssh",
    "var/lib/kvmfleet",
    "var/lib/libvirt",
)
CARRY = f"""
systemctl -q stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd.service
mount /dev/vdb /mnt
cd /mnt
tar -cf /carried.tar $(ls -d {" ".join(CARRIED)} 2>/dev/null)
cd /
tar --numeric-owner -xpf /carried.tar
rm /carried.tar
umount /mnt
{warming.STEPS["login"]}
sync
"""


def upgrade(fleet: Fleet, machine: Machine, release: str) -> None:
    """Exchange the root disk of a host that is off for one of that release. The old disk is kept beside it.

    :raises UsageError: the machine is on, or is no host.
    :raises LabError: the state could not be carried over; then the machine has its old disk.
    """
    releases.checked(release)
    if not machine.is_host:
        raise UsageError(f"{machine.name} is not a host. Only hosts are upgraded: {', '.join(host.name for host in fleet.hosts)}.")
    if qemu.is_on(fleet, machine):
        raise UsageError(f"{machine.name} is on. Shut it down first: its root disk is exchanged while it is off.")
    require_room(fleet.cache, NEEDED_GIB)
    made, disk = image.ensure_image(fleet.cache, release), fleet.folder(machine) / "disk.qcow2"
    new = _carry(fleet, machine, made, disk)
    kept = disk.with_name(f"disk-{fleet.release(machine)}.qcow2")
    kept.unlink(missing_ok=True)
    kept.hardlink_to(disk)
    new.replace(disk)
    shutil.rmtree(new.parent)
    fleet.set_release(machine, release, made)


def _carry(fleet: Fleet, machine: Machine, made: pathlib.Path, old: pathlib.Path) -> pathlib.Path:
    """Return a new disk that has the state of the old one, which stays as it is."""
    folder = fleet.folder(machine) / "upgrade"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    qemu.create_disk(made / "disk.qcow2", folder / "disk.qcow2")
    # With a layer of its own, because a mount replays the journal.
    layer = folder / "old.qcow2"
    qemu.create_disk(old, layer)
    second = ("-drive", f"file={layer},if=none,id=old,format=qcow2", "-device", "virtio-blk-pci,drive=old")
    with alone.booted(folder, made, fleet.settings["accelerator"], machine.name, *second) as agent:
        done = agent.run("/bin/sh", "-ec", CARRY, timeout_seconds=600)
        if done.code:
            raise LabError(f"The state of {machine.name} could not be carried to its new disk: {done.err.strip()}. It still has its old disk.")
    return folder / "disk.qcow2"
