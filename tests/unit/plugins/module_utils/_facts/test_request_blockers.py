# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.request import list_blockers
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.requirements import describe_cpu
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.definitions import NEW_VERSIONS, VERSIONS, domain

INVTSC = "<cpu mode='custom'><model>EPYC</model><feature policy='require' name='invtsc'/></cpu>"
FIXED = "<clock offset='utc'><timer name='tsc' frequency='2596126000'/></clock>"
VIRTIOFS = "<filesystem type='mount'><driver type='virtiofs'/><source dir='/srv'/><target dir='tag'/></filesystem>"
PCI = "<hostdev mode='subsystem' type='pci'><source/>{}</hostdev>"


def blockers(inner: str = "", devices: str = "", new: bool = False, snapshots: bool = False) -> list[str]:
    root = domain(inner, devices)
    return list_blockers(root, describe_cpu(root), NEW_VERSIONS if new else VERSIONS, snapshots)


def test_a_plain_guest_has_no_blockers() -> None:
    assert blockers(devices="<disk type='file'><target dev='vda'/></disk><interface type='bridge'><source bridge='br0'/></interface>") == []


@pytest.mark.parametrize(
    ("inner", "devices", "word"),
    [
        ("<launchSecurity type='sev'/>", "", "sev"),
        (INVTSC, "", "invtsc"),
        ("", "<filesystem type='mount'><source dir='/srv'/><target dir='tag'/></filesystem>", "9p"),
        ("", "<disk type='file'><target dev='vdb'/><transient/></disk>", "vdb"),
        ("", "<shmem name='shm0'><model type='ivshmem-plain'/></shmem>", "shm0"),
        ("", "<memory model='nvdimm'><source><path>/srv/web.pmem</path></source></memory>", "/srv/web.pmem"),
        ("", "<hostdev mode='subsystem' type='scsi'><source/></hostdev>", "scsi"),
        ("", "<hostdev mode='capabilities' type='misc'><source/></hostdev>", "misc"),
    ],
)
def test_features_that_no_version_can_migrate_are_blockers(inner: str, devices: str, word: str) -> None:
    for new in (False, True):
        (sentence,) = blockers(inner, devices, new)
        assert word in sentence


@pytest.mark.parametrize("devices", [VIRTIOFS, PCI.format(""), "<interface type='hostdev'><source/></interface>", PCI.replace("pci", "mdev").format("")])
def test_features_that_only_newer_versions_can_migrate_are_blockers(devices: str) -> None:
    assert len(blockers(devices=devices)) == 1
    assert blockers(devices=devices, new=True) == []


@pytest.mark.parametrize(
    ("devices", "libvirt", "hypervisor", "count"),
    [
        (VIRTIOFS, 10004999, 7000000, 1),
        (VIRTIOFS, 10005000, 7000000, 0),
        (PCI.format(""), 9006999, 8000000, 1),
        (PCI.format(""), 9007000, 7999999, 1),
        (PCI.format(""), 9007000, 8000000, 0),
    ],
)
def test_blockers_depend_on_the_versions_of_the_source(devices: str, libvirt: int, hypervisor: int, count: int) -> None:
    root = domain("", devices)
    assert len(list_blockers(root, describe_cpu(root), {"libvirt": libvirt, "hypervisor": hypervisor}, False)) == count


@pytest.mark.parametrize(("shared", "count"), [(True, 0), (False, 1), (None, 1)])
def test_a_virtiofs_folder_is_a_blocker_unless_it_is_shared(shared: bool | None, count: int) -> None:
    class Stores:
        def locate_file(self, path: str) -> tuple[bool | None, str | None]:
            return shared, None

    root = domain("", VIRTIOFS)
    found = list_blockers(root, describe_cpu(root), NEW_VERSIONS, False, t.cast("t.Any", Stores()))
    assert len(found) == count
    assert all("not on storage that hosts share" in sentence for sentence in found)


def test_features_that_can_be_migrated_are_not_blockers() -> None:
    assert blockers(INVTSC + FIXED) == []
    assert blockers(devices=PCI.format("<teaming type='transient' persistent='ua-backup'/>")) == []
    assert blockers(devices="<shmem name='shm0' role='master'/>") == []
    assert blockers(devices="<hostdev mode='subsystem' type='usb'><source/></hostdev>") == []


def test_snapshots_are_a_blocker() -> None:
    assert "snapshots" in blockers(snapshots=True)[0]
