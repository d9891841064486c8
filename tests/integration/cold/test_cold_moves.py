# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cold moves: definitions with what belongs to them, memory that is saved and restored, and guests that are shut down."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
WRITER = ("--mib", "96", "--dirty-mib", "32", "--rate", "2000", "--integrity")
# SeaBIOS serves as firmware in flash memory as well, and needs no further package.
FIRMWARE = "/usr/share/seabios/bios-256k.bin"
VARIABLES = "/var/lib/libvirt/qemu/nvram"
MARK = "<metadata><note:owner xmlns:note='urn:example:note'>ann</note:owner></metadata>"


def move_cold(control: Control, name: str, method: str, *options: str, on: int = 1, to: int = 2, **arguments: t.Any) -> Outcome:
    given = {"name": name, "destination": control.lab.host(to), "method": method, **arguments}
    return control.task(on, "cold_migrate", given, *options)


def saved(lab: Lab) -> list[str]:
    """Return the files of saved memory in the folder that all hosts share."""
    return [path.name for path in lab.path(1, str(lab.layout.shared)).glob("kvmfleet-*")]


def add_variables(lab: Lab, name: str, content: str) -> str:
    """Give a guest that is off firmware variables of its own, and a mark of a person."""
    path = f"{VARIABLES}/{name}_VARS.fd"
    lab.on(1, "sh", "-c", f"mkdir -p {VARIABLES} && head -c 131072 /dev/zero > {path} && printf %s {content} | dd of={path} conv=notrunc status=none")
    system = f"<loader readonly='yes' type='pflash'>{FIRMWARE}</loader><nvram>{path}</nvram></os>"
    text = lab.virsh(1, "dumpxml", "--inactive", name).replace("</os>", f"{system}{MARK}")
    lab("virsh", lab.host(1), "define", "/dev/stdin", stdin=text)
    return path


def test_a_definition_moves_with_its_variables_metadata_and_autostart(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("archive", "--off", "--autostart")
    path = add_variables(lab, name, "first")
    predicted = move_cold(control, name, "offline", "--check")
    assert (predicted.changed, predicted.ended(), predicted.record["id"]) == (True, ("scheduled", None), None), predicted.text
    assert lab.places(name) == {1: "shut off"}
    moved = move_cold(control, name, "offline")
    assert (moved.code, moved.changed, moved.ended()) == (0, True, ("completed", None)), moved.text
    record = moved.record
    assert (record["type"], record["method"]) == ("cold-migration", "offline")
    assert lab.places(name) == {2: "shut off"}
    assert lab.info(name, 2)["Autostart"] == "enable"
    assert "urn:example:note" in lab.virsh(2, "dumpxml", "--inactive", name)
    assert lab.on(2, "head", "-c", "5", path) == "first"
    assert [(one["what"], one["path"], one["bytes"]) for one in record["cold"]["files"]] == [("nvram", path, 131072)]
    assert len(record["cold"]["kept"]) == 2
    for kept in record["cold"]["kept"]:
        assert lab.path(1, kept).is_file(), kept
    assert not lab.path(1, path).exists()
    again = move_cold(control, name, "offline")
    assert (again.code, again.changed, again.record["id"]) == (0, False, record["id"]), again.text
    back = move_cold(control, name, "offline", on=2, to=1)
    assert back.ended() == ("completed", None), back.text
    assert (lab.places(name), lab.info(name, 1)["Autostart"]) == ({1: "shut off"}, "enable")
    assert lab.on(1, "head", "-c", "5", path) == "first"


def test_variables_in_qcow2_arrive_as_they_were(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("flash", "--off")
    path = add_variables(lab, name, "any")
    # The format of Fedora's firmware. A later libvirt names it in the definition.
    lab.on(1, "qemu-img", "create", "-q", "-f", "qcow2", path, "540672")
    lab.on(1, "qemu-io", "-f", "qcow2", "-c", "write -P 7 0 65536", path)
    before = lab.on(1, "sha256sum", path).split()[0]
    lab.on(2, "sh", "-c", f"mkdir -p {VARIABLES} && qemu-img create -q -f qcow2 {path} 1048576")
    other = lab.on(2, "sha256sum", path).split()[0]
    moved = move_cold(control, name, "offline")
    assert moved.ended() == ("completed", None), moved.text
    assert (lab.places(name), lab.on(2, "sha256sum", path).split()[0]) == ({2: "shut off"}, before)
    assert lab.on(2, "sh", "-c", f"sha256sum {path}.before-*").split()[0] == other


def test_memory_is_saved_and_restored_without_a_loss(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("busy", *WRITER)
    before = lab.check(name)
    assert move_cold(control, name, "save", "--check", save_folder=str(lab.layout.shared)).changed
    moved = move_cold(control, name, "save", save_folder=str(lab.layout.shared))
    assert (moved.code, moved.changed, moved.ended()) == (0, True, ("completed", None)), moved.text
    assert lab.places(name) == {2: "running"}
    after = lab.check(name)
    assert after["intact"]
    assert after["increments"] > before["increments"]
    assert saved(lab) == []
    assert 0 < moved.record["result"]["downtime_ms"] <= moved.record["result"]["elapsed_ms"]
    acts = [act["act"] for act in moved.record["acts"]]
    assert acts == ["define", "save", "copy_files", "restore", "spend_image", "resume", "undefine_source", "remove_image", "keep_files"]


def memory_files(lab: Lab, index: int) -> list[str]:
    """Return the files next to the managed-save images of a host."""
    return [path.name for path in lab.path(index, "/var/lib/libvirt/qemu/save").iterdir() if path.suffix in (".save", ".memory")]


@pytest.mark.long
def test_a_managed_save_image_crosses_and_resumes_at_the_destination(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("asleep", *WRITER, "--autostart")
    before = lab.check(name)
    lab.virsh(1, "managedsave", name)
    assert move_cold(control, name, "offline", "--check").changed
    moved = move_cold(control, name, "offline")
    assert (moved.code, moved.changed, moved.ended()) == (0, True, ("completed", None)), moved.text
    assert (lab.places(name), lab.info(name, 2)["Autostart"], lab.info(name, 2)["Managed save"]) == ({2: "shut off"}, "enable", "yes")
    assert (memory_files(lab, 1), memory_files(lab, 2)) == ([], [f"{name}.save"])
    crossing = ["hold_image", "start_paused", "move_live", "save_at_destination"]
    assert [act["act"] for act in moved.record["acts"]] == ["define", "hold_autostart", *crossing, "undefine_source", "autostart", "remove_image", "keep_files"]
    assert moved.record["cold"]["resumes_as"] == "running"
    # Its first start continues where it was saved, and not from its disks.
    lab.virsh(2, "start", name)
    assert lab.places(name) == {2: "running"}
    after = lab.check(name)
    assert after["intact"]
    assert after["increments"] >= before["increments"]


@pytest.mark.long
def test_a_guest_that_was_paused_before_its_managed_save_resumes_paused(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("asleep", *WRITER)
    lab.virsh(1, "managedsave", name, "--paused")
    assert move_cold(control, name, "offline").ended() == ("completed", None)
    lab.virsh(2, "start", name)
    assert lab.places(name) == {2: "paused"}


@pytest.mark.long
def test_memory_that_is_left_at_the_destination_is_named(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("archive", "--off")
    left = lab.path(2, f"/var/lib/libvirt/qemu/save/{name}.save")
    left.write_bytes(b"memory of a domain that had this name")
    refused = move_cold(control, name, "offline")
    left.unlink()
    assert (refused.result["error_code"], refused.ended()) == ("unsafe", ("failed", None)), refused.text
    assert lab.places(name) == {1: "shut off"}


@pytest.mark.long
def test_a_paused_guest_stays_paused(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("halted", *WRITER, "--paused")
    moved = move_cold(control, name, "save", save_folder=str(lab.layout.shared))
    assert moved.ended() == ("completed", None), moved.text
    assert (lab.places(name), saved(lab)) == ({2: "paused"}, [])


def test_a_guest_is_shut_down_and_started_at_the_destination(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("polite", "--acpi", "--autostart")
    moved = move_cold(control, name, "shutdown", start=True, shutdown_wait_seconds=60)
    assert (moved.code, moved.changed, moved.ended()) == (0, True, ("completed", None)), moved.text
    assert (lab.places(name), lab.info(name, 2)["Autostart"]) == ({2: "running"}, "enable")


@pytest.mark.long
def test_a_guest_that_does_not_shut_down_stays(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("deaf", "--autostart")
    refused = move_cold(control, name, "shutdown", shutdown_wait_seconds=2)
    assert (refused.code != 0, refused.result["error_code"], refused.ended()) == (True, "timeout", ("failed", None)), refused.text
    assert (lab.places(name), lab.info(name, 1)["Autostart"]) == ({1: "running"}, "enable")


@pytest.mark.long
def test_the_state_of_a_tpm_moves_with_a_guest_that_has_run(lab: Lab, control: Control, guest: Make) -> None:
    name = guest("sealed", "--off", "--acpi")
    tpm = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm></devices>"
    lab("virsh", lab.host(1), "define", "/dev/stdin", stdin=lab.virsh(1, "dumpxml", "--inactive", name).replace("</devices>", tpm))
    lab.virsh(1, "start", name)
    state = f"/var/lib/libvirt/swtpm/{lab.uuid(name)}/tpm2/tpm2-00.permall"
    before = lab.on(1, "sha256sum", state).split()[0]
    moved = move_cold(control, name, "shutdown", start=True, shutdown_wait_seconds=60)
    assert moved.ended() == ("completed", None), moved.text
    (copied,) = moved.record["cold"]["files"]
    assert (copied["what"], copied["path"]) == ("tpm", state)
    assert lab.places(name) == {2: "running"}
    # The TPM of the started guest goes on from the state that was copied.
    assert lab.on(2, "stat", "-c", "%s", state).strip() == str(copied["bytes"])
    assert before
    assert lab.path(1, moved.record["cold"]["kept"][1]).is_file()
