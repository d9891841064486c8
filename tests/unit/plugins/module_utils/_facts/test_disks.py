# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.disks import describe_disks
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.image_header import Header, Unreadable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import StoragePool
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._facts.definitions import domain

POOLS = [
    StoragePool("default", "dir", path="/srv/pool"),
    StoragePool("vg0", "logical", path="/dev/vg0"),
    StoragePool("ceph", "rbd", path=None),
    StoragePool("san", "iscsi", path="/dev/disk/by-path", volumes={"unit:0:0:1": "/dev/disk/by-path/lun-1"}),
]

HEADERS = {
    "/nfs/top": Header(backing="/srv/base", backing_format="qcow2"),
    "/srv/base": Header(backing="oldest", backing_format="raw", data_file="/srv/base.data"),
    "/nfs/small": Header(backing="/srv/base", backing_format="qcow2", capacity_bytes=110),
    "/srv/pool/small": Header(backing="/srv/base", backing_format="qcow2", capacity_bytes=110),
    "/nfs/remote": Header(backing="nbd://nas/base"),
    "/nfs/odd": Header(backing="json:{}"),
}


class Stores:
    """Every file under /nfs is shared, every device has its path as its name."""

    def locate_file(self, path: str) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
        return path.startswith("/nfs/"), f"nfs4:nas:/export{path[4:]}" if path.startswith("/nfs/") else None

    def locate_device(self, path: str) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
        return None, f"wwn:{path}"

    def count_copied_bytes(self, path: str, image_format: str) -> t.Optional[int]:
        return 100 if image_format == "raw" else 10

    def count_allocated_bytes(self, path: str) -> t.Optional[int]:
        return {"/srv/base": 7, "/srv/base.data": 200, "/srv/oldest": 30}.get(path)

    def is_device(self, path: str) -> bool:
        return path.startswith("/dev/")

    def read_header(self, path: str) -> Header:
        if path == "/srv/sealed":
            raise Unreadable("/srv/sealed cannot be read")
        return HEADERS.get(path, Header())


def disk(kind: str, source: str, inner: str = "", device: str = "disk", image_format: str = "qcow2") -> str:
    return f"<disk type='{kind}' device='{device}'><driver name='qemu' type='{image_format}'/>{source}<target dev='vda'/>{inner}</disk>"


def describe_disk(xml: str, local: bool = True) -> t.Dict[str, t.Any]:
    (found,) = describe_disks(domain(devices=xml), Stores() if local else None, POOLS)
    return t.cast("t.Dict[str, t.Any]", encode(found))


def describe_proof(xml: str, local: bool = True) -> t.Tuple[t.Any, ...]:
    found = describe_disk(xml, local)
    return found["source"], found["shared"], found["store"], found["bytes"]


def test_image_files_are_classified_by_their_mount() -> None:
    assert describe_proof(disk("file", "<source file='/nfs/a/web1.qcow2'/>")) == ("/nfs/a/web1.qcow2", True, "nfs4:nas:/export/a/web1.qcow2", 10)
    assert describe_proof(disk("file", "<source file='/srv/web1.raw'/>", image_format="raw")) == ("/srv/web1.raw", False, None, 100)


def test_files_and_devices_are_unknown_over_a_remote_connection() -> None:
    assert describe_proof(disk("file", "<source file='/nfs/a.qcow2'/>"), local=False) == ("/nfs/a.qcow2", None, None, None)
    assert describe_proof(disk("block", "<source dev='/dev/sdb'/>"), local=False) == ("/dev/sdb", None, None, None)


def test_a_block_device_is_never_proved_to_be_local() -> None:
    assert describe_proof(disk("block", "<source dev='/dev/sdb'/>")) == ("/dev/sdb", None, "wwn:/dev/sdb", None)


def test_network_disks_are_shared() -> None:
    rbd = "<source protocol='rbd' name='pool/image'><host name='mon1'/></source>"
    nbd = "<source protocol='nbd' name='web1'><host name='10.0.0.9' port='10809'/></source>"
    for local in (True, False):
        assert describe_proof(disk("network", rbd), local) == ("pool/image", True, "rbd:pool/image", None)
        assert describe_proof(disk("network", nbd), local) == ("web1", True, "nbd:10.0.0.9:10809/web1", None)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("<source protocol='nbd' name='web1'><host name='localhost' port='10809'/></source>", "web1"),
        ("<source protocol='nbd' name='web1'><host name='127.0.0.9'/></source>", "web1"),
        ("<source protocol='https' name='web1.iso'><host name='::1'/></source>", "web1.iso"),
        ("<source protocol='nbd' name='web1'><host transport='unix' socket='/run/nbd.sock'/></source>", "web1"),
        ("<source protocol='nbd'><host transport='unix' socket='/run/nbd.sock'/></source>", "nbd:/run/nbd.sock"),
    ],
)
def test_a_network_disk_that_its_own_host_serves_is_not_known_to_be_shared(source: str, name: str) -> None:
    assert describe_proof(disk("network", source)) == (name, None, None, None)


def test_a_cluster_that_is_reached_through_its_own_host_is_shared() -> None:
    gluster = "<source protocol='gluster' name='vol/web1'><host name='localhost'/></source>"
    assert describe_proof(disk("network", gluster))[1] is True


def test_an_nvme_disk_is_named_by_its_address_and_never_proved() -> None:
    nvme = "<source type='pci' managed='yes' namespace='1'><address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source>"
    assert describe_proof(disk("nvme", nvme)) == ("pci:0000:01:00.0/1", None, None, None)


def test_volumes_are_classified_by_their_pool() -> None:
    assert describe_proof(disk("volume", "<source pool='default' volume='a.qcow2'/>")) == ("default/a.qcow2", False, None, 10)
    assert describe_proof(disk("volume", "<source pool='vg0' volume='lv1'/>")) == ("vg0/lv1", None, "wwn:/dev/vg0/lv1", None)
    assert describe_proof(disk("volume", "<source pool='ceph' volume='img'/>"))[1] is True
    assert describe_proof(disk("volume", "<source pool='san' volume='unit:0:0:1'/>")) == ("san/unit:0:0:1", None, "wwn:/dev/disk/by-path/lun-1", None)
    assert describe_proof(disk("volume", "<source pool='san' volume='unit:0:0:2'/>")) == ("san/unit:0:0:2", None, None, None)
    assert describe_proof(disk("volume", "<source pool='elsewhere' volume='x'/>")) == ("elsewhere/x", None, None, None)


def test_a_floppy_is_writable_unless_it_is_readonly() -> None:
    assert describe_disk(disk("file", "<source file='/srv/a.img'/>", device="floppy"))["readonly"] is False
    assert describe_disk(disk("file", "<source file='/srv/a.img'/>", "<readonly/>", device="floppy"))["readonly"] is True


def test_drives_are_readonly_optional_or_shareable() -> None:
    cdrom = describe_disk(disk("file", "<source file='/srv/a.iso' startupPolicy='optional'/>", device="cdrom"))
    assert (cdrom["device"], cdrom["readonly"], cdrom["optional"], cdrom["shareable"]) == ("cdrom", True, True, False)
    shareable = describe_disk(disk("file", "<source file='/srv/a'/>", "<shareable/>"))
    assert (shareable["readonly"], shareable["optional"], shareable["shareable"]) == (False, False, True)
    assert describe_proof(disk("file", "", device="cdrom")) == ("", None, None, None)


@pytest.mark.parametrize(("policy", "when_moving", "at_a_start"), [("optional", True, True), ("requisite", True, False), ("mandatory", False, False)])
def test_a_medium_that_a_start_requires_is_optional_only_for_a_guest_that_runs(policy: str, when_moving: bool, at_a_start: bool) -> None:
    xml = domain(devices=disk("file", f"<source file='/srv/a.iso' startupPolicy='{policy}'/>", device="cdrom"))
    (off,) = describe_disks(xml, Stores(), POOLS)
    xml.set("id", "7")
    (running,) = describe_disks(xml, Stores(), POOLS)
    assert (running.optional, off.optional) == (when_moving, at_a_start)


def test_an_optional_hard_disk_is_required_of_a_destination_of_a_guest_that_runs() -> None:
    """libvirt leaves it out at a start only: QEMU has state of each disk of the guest."""
    xml = domain(devices=disk("file", "<source file='/srv/a.img' startupPolicy='optional'/>"))
    (off,) = describe_disks(xml, Stores(), POOLS)
    xml.set("id", "7")
    (running,) = describe_disks(xml, Stores(), POOLS)
    assert (running.optional, off.optional) == (False, True)


def needed(xml: str, local: bool = True) -> t.List[t.Tuple[t.Any, ...]]:
    found = describe_disk(xml, local)
    assert found["files_problem"] is None
    return [(file["role"], file["kind"], file["source"], file["shared"]) for file in found["files"]]


def test_the_backing_chain_is_read_from_headers_if_the_definition_has_none() -> None:
    chain = [("backing", "file", "/srv/base", False), ("data", "file", "/srv/base.data", False), ("backing", "file", "/srv/oldest", False)]
    assert needed(disk("file", "<source file='/nfs/top'/>")) == chain
    assert needed(disk("file", "<source file='/nfs/remote'/>")) == [("backing", "network", "", True)]
    assert needed(disk("file", "<source file='/nfs/plain'/>")) == []


@pytest.mark.parametrize(("image", "below"), [("top", 237), ("small", 100), ("remote", None), ("plain", ABSENT)])
def test_a_full_copy_counts_the_images_below_up_to_what_the_guest_sees(image: str, below: t.Any) -> None:
    (found,) = describe_disks(domain(devices=disk("file", f"<source file='/nfs/{image}'/>")), Stores(), POOLS)
    assert (found.bytes, found.below_bytes) == (10, below)
    assert found.count_copy("full") == 10 + (below or 0)
    assert found.count_copy("incremental") == 10


def test_a_full_copy_of_a_volume_counts_what_is_below_it_too() -> None:
    (found,) = describe_disks(domain(devices=disk("volume", "<source pool='default' volume='small'/>")), Stores(), POOLS)
    assert (found.bytes, found.below_bytes) == (10, 100)


def test_the_backing_chain_of_the_definition_overrides_the_headers() -> None:
    inner = "<backingStore type='file'><format type='qcow2'/><source file='/nfs/other'/><backingStore/></backingStore>"
    assert needed(disk("file", "<source file='/nfs/top'/>", inner)) == [("backing", "file", "/nfs/other", True)]
    assert needed(disk("file", "<source file='/nfs/top'/>", "<backingStore/>")) == []
    assert needed(disk("file", "<source file='/nfs/top'/>", inner), local=False) == [("backing", "file", "/nfs/other", None)]
    block = "<backingStore type='block'><format type='raw'/><source dev='/dev/vg0/base'/><backingStore/></backingStore>"
    assert needed(disk("file", "<source file='/nfs/top'/>", block)) == [("backing", "block", "/dev/vg0/base", None)]


def test_a_data_file_is_found_in_the_definition_or_the_header() -> None:
    store = "<source file='/nfs/a'><dataStore type='file'><format type='raw'/><source file='/srv/a.raw'/></dataStore></source>"
    assert needed(disk("file", store, "<backingStore/>")) == [("data", "file", "/srv/a.raw", False)]
    assert needed(disk("file", "<source file='/srv/base'/>", "<backingStore/>")) == [("data", "file", "/srv/base.data", False)]


def test_the_header_of_a_raw_disk_is_not_parsed() -> None:
    assert needed(disk("file", "<source file='/nfs/top'/>", image_format="raw")) == []


def test_an_unreadable_header_is_reported() -> None:
    for source in ("/srv/sealed", "/nfs/odd"):
        found = describe_disk(disk("file", f"<source file='{source}'/>"))
        assert source in found["files_problem"]
    assert "only on its own host" in describe_disk(disk("file", "<source file='/nfs/top'/>"), local=False)["files_problem"]
    assert describe_disk(disk("file", "<source file='/srv/sealed'/>", "<backingStore/>"))["files_problem"] is None


def test_a_base_that_its_own_host_serves_is_not_known_to_others() -> None:
    for server, shared in (("<host name='nas'/>", True), ("<host transport='unix' socket='/run/nbd.sock'/>", False)):
        base = f"<backingStore type='network'><format type='raw'/><source protocol='nbd' name='x'>{server}</source><backingStore/></backingStore>"
        found = describe_disk(disk("file", "<source file='/nfs/top'/>", base))
        assert (len(found["files"]), "served by its own host" in (found["files_problem"] or "")) == (int(shared), not shared)
