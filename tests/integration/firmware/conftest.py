# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that lack programs and files for a while, and guests whose disks are written to and backed up."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Hide = t.Callable[[int, str], None]
MIB = 1024**2
BLOCK = 64 * 1024
# The disk, as QEMU names the device of the guest.
DEVICE = "/machine/peripheral/virtio-disk0/virtio-backend"
SAVED = "/var/lib/libvirt/images/saved.qcow2"
BACKUP = """\
<domainbackup mode='{mode}'>{incremental}{server}<disks><disk name='vda' type='file'{of_disk}>{target}<driver type='qcow2'/></disk></disks></domainbackup>
"""


@pytest.fixture
def control_type() -> type[Desk]:
    return Desk


@pytest.fixture
def hidden(lab: Lab) -> t.Iterator[Hide]:
    """Return a function that hides a folder or file of a host behind an empty one; it is there again after the test."""
    done: list[tuple[int, str]] = []

    def hide(number: int, path: str) -> None:
        lab.on(number, "sh", "-c", f"mkdir -p /run/none; : > /run/empty; mount --bind $(test -d {path} && echo /run/none || echo /run/empty) {path}")
        done.append((number, path))

    yield hide
    for number, path in reversed(done):
        lab.on(number, "umount", path)


class Backups:
    """Checkpoints and backups of the disk of a guest, and what is written to it meanwhile."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name

    def checkpoint(self, on: int, name: str) -> None:
        self.lab.virsh(on, "checkpoint-create-as", self.name, name)

    def checkpoints(self, on: int) -> list[str]:
        return self.lab.virsh(on, "checkpoint-list", self.name, "--name", "--topological").split()

    def write(self, on: int, mib: int) -> None:
        """Write a block at that position, as the guest would."""
        said = self.lab.virsh(on, "qemu-monitor-command", self.name, "--hmp", f'qemu-io -d {DEVICE} "write -P 0x5a {mib}M {BLOCK}"')
        assert not said.strip(), said

    def changed_since(self, on: int, checkpoint: str) -> list[int]:
        """Make an incremental backup; return the positions in MiB of the blocks that are in it."""
        xml = BACKUP.format(
            mode="push",
            incremental=f"<incremental>{checkpoint}</incremental>",
            server="",
            of_disk=f" backup='yes' backupmode='incremental' incremental='{checkpoint}'",
            target=f"<target file='{SAVED}'/>",
        )
        self.lab("virsh", self.lab.host(on), "backup-begin", self.name, "/dev/stdin", stdin=xml)
        eventually(lambda: "None" in self.lab.virsh(on, "domjobinfo", self.name).splitlines()[0], "the backup has ended")
        pieces = json.loads(self.lab.on(on, "qemu-img", "map", "-U", "--output", "json", SAVED))
        self.lab.on(on, "rm", SAVED)
        blocks = [piece for piece in pieces if piece["depth"] == 0 and piece["data"]]
        assert [piece["length"] for piece in blocks] == [BLOCK] * len(blocks)
        return [piece["start"] // MIB for piece in blocks]

    def begin(self, on: int) -> None:
        """Begin a backup that lasts until it is ended: somebody may read it."""
        xml = "<domainbackup mode='pull'><server transport='unix' socket='/run/backup.sock'/></domainbackup>"
        self.lab("virsh", self.lab.host(on), "backup-begin", self.name, "/dev/stdin", stdin=xml)

    def end(self, on: int) -> None:
        self.lab.virsh(on, "domjobabort", self.name)


@pytest.fixture
def backups(lab: Lab, guest: t.Callable[..., str]) -> Backups:
    """A guest with a disk that all hosts see."""
    return Backups(lab, guest("saved", "--mib", "48", "--storage", "bindfs"))
