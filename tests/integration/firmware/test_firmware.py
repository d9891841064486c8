# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests with UEFI firmware and an emulated TPM: they move with their variables and their TPM, and a host that lacks one of these is refused before booking."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.firmware.conftest import Hide
from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, verdict
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

Make = t.Callable[..., str]
FIRMWARE, TPM = "/usr/share/OVMF", "/usr/bin/swtpm"
TEMPLATE = f"{FIRMWARE}/OVMF_VARS_4M.fd"
RENAMED = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
EFI = ("--mib", "128", "--firmware", "efi", "--tpm")


def variables_of(name: str) -> str:
    return f"/var/lib/libvirt/qemu/nvram/{name}_VARS.fd"


def digest(lab: Lab, on: int, path: str) -> str:
    return lab.on(on, "sha256sum", path).split()[0]


def settled_variables(lab: Lab, name: str) -> str:
    """Wait until the firmware has written variables of its own, and writes no more; return their digest."""
    template, seen = digest(lab, 1, TEMPLATE), [""]

    def is_settled() -> bool:
        seen.append(digest(lab, 1, variables_of(name)))
        return seen[-1] != template and seen[-8:] == [seen[-1]] * 8

    eventually(is_settled, "the firmware has written its variables")
    return seen[-1]


def tpm_digest(lab: Lab, on: int, uuid: str) -> str:
    return digest(lab, on, f"/var/lib/libvirt/swtpm/{uuid}/tpm2/tpm2-00.permall")


def refusals(control: Desk, name: str, number: int) -> list[tuple[str, str]]:
    """Return filter and reason of what C(scheduler_check) says against a host."""
    found = control.check(number, name=name)
    return [(one["filter"], one["reason"]) for one in verdict(found.result, control.lab.host(number))["failures"]]


def test_a_guest_takes_its_firmware_variables_and_its_tpm_along(lab: Lab, control: Desk, guest: Make) -> None:
    name = guest("uefi", *EFI)
    uuid = lab.uuid(name)
    before = settled_variables(lab, name), tpm_digest(lab, 1, uuid)
    done = control.move(name, 2, transport="tcp")
    assert done.ended() == ("completed", None), done.text
    assert lab.places(name) == {2: "running"}
    assert (digest(lab, 2, variables_of(name)), tpm_digest(lab, 2, uuid)) == before
    home = control.task(2, "live_migrate", {"name": name, "destination": lab.host(1), "transport": "tcp"})
    assert home.ended() == ("completed", None), home.text
    assert (digest(lab, 1, variables_of(name)), tpm_digest(lab, 1, uuid)) == before


@pytest.mark.long
def test_a_host_without_the_firmware_or_without_a_tpm_is_refused_before_booking(lab: Lab, control: Desk, guest: Make, hidden: Hide) -> None:
    name = guest("bare", *EFI)
    hidden(2, FIRMWARE)
    hidden(3, TPM)
    no_firmware, no_tpm = control.move(name, 2, transport="tcp"), control.move(name, 3, transport="tcp")
    assert (no_firmware.refused(), no_tpm.refused()) == ("conflict", "conflict")
    assert f"The firmware {FIRMWARE}/OVMF_CODE_4M.fd is not there." in no_firmware.msg
    assert f"The template {TEMPLATE} of its firmware variables is not installed there." in no_firmware.msg
    assert f"It cannot emulate the TPM of {name}: swtpm is not installed there." in no_tpm.msg
    assert [[line["status"] for line in record["history"]] for record in control.records()] == [["accepted", "conflict"]] * 2
    assert lab.places(name) == {1: "running"}


@pytest.mark.long
def test_no_force_moves_a_guest_to_a_host_that_cannot_emulate_its_tpm(lab: Lab, control: Desk, guest: Make, hidden: Hide) -> None:
    name = guest("uefi", *EFI)
    hidden(2, TPM)
    assert control.move(name, 2, transport="tcp", force=True).refused() == "conflict"
    assert lab.places(name) == {1: "running"}


@pytest.mark.long
def test_a_guest_that_demands_secure_boot_needs_a_host_that_has_it(lab: Lab, control: Desk, guest: Make, hidden: Hide) -> None:
    name = guest("sealed", "--mib", "128", "--firmware", "secure")
    hidden(2, "/usr/share/qemu/firmware")
    assert refusals(control, name, 2) == [("firmware", f"It has no firmware that enforces secure boot, which {name} demands.")]
    assert refusals(control, name, 3) == []
    done = control.move(name, 3, transport="tcp")
    assert done.ended() == ("completed", None), done.text


@pytest.mark.long
def test_only_the_template_of_the_variables_is_missing(lab: Lab, control: Desk, guest: Make, hidden: Hide) -> None:
    name = guest("untemplated", *EFI)
    hidden(2, TEMPLATE)
    lab.on(2, "sh", "-c", f"mkdir -p /run/fw; cp {FIRMWARE}/OVMF_CODE_4M* /run/fw; mount --bind /run/fw {FIRMWARE}")
    try:
        assert refusals(control, name, 2) == [("firmware", f"The template {TEMPLATE} of its firmware variables is not installed there.")]
        # As after an earlier visit: then libvirt needs no template.
        lab.on(2, "sh", "-c", f"mkdir -p /var/lib/libvirt/qemu/nvram; cp /run/fw/OVMF_CODE_4M.fd {variables_of(name)}")
        lab.on(2, "truncate", "-s", lab.on(1, "stat", "-c", "%s", variables_of(name)).strip(), variables_of(name))
        assert refusals(control, name, 2) == []
    finally:
        lab.on(2, "umount", FIRMWARE)


@pytest.mark.long
def test_a_guest_does_not_arrive_in_the_variables_of_a_renamed_domain(lab: Lab, control: Desk, guest: Make) -> None:
    """Without this check, libvirt moves the guest, and the other domain has the guest's variables from then on."""
    name = guest("uefi", *EFI)
    settled_variables(lab, name)
    renamed = lab.virsh(1, "dumpxml", "--inactive", name).replace(f"<name>{name}</name>", "<name>renamed</name>").replace(lab.uuid(name), RENAMED)
    lab.on(2, "sh", "-c", f"mkdir -p /var/lib/libvirt/qemu/nvram; cp {TEMPLATE} {variables_of(name)}")
    lab("virsh", lab.host(2), "define", "/dev/stdin", stdin=renamed)
    try:
        reason = f"The firmware variables of domain renamed ({RENAMED}) on {lab.host(2)} are in {variables_of(name)}, which {name} would overwrite."
        assert refusals(control, name, 2) == [("firmware", reason)]
        moved = control.move(name, 2, transport="tcp", force=True)
        assert (moved.refused(), reason in moved.msg) == ("conflict", True), moved.text
        assert digest(lab, 2, variables_of(name)) == digest(lab, 1, TEMPLATE)
    finally:
        lab.virsh(2, "undefine", "renamed", "--nvram", "--tpm")


@pytest.mark.long
def test_a_drain_and_the_matrix_of_the_fleet_know_what_hosts_lack(lab: Lab, control: Desk, guest: Make, hidden: Hide) -> None:
    name = guest("stuck", *EFI)
    hidden(2, FIRMWARE)
    hidden(3, TPM)
    process = control.popen(control.playbook_command("fleet_check", {"fleet_check_ignore": ["protection"]}))
    text = " ".join(process.communicate(timeout=300)[0].split())
    assert process.returncode == 2, text
    assert f"cannot be lost alone: {lab.host(1)}" in text
    assert f"{name}: 1 of 3 hosts" in text
    assert f"blocked on {lab.host(2)} by firmware: The firmware {FIRMWARE}/OVMF_CODE_4M.fd is not installed there." in text
    assert f"blocked on {lab.host(3)} by tpm: It cannot emulate the TPM of" in text
    dummy, planned = control.drain(1, drain_host_plan_only=True)
    assert "swtpm is not installed there" in " ".join(planned.split())
    assert lab.places(name) == {1: "running"}
