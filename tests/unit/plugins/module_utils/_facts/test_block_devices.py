# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.block_devices import BlockDevices


@pytest.fixture
def devices(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "dev"
    root.mkdir()
    links = {
        "disk/by-id/wwn-0x5000c5": "sda",
        "disk/by-id/ata-ST4000": "sda",
        "disk/by-path/pci-0000:00:1f.2-ata-1": "sda",
        "disk/by-id/scsi-36001405": "sdb",
        "disk/by-path/ip-10.0.0.9:3260-iscsi-iqn.2026-01.org.example:a-lun-1": "sdb",
        "disk/by-id/dm-uuid-mpath-360014": "dm-1",
        "disk/by-id/wwn-0x60014": "dm-1",
        "disk/by-id/dm-uuid-LVM-abc": "dm-2",
        "mapper/vm1": "dm-1",
        "mapper/mpatha": "dm-1",
        "mapper/mpatha-part1": "dm-1",
        "mapper/mpathdata": "dm-1",
        "disk/by-id/dm-name-mpatha": "dm-1",
        "disk/by-id/dm-name-mpatha-part1": "dm-1",
        "disk/by-id/dm-name-vm1": "dm-1",
        "block/8:16": "sdb",
        "disk/by-diskseq/9": "sdb",
        "rbd/pool/image": "rbd0",
        "drbd/by-res/r0/0": "drbd0",
    }
    for link, device in links.items():
        (root / device).touch()
        path = root / link
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(root / device)
    (root / "vda").touch()
    return root


@pytest.fixture
def disks(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder in which a person has made links to devices."""
    folder = tmp_path / "srv" / "disks"
    folder.mkdir(parents=True)
    for link, target in {"web1": "../../dev/sdb", "linked": "web1", "alias": "../../dev/mapper/vm1", "folder": "../../dev/mapper"}.items():
        (folder / link).symlink_to(target)
    return folder


@pytest.mark.parametrize(
    ("device", "shared", "store"),
    [
        ("sda", None, "wwn:0x5000c5"),
        ("disk/by-id/ata-ST4000", None, "wwn:0x5000c5"),
        ("disk/by-id/scsi-36001405", True, "wwn:0x6001405"),
        ("mapper/vm1", True, "mpath:360014"),
        ("mapper/mpathdata", True, "mpath:360014"),
        ("disk/by-id/dm-name-vm1", True, "mpath:360014"),
        ("disk/by-id/dm-uuid-mpath-360014", True, "mpath:360014"),
        ("../srv/disks/alias", True, "mpath:360014"),
        ("dm-2", None, "lvm:abc"),
        ("rbd/pool/image", True, "rbd:pool/image"),
        ("drbd0", None, "drbd:r0/0"),
        ("vda", None, None),
        ("gone", None, None),
    ],
)
@pytest.mark.usefixtures("disks")
def test_a_device_is_identified_by_a_host_independent_name(devices: pathlib.Path, device: str, shared: bool, store: str) -> None:
    assert BlockDevices(str(devices)).identify_device(str(devices / device)) == (shared, store)


@pytest.fixture
def rbd(tmp_path: pathlib.Path) -> pathlib.Path:
    """A mapped image, one of another pool's namespace, a snapshot, one of format 1, and one of which an older kernel does not tell the cluster."""
    image = {"cluster_fsid": "f1\n", "pool_id": "2\n", "pool_ns": "\n", "image_id": "10ab\n", "current_snap": "-\n"}
    images = [image, {**image, "pool_ns": "blue\n"}, {**image, "current_snap": "daily\n"}, {**image, "image_id": "(unknown)\n"}, {**image, "cluster_fsid": ""}]
    for number, attributes in enumerate(images):
        (tmp_path / "sys" / str(number)).mkdir(parents=True)
        for name, text in attributes.items():
            (tmp_path / "sys" / str(number) / name).write_text(text)
    return tmp_path / "sys"


@pytest.mark.parametrize(
    ("device", "shared", "store"),
    [
        ("rbd/pool/image", True, "krbd:f1/2//10ab"),
        ("rbd0", None, "krbd:f1/2//10ab"),
        ("rbd0p3", None, "krbd:f1/2//10ab-part3"),
        ("rbd1", None, "krbd:f1/2/blue/10ab"),
        ("rbd2", None, None),
        ("rbd3", None, None),
        ("rbd4", None, None),
        ("rbd5", None, None),
    ],
)
def test_a_mapped_rbd_image_is_identified_by_its_cluster(devices: pathlib.Path, rbd: pathlib.Path, device: str, shared: bool, store: str) -> None:
    """Two clusters may have an image of one name."""
    assert BlockDevices(str(devices), str(rbd)).identify_device(str(devices / device)) == (shared, store)


@pytest.mark.parametrize(
    ("device", "store"),
    [
        ("sdb", "wwn:0x6001405"),
        ("dm-1", "mpath:360014"),
        ("mapper/mpatha", "mpath:360014"),
        ("mapper/mpatha-part1", "mpath:360014"),
        ("disk/by-id/dm-name-mpatha", "mpath:360014"),
        ("disk/by-id/dm-name-mpatha-part1", "mpath:360014"),
        ("block/8:16", "wwn:0x6001405"),
        ("disk/by-diskseq/9", "wwn:0x6001405"),
        ("rbd0", "rbd:pool/image"),
        ("disk/by-path/ip-10.0.0.9:3260-iscsi-iqn.2026-01.org.example:a-lun-1", "wwn:0x6001405"),
        ("../srv/disks/web1", "wwn:0x6001405"),
        ("../srv/disks/linked", "wwn:0x6001405"),
        ("../srv/disks/folder/mpatha", "mpath:360014"),
    ],
)
@pytest.mark.usefixtures("disks")
def test_a_name_that_each_host_assigns_itself_proves_nothing_about_others(devices: pathlib.Path, device: str, store: str) -> None:
    """Another host may have another device of the same SAN under that name, and another LUN under that number: the guest would write to it."""
    assert BlockDevices(str(devices)).identify_device(str(devices / device)) == (None, store)
