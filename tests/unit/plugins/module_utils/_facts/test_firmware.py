# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
from xml.etree import ElementTree

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.firmware import list_firmware_files, read_firmware_needs


def test_the_firmware_of_a_definition_is_read() -> None:
    root = ElementTree.fromstring(
        "<domain><os><loader readonly='yes' secure='yes' type='pflash'>/fw/code.fd</loader><nvram template='/fw/vars.fd'>/nv/web.fd</nvram></os>"
        "<devices><tpm model='tpm-crb'><backend type='emulator' version='2.0' persistent_state='yes'/></tpm></devices></domain>"
    )
    assert read_firmware_needs(root) == {
        "nvram": "/nv/web.fd",
        "nvram_template": "/fw/vars.fd",
        "loader": "/fw/code.fd",
        "secure_boot": True,
        "tpm": True,
        "tpm_model": "tpm-crb",
        "tpm_version": "2.0",
        "tpm_persistent": True,
    }


def test_variables_of_the_device_uefi_vars_are_firmware_variables() -> None:
    store = "<varstore template='/usr/share/edk2/ovmf/vars.blank.json' path='/srv/vars/web.json'/>"
    needs = read_firmware_needs(ElementTree.fromstring(f"<domain><os firmware='efi'><loader type='rom'>/fw/OVMF.qemuvars.fd</loader>{store}</os></domain>"))
    assert (needs["nvram"], needs["nvram_template"], needs["loader"]) == (
        "/srv/vars/web.json",
        "/usr/share/edk2/ovmf/vars.blank.json",
        "/fw/OVMF.qemuvars.fd",
    )


def test_a_tpm_of_the_host_is_not_an_emulated_one() -> None:
    root = ElementTree.fromstring("<domain><devices><tpm model='tpm-tis'><backend type='passthrough'/></tpm></devices></domain>")
    assert set(read_firmware_needs(root).values()) == {None, False}


def test_firmware_files_are_listed_with_their_folders(tmp_path: pathlib.Path) -> None:
    (tmp_path / "OVMF" / "x64").mkdir(parents=True)
    for name in ("OVMF/OVMF_CODE.fd", "OVMF/x64/vars.qcow2", "OVMF/ovmf-x86_64-code.bin", "OVMF/vars.blank.json", "OVMF/50-ovmf.json", "OVMF/pvh.bin"):
        (tmp_path / name).touch()
    folder, absent = f"{tmp_path}/OVMF", f"{tmp_path}/edk2"
    assert list_firmware_files((folder, absent)) == {
        folder: ("OVMF_CODE.fd", "ovmf-x86_64-code.bin", "vars.blank.json"),
        f"{folder}/x64": ("vars.qcow2",),
        absent: (),
    }
