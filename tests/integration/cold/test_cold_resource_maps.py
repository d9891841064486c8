# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cold moves between hosts that call a bridge, a folder of images, CPUs and a console address by other names, and the way home."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.host_names import (
    BRIDGE,
    FOLDER,
    Make,
    give_maps,
    make_named,
    maps_of,
    names_in,
)

FIRMWARE = "/usr/share/seabios/bios-256k.bin"


@pytest.fixture
def other_names(lab: Lab, control: Control, other_names: None) -> None:
    """Give the control node the maps of both hosts, too."""
    give_maps(control, maps_of(lab))


def move_cold(control: Control, name: str, method: str, to: int, *options: str, **arguments: t.Any) -> Outcome:
    return control.task(3 - to, "cold_migrate", {"name": name, "destination": control.lab.host(to), "method": method, **arguments}, *options)


def expected_names(lab: Lab, name: str, number: int) -> dict[str, str]:
    folder, bridge, cpu = (FOLDER, BRIDGE, "1") if number == 2 else (str(lab.layout.gluster), "br0", "0")
    address = lab.layout.host_address(lab.host(number))
    return {"bridge": bridge, "image": f"{folder}/{name}.qcow2", "cpu": cpu, "graphics": address, "listen": address}


@pytest.mark.long
def test_a_definition_gets_the_names_of_each_host_with_its_variables(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    name = make_named(lab, guest, "named")
    lab.virsh(1, "destroy", name)
    own, there = f"{lab.layout.gluster}/{name}_VARS.fd", f"{FOLDER}/{name}_VARS.fd"
    lab.on(1, "sh", "-c", f"head -c 131072 /dev/zero > {own}")
    system = f"<loader readonly='yes' type='pflash'>{FIRMWARE}</loader><nvram>{own}</nvram></os>"
    lab("virsh", lab.host(1), "define", "/dev/stdin", stdin=lab.virsh(1, "dumpxml", "--inactive", name).replace("</os>", system))
    before = lab.virsh(1, "dumpxml", "--inactive", name)
    foreseen = move_cold(control, name, "offline", 2, "--check", "--diff")
    assert f"+{name}: devices[1]/interface[1]/source[1]/@bridge: {BRIDGE}" in foreseen.text, foreseen.text
    moved = move_cold(control, name, "offline", 2)
    assert moved.ended() == ("completed", None), moved.text
    assert moved.record["rewritten"] == foreseen.record["rewritten"]
    definition = lab.virsh(2, "dumpxml", "--inactive", name)
    assert (names_in(definition), f"{there}</nvram>" in definition) == (expected_names(lab, name, 2), True)
    assert lab.places(name) == {2: "shut off"}
    home = move_cold(control, name, "offline", 1)
    assert home.ended() == ("completed", None), home.text
    assert (lab.places(name), lab.virsh(1, "dumpxml", "--inactive", name)) == ({1: "shut off"}, before)
    lab.virsh(1, "start", name)


@pytest.mark.long
def test_a_managed_save_image_gets_the_names_of_each_host(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    name = guest("asleep", "--bridge", "br0", "--mib", "64")
    for to, bridge in ((2, BRIDGE), (1, "br0")):
        lab.virsh(3 - to, "managedsave", name)
        moved = move_cold(control, name, "offline", to)
        assert moved.ended() == ("completed", None), moved.text
        assert "move_live" in [act["act"] for act in moved.record["acts"]]
        assert f"bridge='{bridge}'" in lab.virsh(to, "managedsave-dumpxml", name)
        lab.virsh(to, "start", name)
        assert lab.places(name) == {to: "running"}
        for definition in (lab.virsh(to, "dumpxml", name), lab.virsh(to, "dumpxml", "--inactive", name)):
            assert f"bridge='{bridge}'" in definition


@pytest.mark.long
def test_a_managed_save_image_of_a_guest_with_a_disk_moves_by_the_method_save(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    name = make_named(lab, guest, "asleep")
    lab.virsh(1, "managedsave", name)
    refused = move_cold(control, name, "offline", 2)
    assert (refused.refused(), lab.places(name)) == ("not_supported", {1: "shut off"}), refused.text
    assert "has a managed-save image and a disk" in refused.msg
    lab.virsh(1, "start", "--paused", name)
    moved = move_cold(control, name, "save", 2, save_folder=str(lab.layout.shared))
    assert moved.ended() == ("completed", None), moved.text
    lab.virsh(2, "resume", name)
    assert (lab.places(name), names_in(lab.virsh(2, "dumpxml", name))) == ({2: "running"}, expected_names(lab, name, 2))


@pytest.mark.long
def test_saved_memory_is_restored_with_the_names_of_each_host(lab: Lab, control: Control, other_names: None, guest: Make) -> None:
    name = make_named(lab, guest, "saved")
    before = lab.virsh(1, "dumpxml", "--inactive", name)
    for to in (2, 1):
        moved = move_cold(control, name, "save", to, save_folder=str(lab.layout.shared))
        assert moved.ended() == ("completed", None), moved.text
        assert lab.places(name) == {to: "running"}
        for definition in (lab.virsh(to, "dumpxml", name), lab.virsh(to, "dumpxml", "--inactive", name)):
            assert names_in(definition) == expected_names(lab, name, to)
    assert lab.virsh(1, "dumpxml", "--inactive", name) == before
