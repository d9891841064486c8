# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import check_host
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import fleet, host, judge_with, request

CODE, VARS = "/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"
NVRAM = "/var/lib/libvirt/qemu/nvram/web1_VARS.fd"
EFI = {"loader": CODE, "nvram": NVRAM, "nvram_template": VARS}
FILES = {"/usr/share/OVMF": ["OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"], "/usr/share/edk2": []}
KNOWN = {"loaders": [CODE], "secure_boot": True, "tpm_backends": ["passthrough", "emulator"], "tpm_models": ["tpm-tis", "tpm-crb"], "tpm_versions": ["2.0"]}


def platforms(**firmware: t.Any) -> list[dict[str, t.Any]]:
    """Return the platform of the guests, with firmware as given."""
    return [{"arch": "x86_64", "virt_type": "kvm", "machines": ["pc-q35-7.2"], "firmware": {**KNOWN, **firmware}}]


def test_a_host_with_the_firmware_and_its_variables_passes_without_a_warning() -> None:
    finding = judge_with("firmware", request(**EFI), host(platforms=platforms(), firmware_files=FILES))
    assert (finding.reason, finding.warnings) == (None, ())


@pytest.mark.parametrize(
    ("needs", "facts", "reason"),
    [
        ({}, {"firmware_files": {"/usr/share/OVMF": ["OVMF_VARS_4M.fd"]}}, f"The firmware {CODE} is not installed there."),
        ({}, {"firmware_files": {"/usr/share/OVMF": ["OVMF_CODE_4M.fd"]}}, f"The template {VARS} of its firmware variables is not installed there."),
        (
            {},
            {"firmware_files": {"/usr/share/OVMF": []}},
            f"The firmware {CODE} is not installed there. The template {VARS} of its firmware variables is not installed there.",
        ),
        (
            {"loader": "/usr/share/edk2/x64/OVMF_CODE.fd", "nvram_template": None},
            {"firmware_files": FILES},
            "The firmware /usr/share/edk2/x64/OVMF_CODE.fd is not installed there.",
        ),
    ],
    ids=["no firmware", "no template", "neither", "no folder"],
)
def test_firmware_that_no_package_has_installed_refuses_the_host(needs: dict[str, t.Any], facts: dict[str, t.Any], reason: str) -> None:
    finding = judge_with("firmware", request(**{**EFI, **needs}), host(platforms=platforms(loaders=[]), **facts))
    assert (finding.reason, finding.warnings) == (reason, ())


def test_what_was_looked_for_at_its_path_takes_precedence_over_the_packages() -> None:
    asked, nothing = request(**EFI), {"/usr/share/OVMF": []}
    there = host(platforms=platforms(loaders=[]), firmware_files=nothing, paths={CODE: True, VARS: True, NVRAM: False})
    assert judge_with("firmware", asked, there).reason is None
    kept = host(platforms=platforms(), firmware_files=nothing, paths={CODE: True, VARS: False, NVRAM: True})
    assert judge_with("firmware", asked, kept).reason is None, "its variables are there already"
    gone = host(platforms=platforms(), firmware_files=FILES, paths={CODE: True, VARS: False, NVRAM: False})
    assert "template" in str(judge_with("firmware", asked, gone).reason)


def test_variables_in_a_folder_of_their_own_may_be_there_already() -> None:
    finding = judge_with("firmware", request(**{**EFI, "nvram": "/srv/nvram/web1.fd"}), host(platforms=platforms(), firmware_files={"/usr/share/OVMF": []}))
    assert finding.reason is None
    assert finding.warnings == (f"Whether kvm2 has the template {VARS} of its firmware variables, which web1 needs, is not known.",)


def test_facts_of_an_older_version_are_a_warning() -> None:
    finding = judge_with("firmware", request(**EFI, secure_boot=True), host())
    assert finding.reason is None
    assert [
        f"has {what}" in warning for what, warning in zip((f"the firmware {CODE}", "the template", "firmware that enforces"), finding.warnings, strict=True)
    ] == [
        True,
        True,
        True,
    ]
    assert judge_with("tpm", request(tpm=True), host()).warnings == ("Whether kvm2 has an emulator of the TPM, which web1 needs, is not known.",)


def test_a_guest_with_secure_boot_needs_firmware_that_enforces_it() -> None:
    asked, there = request(**EFI, secure_boot=True), host(platforms=platforms(secure_boot=False), firmware_files=FILES)
    assert judge_with("firmware", asked, there).reason == "It has no firmware that enforces secure boot, which web1 demands."
    assert judge_with("firmware", request(**EFI, secure_boot=False), there).reason is None
    assert check_host(asked, there, fleet(there), force=True).passed


def test_a_guest_with_a_bios_and_without_a_tpm_passes_everywhere() -> None:
    there = host(platforms=platforms(loaders=[], tpm_backends=[]), firmware_files={"/usr/share/OVMF": []})
    assert [judge_with(rule, request(), there).reason for rule in ("firmware", "tpm")] == [None, None]


@pytest.mark.parametrize(
    ("firmware", "reason"),
    [
        ({}, None),
        ({"tpm_backends": ["passthrough"]}, "It cannot emulate the TPM of web1: swtpm is not installed there."),
        ({"tpm_backends": []}, "It cannot emulate the TPM of web1: swtpm is not installed there."),
        ({"tpm_models": ["tpm-tis"]}, "It cannot emulate the TPM model tpm-crb of web1, only tpm-tis."),
        ({"tpm_versions": ["1.2"]}, "It cannot emulate TPM 2.0, which web1 has, only 1.2."),
    ],
)
def test_a_guest_with_a_tpm_needs_a_host_that_emulates_it(firmware: dict[str, t.Any], reason: str | None) -> None:
    there = host(platforms=platforms(**firmware))
    asked = request(tpm=True, tpm_model="tpm-crb", tpm_version="2.0")
    assert judge_with("tpm", asked, there).reason == reason
    assert check_host(asked, there, fleet(there), force=True).passed == (reason is None), "no force lets it start"
