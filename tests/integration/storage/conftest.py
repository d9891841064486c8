# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts; guests with disks on one of them alone, and what both hosts have in their folders."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, fresh_lab

PREFIX = "storage"
IMAGES = "/var/lib/libvirt/images"
# Private to each host as well, but in no storage pool.
ELSEWHERE = "/var/lib/kvmfleet"
DISK_MIB = 48
WEB = f"{IMAGES}/web.qcow2"
_SECRET = "0e1b6d5c-2f0a-4d3e-9d47-5f2f0c6d0a11"


class Disks:
    """Images on the lab's hosts."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.made: list[str] = []

    def create(self, path: str, on: int = 1, image_format: str = "qcow2", mib: int = DISK_MIB, backing: str = "") -> str:
        """Make an image full of random bytes, or an empty one over a backing file."""
        self.made.append(path)
        if backing:
            self.lab.on(on, "qemu-img", "create", "-q", "-f", image_format, "-b", backing, "-F", "qcow2", path)
        else:
            self.lab.on(
                on, "sh", "-c", f"head -c {mib}M /dev/urandom > {path}.raw && qemu-img convert -f raw -O {image_format} {path}.raw {path} && rm {path}.raw"
            )
        return path

    def remake_over(self, path: str, backing: str, on: int) -> None:
        """Make an image anew, so that its times are those of now."""
        self.lab.on(on, "rm", path)
        self.create(path, on, backing=backing)

    def attach(self, guest: str, path: str, target: str = "vdb", image_format: str = "qcow2") -> None:
        self.lab.virsh(1, "attach-disk", guest, path, target, "--subdriver", image_format, "--persistent")

    def attach_encrypted(self, guest: str, path: str, target: str = "vdb") -> None:
        """Attach a new LUKS image, which opens with a secret of its host."""
        self.made.append(path)
        key = ("--object", "secret,id=key,data=locked", "-o", "key-secret=key,iter-time=10")
        self.lab.on(1, "qemu-img", "create", "-q", "-f", "luks", *key, path, f"{DISK_MIB}M")
        usage = f"<usage type='volume'><volume>{path}</volume></usage>"
        for number in (1, 2):
            self.lab("virsh", self.lab.host(number), "secret-define", "/dev/stdin", stdin=f"<secret><uuid>{_SECRET}</uuid>{usage}</secret>")
            self.lab.virsh(number, "secret-set-value", _SECRET, "bG9ja2Vk")
        source = f"<source file='{path}'><encryption format='luks'><secret type='passphrase' uuid='{_SECRET}'/></encryption></source>"
        disk = f"<disk type='file'><driver name='qemu' type='raw'/>{source}<target dev='{target}' bus='virtio'/></disk>"
        self.lab("virsh", self.lab.host(1), "attach-device", guest, "/dev/stdin", "--persistent", stdin=disk)

    def content(self, path: str, on: int, image_format: str = "qcow2") -> str:
        """Return a digest of what a guest sees in an image."""
        raw = f"/run/content-{on}.raw"
        command = f"qemu-img convert -U -f {image_format} -O raw {path} {raw} && sha256sum < {raw}; rm -f {raw}"
        return self.lab.on(on, "sh", "-c", command).split()[0]

    def size(self, path: str, on: int) -> int:
        return int(self.lab.on(on, "stat", "-c", "%s", path))

    def exists(self, path: str, on: int) -> bool:
        return self.lab.try_("exec", self.lab.host(on), "--", "test", "-e", path).returncode == 0

    def left(self) -> list[str]:
        """Return what of ours is in the hosts' folders and pools that a move should not leave there."""
        left = []
        for number in (1, 2):
            names = self.lab.on(number, "ls", "-A", IMAGES, ELSEWHERE).split()
            pools = self.lab.virsh(number, "pool-list", "--all", "--name").split()
            left += [name for name in (*names, *pools) if "kvmfleet-" in name]
        return left

    def remove(self) -> None:
        for number in (1, 2) if self.made else ():
            self.lab.on(number, "rm", "-f", *self.made)
            self.lab.try_("virsh", self.lab.host(number), "secret-undefine", _SECRET)
            self.lab.virsh(number, "pool-refresh", "default")


def check_refused(control: Control, name: str, *named: str, **options: t.Any) -> None:
    """Check that the move of a guest is C(unsafe) for the disks and files that are named, and that its record says that it was refused."""
    outcome = control.move(name, 2, transport="tcp", **options)
    assert outcome.refused() == "unsafe", outcome.text
    assert [one for one in named if one not in outcome.msg] == [], outcome.msg
    assert outcome.ended() == ("conflict", None)
    assert control.records()[-1] == outcome.record


def check_moves_as_unsafe(lab: Lab, control: Control, name: str, path: str) -> None:
    """Check that the refusal of a file or device is predicted, and that the guest moves on the operator's word."""
    assert lab.places(name) == {1: "running"}
    predicted = control.task(1, "scheduler_check", {"name": name, "destination": lab.host(2), "transport": "tcp"})
    assert path in predicted.warnings
    outcome = control.move(name, 2, transport="tcp", unsafe=True)
    assert outcome.ended() == ("completed", None), outcome.text
    assert lab.places(name) == {2: "running"}


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with fresh_lab(PREFIX, 2) as lab:
        yield lab


@pytest.fixture
def control(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[Control]:
    control = Control(lab, tmp_path)
    yield control
    control.verify_audit()


@pytest.fixture
def disks(lab: Lab) -> t.Iterator[Disks]:
    """Images, which are removed after the test; nothing else stays on a host."""
    disks = Disks(lab)
    yield disks
    left = disks.left()
    disks.remove()
    assert left == []


@pytest.fixture
def guest(lab: Lab, disks: Disks) -> t.Iterator[t.Callable[..., str]]:
    """Return a function that makes a guest; it is removed after the test, and before its disks."""
    names: list[str] = []

    def make(name: str, *options: str, on: int = 1) -> str:
        names.append(name)
        lab("guest", name, "--host", lab.host(on), *options)
        return name

    yield make
    for name in names:
        lab("rmguest", name)


@pytest.fixture
def web(guest: t.Callable[..., str], disks: Disks) -> str:
    """A guest with a disk of its own, full of random bytes, on the first host alone."""
    name = guest("web", "--mib", "64", "--dirty-mib", "16")
    disks.attach(name, disks.create(WEB))
    return name
