# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block devices of one host, which libvirt takes for shared, and boot files that the destination does not have: the move is refused before it begins."""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS, Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, forget_collection

from .conftest import ELSEWHERE, IMAGES, Disks, check_moves_as_unsafe, check_refused

FIRMWARE = f"{IMAGES}/bios.bin"
VARIABLES = f"{ELSEWHERE}/variables"
# Any flash image will do: QEMU boots SeaBIOS and never reads the second one.
FLASH = f"<loader readonly='yes' type='pflash'>{FIRMWARE}</loader><nvram template='{FIRMWARE}'>{VARIABLES}/web.fd</nvram>"
SEABIOS = "/usr/share/seabios/bios-256k.bin"
HOSTS = (1, 2)
# Where udev names devices.
UDEV = "/dev/disk"
Make = t.Callable[..., str]
Identify = t.Callable[[int, str], None]


@pytest.fixture
def device(tmp_path: pathlib.Path) -> t.Iterator[str]:
    """A block device without an identity. All hosts of the lab have it, because they share one kernel, but nothing shows that."""
    image = tmp_path / "device.raw"
    with image.open("wb") as stream:
        stream.truncate(16 * 1024**2)
    path = subprocess.run(["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    yield path
    subprocess.run(["losetup", "--detach", path], check=True, timeout=60)


@pytest.mark.long
def test_a_block_device_not_proved_on_the_destination_is_unsafe(lab: Lab, control: Control, guest: Make, device: str) -> None:
    name = guest("web", "--mib", "64", "--storage", "nbd")
    lab.virsh(1, "attach-disk", name, device, "vdb", "--sourcetype", "block", "--subdriver", "raw", "--persistent")
    check_refused(control, name, device, "vdb")
    check_moves_as_unsafe(lab, control, name, device)


@pytest.fixture
def identify(lab: Lab, device: str) -> t.Iterator[Identify]:
    """Return a function that names the device on a host as udev names a logical volume. Afterwards the hosts belong to no ledger."""
    is_made = not pathlib.Path(UDEV).exists()
    pathlib.Path(UDEV).mkdir(exist_ok=True)
    for number in HOSTS:
        # The hosts have one /dev: what udev says is to be each host's own.
        lab.on(number, "mount", "-t", "tmpfs", "udev", UDEV)
        lab.on(number, "mkdir", f"{UDEV}/by-id")

    def name_device(number: int, identity: str) -> None:
        lab.on(number, "sh", "-c", f"rm -f {UDEV}/by-id/* && ln -s {device} {UDEV}/by-id/dm-uuid-LVM-{identity}")

    yield name_device
    for number in HOSTS:
        lab.on(number, "umount", UDEV)
    if is_made:
        pathlib.Path(UDEV).rmdir()
    forget_collection(lab, len(HOSTS))


def protect_hosts(control: Control) -> None:
    for number in HOSTS:
        protected = control.task(number, "protect", {})
        assert protected.code == 0, protected.text


@pytest.mark.long
def test_a_block_device_that_protect_found_on_both_hosts_moves(lab: Lab, control: Control, guest: Make, device: str, identify: Identify) -> None:
    name = guest("web", "--mib", "64", "--storage", "nbd")
    lab.virsh(1, "attach-disk", name, device, "vdb", "--sourcetype", "block", "--subdriver", "raw", "--persistent")
    for number in HOSTS:
        identify(number, "volume1")
    # Both have it, and nobody has compared them yet.
    assert control.move(name, 2, transport="tcp").refused() == "unsafe"

    protect_hosts(control)
    moved = control.move(name, 2, transport="tcp")
    assert moved.ended() == ("completed", None), moved.text
    assert "disk vdb" not in moved.warnings
    assert lab.places(name) == {2: "running"}

    # The other host has not reported the device for the guest yet, and the guest can return nevertheless.
    returned = control.task(2, "live_migrate", {"name": name, "destination": lab.host(1), "transport": "tcp"})
    assert returned.ended() == ("completed", None), returned.text
    assert lab.places(name) == {1: "running"}


@pytest.mark.long
def test_a_device_behind_a_link_moves_in_the_boot_in_which_protect_found_it(
    lab: Lab, control: Control, guest: Make, device: str, identify: Identify, tmp_path: pathlib.Path
) -> None:
    """A person's link may lead to /dev/sdb, which is another device after the next boot."""
    name, link = guest("web", "--mib", "64", "--storage", "nbd"), tmp_path / "data"
    link.symlink_to(device)
    lab.virsh(1, "attach-disk", name, str(link), "vdb", "--sourcetype", "block", "--subdriver", "raw", "--persistent")
    for number in HOSTS:
        identify(number, "volume1")
    protect_hosts(control)
    refused = control.move(name, 2, transport="tcp")
    assert refused.refused() == "unsafe"
    assert f"For {link}, that counts until {lab.host(2)} boots again" in refused.msg
    process = control.popen(control.playbook_command("migrate", {"domain": name, "destination": lab.host(2), "migrate_options": {"transport": "tcp"}}))
    text, dummy = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, text
    assert lab.places(name) == {2: "running"}


@pytest.mark.long
def test_a_different_block_device_at_the_same_path_is_unsafe(lab: Lab, control: Control, guest: Make, device: str, identify: Identify) -> None:
    name = guest("web", "--mib", "64", "--storage", "nbd")
    lab.virsh(1, "attach-disk", name, device, "vdb", "--sourcetype", "block", "--subdriver", "raw", "--persistent")
    identify(1, "volume1")
    identify(2, "volume2")
    protect_hosts(control)
    outcome = control.move(name, 2, transport="tcp")
    assert outcome.refused() == "unsafe", outcome.text
    assert device in outcome.msg
    assert control.only_record() == outcome.record
    assert outcome.ended() == ("conflict", None)
    assert lab.places(name) == {1: "running"}

    # The source has it under another identity since: what was seen of the one before proves nothing.
    identify(2, "volume1")
    protect_hosts(control)
    identify(1, "volume3")
    assert control.move(name, 2, transport="tcp").refused() == "unsafe"
    assert lab.places(name) == {1: "running"}


@pytest.mark.long
def test_a_device_of_a_san_moves_without_protect(lab: Lab, control: Control, guest: Make, device: str, identify: Identify) -> None:
    name = guest("web", "--mib", "64", "--storage", "nbd")
    path = f"{UDEV}/by-id/dm-uuid-mpath-360014"
    for number in HOSTS:
        identify(number, "unused")
        lab.on(number, "ln", "-s", device, path)
    lab.virsh(1, "attach-disk", name, path, "vdb", "--sourcetype", "block", "--subdriver", "raw", "--persistent")
    (moved,) = control.play(1, [("live_migrate", {"name": name, "destination": lab.host(2), "transport": "tcp"})], facts=True)
    assert not moved.get("failed"), moved
    assert lab.places(name) == {2: "running"}


def boot_with(lab: Lab, name: str, firmware: str) -> None:
    """Start a guest anew with these elements of C(os)."""
    lab.virsh(1, "destroy", name)
    lab.on(1, "sh", "-c", f'virsh dumpxml --inactive {name} | sed "s|</os>|{firmware}</os>|" >/run/web.xml && virsh define /run/web.xml')
    lab.virsh(1, "start", name)


@pytest.mark.long
def test_a_destination_without_the_firmware_is_refused(lab: Lab, control: Control, guest: Make, disks: Disks) -> None:
    name = guest("web", "--mib", "64", "--storage", "nbd")
    disks.made.append(FIRMWARE)
    lab.on(1, "cp", SEABIOS, FIRMWARE)
    boot_with(lab, name, f"<loader type='rom'>{FIRMWARE}</loader>")

    outcome = control.move(name, 2, transport="tcp")
    assert outcome.refused() == "conflict", outcome.text
    assert f"The firmware {FIRMWARE} is not there" in outcome.msg
    assert outcome.ended()[0] == "conflict"
    assert lab.places(name) == {1: "running"}

    lab.on(2, "cp", SEABIOS, FIRMWARE)
    moved = control.move(name, 2, transport="tcp")
    assert moved.ended() == ("completed", None), moved.text
    assert lab.places(name) == {2: "running"}


@pytest.fixture
def variables(lab: Lab) -> t.Iterator[str]:
    """A folder for firmware variables, on the first host alone."""
    lab.on(1, "mkdir", "-p", VARIABLES)
    yield VARIABLES
    for number in (1, 2):
        lab.on(number, "rm", "-rf", VARIABLES)


@pytest.mark.long
def test_a_destination_without_the_folder_of_firmware_variables_is_refused(lab: Lab, control: Control, guest: Make, disks: Disks, variables: str) -> None:
    name = guest("web", "--mib", "64", "--storage", "nbd")
    disks.made.append(FIRMWARE)
    for number in (1, 2):
        lab.on(number, "cp", SEABIOS, FIRMWARE)
    boot_with(lab, name, FLASH)

    outcome = control.move(name, 2, transport="tcp")
    assert outcome.refused() == "conflict", outcome.text
    assert f"The folder {variables}" in outcome.msg
    assert lab.places(name) == {1: "running"}

    lab.on(2, "mkdir", variables)
    moved = control.move(name, 2, transport="tcp")
    assert moved.ended() == ("completed", None), moved.text
    assert lab.places(name) == {2: "running"}
