# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import list_boot_files, list_boot_paths, list_needed_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import BootFile, DomainRequest

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
NVRAM = "/var/lib/libvirt/qemu/nvram/web_VARS.fd"
FLASH = "<loader readonly='yes' type='pflash'{more}>/usr/share/OVMF/CODE.fd</loader>"


def files_in(pieces: str) -> t.List[t.Tuple[str, str, str]]:
    root = ElementTree.fromstring(f"<domain><name>web</name><uuid>{UUID}</uuid>{pieces}</domain>")
    return [(file.what, file.kind, file.path) for file in list_needed_files(root)]


@pytest.mark.parametrize(
    ("inner", "files"),
    [
        ("<nvram template='/t'>/srv/web.fd</nvram>", [("nvram", "file", "/srv/web.fd")]),
        ("<nvram type='file'><source file='/srv/web.fd'/></nvram>", [("nvram", "file", "/srv/web.fd")]),
        ("<nvram type='block'><source dev='/dev/vg0/web'/></nvram>", [("nvram", "block", "/dev/vg0/web")]),
        ("<nvram type='network'><source protocol='rbd' name='p/i'/></nvram>", [("nvram", "network", "p/i")]),
        (FLASH.format(more=""), [("nvram", "file", NVRAM)]),
        (FLASH.format(more="") + "<nvram template='/t'/>", [("nvram", "file", NVRAM)]),
        (FLASH.format(more=" stateless='yes'"), []),
        ("<loader type='rom'>/usr/share/seabios/bios.bin</loader>", []),
        ("<loader type='rom'>/usr/share/edk2/ovmf/OVMF.qemuvars.fd</loader><varstore template='/t' path='/v/web.json'/>", [("nvram", "file", "/v/web.json")]),
        ("", []),
    ],
)
def test_firmware_variables_are_found_in_every_form(inner: str, files: t.List[t.Tuple[str, str, str]]) -> None:
    assert files_in(f"<os>{inner}</os>") == files


def test_firmware_chosen_by_libvirt_has_variables() -> None:
    assert files_in("<os firmware='efi'><type>hvm</type></os>") == [("nvram", "file", NVRAM)]
    assert files_in("<os firmware='bios'><type>hvm</type></os>") == []


def test_a_tpm_is_located_by_its_state() -> None:
    tpm = "<devices><tpm model='tpm-crb'><backend type='{kind}'>{inner}</backend></tpm></devices>"
    assert files_in(tpm.format(kind="emulator", inner="")) == [("tpm", "file", f"/var/lib/libvirt/swtpm/{UUID}")]
    assert files_in(tpm.format(kind="emulator", inner="<source type='dir' path='/srv/tpm/web'/>")) == [("tpm", "file", "/srv/tpm/web")]
    assert files_in(tpm.format(kind="passthrough", inner="<device path='/dev/tpm0'/>")) == [("tpm", "device", "/dev/tpm0")]


def test_host_folders_memory_files_and_boot_files_are_listed() -> None:
    filesystems = (
        "<filesystem type='mount'><driver type='virtiofs'/><source dir='/srv/home'/></filesystem><filesystem type='ram'><source usage='1'/></filesystem>"
    )
    memory = "<memory model='nvdimm'><source><path>/srv/web.pmem</path></source></memory><memory model='dimm'/>"
    assert files_in(f"<devices>{filesystems}{memory}</devices>") == [("filesystem", "dir", "/srv/home"), ("memory", "file", "/srv/web.pmem")]
    assert files_in("<devices><memory model='virtio-pmem'><source><path>/dev/pmem0</path></source></memory></devices>") == [("memory", "device", "/dev/pmem0")]
    boot = "<os><loader>/usr/lib/bios</loader><kernel>/boot/vmlinuz</kernel><initrd>/usr/lib/initrd</initrd><dtb>/srv/board.dtb</dtb></os>"
    assert files_in(boot) == [("kernel", "file", "/boot/vmlinuz"), ("dtb", "file", "/srv/board.dtb")]
    assert files_in("<sysinfo type='fwcfg'><entry name='opt/x' file='/srv/ignition'/><entry name='y'>z</entry></sysinfo>") == [
        ("fw_cfg", "file", "/srv/ignition")
    ]


def test_boot_files_that_qemu_reads_at_a_start_are_listed() -> None:
    boot = "<os><loader>/usr/lib/bios</loader><kernel>/boot/vmlinuz</kernel><cmdline>x</cmdline><acpi><table type='slic'>/srv/slic</table></acpi></os>"
    root = ElementTree.fromstring(f"<domain>{boot}<sysinfo type='fwcfg'><entry name='opt/x' file='/srv/x'/><entry name='opt/y'>text</entry></sysinfo></domain>")
    assert [(file.what, file.path) for file in list_boot_files(root)] == [
        ("loader", "/usr/lib/bios"),
        ("kernel", "/boot/vmlinuz"),
        ("acpi", "/srv/slic"),
        ("fw_cfg", "/srv/x"),
    ]


@pytest.mark.parametrize(
    ("nvram", "paths"),
    [
        (None, []),
        (NVRAM, []),
        ("/var/lib/libvirt/qemu/varstore/web.json", []),
        ("/var/lib/libvirt/qemu/shared/web.fd", ["/var/lib/libvirt/qemu/shared"]),
        ("/srv/nvram/web.fd", ["/srv/nvram"]),
        ("p/i", []),
    ],
    ids=["none", "libvirt's own", "of uefi-vars", "below libvirt's own", "a folder", "no path"],
)
def test_boot_paths_include_the_folder_of_custom_firmware_variables(nvram: t.Optional[str], paths: t.List[str]) -> None:
    assert list_boot_paths(DomainRequest(1, 1, nvram=nvram, boot_files=(BootFile("kernel", "/boot/vmlinuz"),))) == ["/boot/vmlinuz", *paths]
    assert list_boot_paths(DomainRequest(1, 1, nvram=nvram)) == paths
