# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.definitions import find_lost

DISKS = "<devices><disk><target dev='vda'/></disk><disk><target dev='vdb'/></disk></devices>"
SOURCE = f"<domain type='kvm'><name>web1</name><metadata><a>b</a></metadata>{DISKS}</domain>"


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("", "", ""),
        ("</devices>", "<memballoon model='virtio'/></devices>", ""),
        ("<a>b</a>", "", "/domain/metadata/a"),
        ("<a>b</a>", "<a>c</a>", "/domain/metadata/a"),
        ("dev='vdb'", "dev='vdc'", "/domain/devices/disk/target/@dev"),
        ("dev='vdb'", "dev='vda'", "/domain/devices/disk/target/@dev"),
        ("type='kvm'", "type='qemu'", "/domain/@type"),
    ],
)
def test_what_the_destination_lost_is_named(before: str, after: str, lost: str) -> None:
    assert find_lost(SOURCE, SOURCE.replace(before, after) if before else SOURCE) == lost


def test_labels_that_each_host_makes_itself_do_not_count() -> None:
    labels = "<seclabel type='dynamic'><label>libvirt-1</label></seclabel><resource><partition>/machine</partition></resource></domain>"
    assert find_lost(SOURCE.replace("</domain>", labels), SOURCE) == ""


# As libvirt 11.3 of Debian 13 and libvirt 9.0 of Debian 12 write the same definition.
NEW_UEFI = (
    "<domain><os firmware='efi'><loader readonly='yes' secure='yes' type='pflash' format='raw'>/usr/share/OVMF/OVMF_CODE_4M.ms.fd</loader>"
    "<nvram template='/usr/share/OVMF/OVMF_VARS_4M.ms.fd' templateFormat='raw' format='raw'>/var/lib/libvirt/qemu/nvram/web1_VARS.fd</nvram></os></domain>"
)
OLD_UEFI = NEW_UEFI.replace(" templateFormat='raw'", "").replace(" format='raw'", "")


def test_a_format_of_firmware_that_an_older_libvirt_takes_for_granted_is_not_lost() -> None:
    assert find_lost(NEW_UEFI, OLD_UEFI) == ""
    assert find_lost(NEW_UEFI.replace("'raw'", "'qcow2'"), OLD_UEFI) == "/domain/os/loader/@format"
    assert find_lost(NEW_UEFI, NEW_UEFI.replace("'raw'", "'qcow2'")) == "/domain/os/loader/@format"
