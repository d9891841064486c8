# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a guest with Linux says of its memory. It boots from the disk of a machine, on a host of the lab of namespaces: in a machine it would take too long."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, fresh_lab
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually

GUEST, MIB = "linux", 512
DISK = "/var/lib/libvirt/images/linux.qcow2"
DOMAIN = f"""
<domain type='qemu'>
  <name>{GUEST}</name>
  <memory unit='MiB'>{MIB}</memory>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{{image}}/vmlinuz</kernel>
    <initrd>{{image}}/initrd</initrd>
    <cmdline>root=/dev/vda rw console=ttyS0 mitigations=off panic=-1</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{DISK}'/><target dev='vda' bus='virtio'/></disk>
    <serial type='pty'/>
    <memballoon model='virtio'><stats period='5'/></memballoon>
  </devices>
</domain>
"""


@pytest.fixture
def lab() -> t.Iterator[Lab]:
    with fresh_lab(f"{os.environ.get('KVMFLEET_LAB_PREFIX', 'kvm')}lg", 1) as lab:
        yield lab


def test_what_a_linux_guest_says_of_its_memory_counts_as_long_as_it_is_recent(fleet: Machines, lab: Lab, tmp_path: pathlib.Path) -> None:
    control = Control(lab, tmp_path)
    image = fleet.fleet.image(fleet.fleet.require_machine(fleet.host(1)))
    lab.on(1, "qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image / "disk.qcow2"), "-F", "qcow2", DISK)
    lab("virsh", lab.host(1), "define", "/dev/stdin", stdin=DOMAIN.format(image=image))
    lab.virsh(1, "start", GUEST)

    def read_load() -> dict[str, t.Any]:
        (domain,) = control.facts(load_seconds=60)["domains"]
        return t.cast("dict[str, t.Any]", domain["load"])

    assert "available_in_guest_mib" in read_load()["unknown"], "a guest that boots has not said anything"
    available = eventually(lambda: read_load()["available_in_guest_mib"], "the guest has booted")
    assert 0 < available < MIB
    assert "available_in_guest_mib" not in read_load()["unknown"]

    lab.virsh(1, "suspend", GUEST)
    eventually(lambda: read_load()["available_in_guest_mib"] is None, "what it said is too old")
    assert "available_in_guest_mib" in read_load()["unknown"]
    lab.virsh(1, "resume", GUEST)
    eventually(lambda: read_load()["available_in_guest_mib"], "it says it again")
