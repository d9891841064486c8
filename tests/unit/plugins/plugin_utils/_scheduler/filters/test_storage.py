# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import MIB, Finding, f, host, judge_with, request

PATH = "/srv/images/vda.qcow2"
LOCAL_PATH = "/var/lib/libvirt/images/vda.qcow2"
LOCAL_MOUNT = {"path": "/", "kind": "ext4", "store": None, "capacity_bytes": MIB, "available_bytes": MIB}


def judge_disk(disk: dict[str, t.Any], copied: dict[str, int] | None = None, **there: t.Any) -> Finding:
    return judge_with("storage", request(disks=[disk], copied=copied), host(**there))


def test_a_missing_image_is_refused() -> None:
    assert judge_disk(f.disk("vda"), paths={PATH: False}).reason == f"The image {PATH} of disk vda is not there."


def test_a_missing_medium_is_refused_with_the_next_step() -> None:
    disc, floppy = f.disk("sda", device="cdrom", readonly=True, source="/iso/tools.iso"), f.disk("fda", device="floppy", source="/iso/tools.img")
    missing = {"/iso/tools.iso": False, "/iso/tools.img": False}
    either = "The image /iso/tools.iso of disk sda is not there. Eject it from the running guest, or copy it to the same path there."
    assert judge_disk(disc, paths=missing).reason == either
    assert judge_disk(floppy, paths=missing).reason == "The image /iso/tools.img of disk fda is not there. Eject it from the running guest."


SILENT = {"path": "/srv/images", "kind": "nfs4", "store": "nfs4:nas:/images", "capacity_bytes": None, "available_bytes": None, "silent": True}


@pytest.mark.parametrize("disk", [f.disk("vda"), f.disk("vda", None, readonly=True, source=PATH), f.disk("vda", kind="volume", source="images/vda.qcow2")])
def test_a_file_system_that_does_not_answer_is_refused(disk: dict[str, t.Any]) -> None:
    """A move to it would hang in the hypervisor, and keep others waiting."""
    pools = [{"name": "images", "type": "dir", "active": True, "path": "/srv/images", "capacity_bytes": MIB, "available_bytes": MIB}]
    finding = judge_disk(disk, mounts=[LOCAL_MOUNT, SILENT], pools=pools)
    assert "nfs4:nas:/images/vda.qcow2 on kvm2, and that file system does not answer." in (finding.reason or "")


def test_an_image_behind_a_link_is_refused_by_its_store() -> None:
    """The link is on another file system, which answers."""
    finding = judge_disk(f.disk("vda", source="/srv/linked/vda.qcow2", store="nfs4:nas:/images/vda.qcow2"), mounts=[LOCAL_MOUNT, SILENT])
    assert "nfs4:nas:/images/vda.qcow2 on kvm2, and that file system does not answer." in (finding.reason or "")


def test_a_guest_whose_file_system_does_not_answer_on_its_own_host_stays_there() -> None:
    """To begin its move makes libvirt of that host hang for all others."""
    finding = judge_with("storage", request(disks=[f.disk("vda")]), host(paths={PATH: True}), host("kvm1", mounts=[LOCAL_MOUNT, SILENT]))
    assert "nfs4:nas:/images/vda.qcow2 on kvm1, and that file system does not answer." in (finding.reason or "")


def test_images_elsewhere_pass_while_a_file_system_does_not_answer() -> None:
    for disk in (f.disk("vda", None, readonly=True, source=LOCAL_PATH, store=None), f.disk("sda", kind="network", source="srv/images", store=None)):
        assert judge_disk(disk, paths={LOCAL_PATH: True}, mounts=[LOCAL_MOUNT, SILENT]).reason is None
    assert judge_disk(f.disk("vda"), {"vda": MIB}, mounts=[LOCAL_MOUNT, SILENT]).reason is None


@pytest.mark.parametrize("disk", [f.disk("sda", optional=True, source=PATH), f.disk("sda", source=""), f.disk("sda", kind="network", source="rbd/vda")])
def test_optional_empty_and_network_disks_pass(disk: dict[str, t.Any]) -> None:
    finding = judge_disk(disk, paths={PATH: False, "": False, "rbd/vda": False})
    assert (finding.reason, finding.warnings) == (None, ())


def test_the_image_of_a_copied_disk_need_not_exist() -> None:
    finding = judge_disk(f.disk("vda"), {"vda": MIB}, paths={PATH: False})
    assert (finding.reason, finding.warnings) == (None, ())


@pytest.mark.parametrize("shared", [False, None])
def test_an_existing_image_that_is_not_proved_shared_is_a_warning(shared: bool | None) -> None:
    finding = judge_disk(f.disk("vda", shared), paths={f.disk("vda", shared)["source"]: True})
    assert finding.reason is None
    assert "not proved" in finding.warnings[0]


def test_an_existing_shared_or_read_only_image_passes_without_a_warning() -> None:
    for disk in (f.disk("vda"), f.disk("vda", store=None), f.disk("sda", None, readonly=True, source=PATH)):
        finding = judge_disk(disk, paths={PATH: True})
        assert (finding.reason, finding.warnings) == (None, ())


DEVICE = f.disk("vdb", None, kind="block", source="/dev/vg0/web", store="lvm:x")


@pytest.mark.parametrize("paths", [{}, {DEVICE["source"]: True}], ids=["not looked up", "present"])
def test_a_block_device_is_a_warning_until_protect_found_it_on_both_hosts(paths: dict[str, bool]) -> None:
    there = host(paths=paths)
    assert "disk vdb" in judge_with("storage", request(disks=[DEVICE]), there).warnings[0]
    finding = judge_with("storage", request(disks=[DEVICE]), dataclasses.replace(there, seen_devices=frozenset([DEVICE["source"]])))
    assert (finding.reason, finding.warnings) == (None, ())


@pytest.mark.parametrize(("store", "way"), [("lvm:x", "once protect has seen the device"), ("drbd:r0/0", "only with unsafe"), (None, "only with unsafe")])
def test_a_warning_about_a_device_names_protect_only_if_the_device_has_an_identity(store: str | None, way: str) -> None:
    assert way in judge_disk({**DEVICE, "store": store}, paths={DEVICE["source"]: True}).warnings[0]


def test_a_proved_block_device_that_is_missing_now_is_refused() -> None:
    there = dataclasses.replace(host(paths={DEVICE["source"]: False}), seen_devices=frozenset([DEVICE["source"]]))
    assert "is not there" in (judge_with("storage", request(disks=[DEVICE]), there).reason or "")


def test_an_existing_image_on_a_differently_named_store_is_a_warning() -> None:
    finding = judge_disk(f.disk("vda"), paths={PATH: True}, mounts=[{"path": "/srv/images", "kind": "nfs4", "store": "nfs4:other:/images"}])
    assert finding.reason is None
    assert "nfs4:nas:/images/vda.qcow2, and there nfs4:other:/images/vda.qcow2" in finding.warnings[0]


@pytest.mark.parametrize("disk", [f.disk("vda"), f.disk("vda", store=None), f.disk("vda", optional=True)], ids=["store", "no store", "optional"])
def test_an_existing_image_on_a_local_file_system_is_refused(disk: dict[str, t.Any]) -> None:
    """The store is not mounted there, and the folder below it has an old file of that name."""
    reason = judge_disk(disk, paths={PATH: True}, mounts=[LOCAL_MOUNT]).reason
    assert f"{PATH} of disk vda is on {disk['store'] or 'shared storage'}, but on kvm2 that path is on ext4 at /, which is not shared." in str(reason)
    asked = dataclasses.replace(request(disks=[disk]), unsafe=True)
    assert judge_with("storage", asked, host(paths={PATH: True}, mounts=[LOCAL_MOUNT])) == Finding()


@pytest.mark.parametrize("disk", [f.disk("vda"), f.disk("vda", kind="volume", source="images/vda.qcow2")], ids=["file", "volume"])
def test_an_image_that_the_survey_proved_to_be_another_file_is_refused(disk: dict[str, t.Any]) -> None:
    there = dataclasses.replace(host(paths={PATH: True}, mounts=None, pools=pool()), other_files=frozenset([disk["source"]]))
    assert "of disk vda is another file on kvm2" in str(judge_with("storage", request(disks=[disk]), there).reason)
    assert judge_with("storage", dataclasses.replace(request(disks=[disk]), unsafe=True), there).reason is None


@pytest.mark.parametrize("kind", ["autofs", "fuse.sshfs", "fuse.glusterfs"])
def test_an_existing_image_on_a_file_system_that_hosts_may_share_is_a_warning(kind: str) -> None:
    finding = judge_disk(f.disk("vda"), paths={PATH: True}, mounts=[LOCAL_MOUNT, {"path": "/srv/images", "kind": kind, "store": None}])
    assert finding.reason is None
    assert "its store has another name" in finding.warnings[0]


def test_an_unchecked_image_on_the_same_store_passes_without_a_warning() -> None:
    finding = judge_disk(f.disk("vda"))
    assert (finding.reason, finding.warnings) == (None, ())


def test_a_store_mounted_at_another_depth_is_the_same() -> None:
    deeper = [{"path": "/srv", "kind": "ext4", "store": None}, {"path": "/srv/images/", "kind": "nfs4", "store": "nfs4:nas:/images"}]
    assert judge_disk(f.disk("vda"), mounts=deeper).reason is None
    higher = [{"path": "/srv", "kind": "nfs4", "store": "nfs4:nas:"}]
    assert judge_disk(f.disk("vda"), mounts=higher).reason is None


def test_the_later_of_two_mounts_at_one_path_counts() -> None:
    assert judge_disk(f.disk("vda"), mounts=[{"path": "/srv/images", "kind": "ext4", "store": None}, NFS_MOUNT]).reason is None
    assert judge_disk(f.disk("vda"), mounts=[NFS_MOUNT, {"path": "/srv/images", "kind": "ext4", "store": None}]).reason


@pytest.mark.parametrize(
    ("mounts", "words"),
    [
        ([{"path": "/srv/images", "kind": "nfs4", "store": "nfs4:other:/images"}], "that path is on nfs4:other:/images/vda.qcow2, which is different storage"),
        ([LOCAL_MOUNT, {"path": "/srv/images2", "kind": "nfs4", "store": "nfs4:nas:/images"}], "that path is on ext4 at /, which is not shared"),
    ],
)
def test_another_store_at_the_path_is_refused(mounts: list[dict[str, t.Any]], words: str) -> None:
    reason = judge_disk(f.disk("vda"), mounts=mounts).reason
    assert "is on nfs4:nas:/images/vda.qcow2" in str(reason)
    assert words in str(reason)


LINKED = f.disk("vda", source="/images/vda.qcow2", store="nfs4:nas:/images/vda.qcow2")
NFS_MOUNT = {"path": "/srv/images", "kind": "nfs4", "store": "nfs4:nas:/images"}


def linked(there: list[dict[str, t.Any]], at_source: list[dict[str, t.Any]], **disk: t.Any) -> Finding:
    paths = {LINKED["source"]: True} if disk.pop("is_present", False) else None
    return judge_with("storage", request(disks=[{**LINKED, **disk}]), host(mounts=there, paths=paths), host("kvm1", mounts=at_source))


def test_a_path_through_a_link_is_a_warning() -> None:
    finding = linked([LOCAL_MOUNT, NFS_MOUNT], [LOCAL_MOUNT, NFS_MOUNT])
    assert finding.reason is None
    assert "is not known" in finding.warnings[0]


def test_an_existing_image_behind_a_link_is_not_refused_on_a_host_with_the_store() -> None:
    mounts = [LOCAL_MOUNT, NFS_MOUNT]
    assert linked(mounts, mounts, is_present=True).reason is None
    assert linked(mounts, mounts, is_present=True, store=None).reason is None
    assert linked([LOCAL_MOUNT], mounts, is_present=True).reason
    assert linked([LOCAL_MOUNT], mounts, is_present=True, store=None).reason


def test_a_path_through_a_link_is_refused_on_a_host_without_the_store() -> None:
    for other in ([LOCAL_MOUNT], [LOCAL_MOUNT, {**NFS_MOUNT, "store": "nfs4:nas:/image"}]):
        assert "is not shared" in str(linked(other, [LOCAL_MOUNT, NFS_MOUNT]).reason)


def test_a_path_without_a_link_must_be_on_the_store() -> None:
    assert linked([LOCAL_MOUNT, NFS_MOUNT], [LOCAL_MOUNT, {**NFS_MOUNT, "path": "/images"}]).reason


@pytest.mark.parametrize(("disk", "mounts"), [(f.disk("vda"), None), (f.disk("vda", None), [LOCAL_MOUNT]), (f.disk("vda"), [])])
def test_an_image_that_cannot_be_compared_is_a_warning(disk: dict[str, t.Any], mounts: list[dict[str, t.Any]] | None) -> None:
    finding = judge_disk(disk, mounts=mounts)
    assert finding.reason is None
    assert "exists on kvm2 is not known" in finding.warnings[0]


@pytest.mark.parametrize("mounts", [None, [LOCAL_MOUNT]])
def test_an_image_on_storage_of_its_host_alone_is_a_warning_with_the_remedy(mounts: list[dict[str, t.Any]] | None) -> None:
    finding = judge_disk(f.disk("vda", False), mounts=mounts)
    warning = f"The image {LOCAL_PATH} of disk vda is on storage of kvm1 alone, and moves only with copy_storage or unsafe."
    assert (finding.reason, finding.warnings) == (None, (warning,))
    assert "exists on kvm2 is not known" in judge_disk(f.disk("vda", False, readonly=True), mounts=mounts).warnings[0]


DEVICE_MOUNT = {"path": "/dev", "kind": "devtmpfs", "store": None, "capacity_bytes": MIB, "available_bytes": MIB}


@pytest.mark.parametrize("shared", [None, True])
def test_a_block_device_is_not_compared_with_mounts(shared: bool | None) -> None:
    """Its node is on a file system of the host alone. Hosts of a SAN may have no file system that others share."""
    disk, mounts = f.disk("vda", shared, kind="block", source="/dev/disk/by-id/wwn-0x5000", store="wwn:0x5000"), [LOCAL_MOUNT, DEVICE_MOUNT]
    finding = judge_with("storage", request(disks=[disk]), host(mounts=mounts), host("kvm1", mounts=mounts))
    assert finding.reason is None
    assert finding.warnings
    found = judge_with("storage", request(disks=[disk]), host(mounts=mounts, paths={disk["source"]: True}), host("kvm1", mounts=mounts))
    assert (found.reason, bool(found.warnings)) == (None, not shared)


VOLUME = f.disk("vda", kind="volume", source="images/vda.qcow2")


def pool(kind: str = "netfs", path: str | None = "/srv/images", active: bool = True) -> list[dict[str, t.Any]]:
    return [{"name": "images", "type": kind, "active": active, "path": path}]


def judge_volume(own: list[dict[str, t.Any]], there: list[dict[str, t.Any]], unsafe: bool = False, **disk: t.Any) -> Finding:
    """Return the finding about a volume of the pool C(own) of kvm1."""
    asked = dataclasses.replace(request(disks=[{**VOLUME, **disk}]), unsafe=unsafe)
    mounts = [LOCAL_MOUNT, NFS_MOUNT]
    return judge_with("storage", asked, host(pools=there, mounts=mounts), host("kvm1", pools=own, mounts=mounts))


@pytest.mark.parametrize(
    ("pools", "words"),
    [([], "is in the pool images, which it does not have."), (pool(active=False), "is in the pool images, which is not active."), (pool(), None)],
)
def test_the_pool_of_a_volume_must_exist_and_be_active(pools: list[dict[str, t.Any]], words: str | None) -> None:
    reason = judge_disk(VOLUME, pools=pools).reason
    assert reason is None if words is None else words in str(reason)


def test_a_pool_of_the_same_name_is_a_warning() -> None:
    assert "not proved" in judge_disk({**VOLUME, "shared": None}, pools=pool("dir")).warnings[0]
    assert judge_disk({**VOLUME, "shared": None, "readonly": True}, pools=pool("dir")).warnings == ()
    assert judge_disk(VOLUME, pools=None).warnings


def test_a_volume_on_the_same_store_passes_without_a_warning() -> None:
    assert judge_volume(pool(), pool()) == Finding()
    assert judge_volume(pool(), pool("dir", "/srv/images/")) == Finding()


def test_a_pool_with_that_name_in_a_local_folder_is_refused() -> None:
    there = pool("dir", "/var/lib/libvirt/images")
    reason = "is on nfs4:nas:/images/vda.qcow2, but on kvm2 /var/lib/libvirt/images/vda.qcow2 is on ext4 at /, which is not shared."
    assert reason in str(judge_volume(pool(), there).reason)
    assert "is on shared storage, but on kvm2" in str(judge_volume(pool(), there, store=None).reason)
    assert judge_volume(pool(), there, unsafe=True) == Finding()


@pytest.mark.parametrize(("own", "there"), [(pool("rbd", None), pool("dir")), (pool("rbd", None), pool("gluster", None)), (pool(), pool("logical", "/dev/vg"))])
def test_a_pool_of_another_kind_is_refused(own: list[dict[str, t.Any]], there: list[dict[str, t.Any]]) -> None:
    finding = judge_volume(own, there, store=None)
    assert f"is in the pool images, which is of the type {own[0]['type']} on its host and of the type {there[0]['type']} on kvm2." in str(finding.reason)


@pytest.mark.parametrize(("own", "there"), [(pool("rbd", None), pool("rbd", None)), (pool("mpath", "/dev/mapper"), pool("mpath", "/dev/mapper"))])
def test_a_volume_without_a_store_that_can_be_compared_is_a_warning(own: list[dict[str, t.Any]], there: list[dict[str, t.Any]]) -> None:
    finding = judge_volume(own, there, store=None)
    assert finding.reason is None
    assert "The pool images of the image images/vda.qcow2 of disk vda exists on kvm2, but is not proved to be the same one." in finding.warnings


def lun_pool(**volumes: str) -> list[dict[str, t.Any]]:
    return [{"name": "images", "type": "iscsi", "active": True, "path": "/dev/disk/by-path", "volumes": volumes}]


@pytest.mark.parametrize(
    ("own", "there", "words"),
    [
        (lun_pool(lun1="/dev/x"), lun_pool(lun1="/dev/x"), None),
        (lun_pool(lun1="/dev/x"), lun_pool(lun1="/dev/y"), "is /dev/x on its host and /dev/y on kvm2."),
        (lun_pool(lun1="/dev/x"), lun_pool(lun2="/dev/x"), "is /dev/x on its host and not there on kvm2."),
        (pool("logical", "/dev/vg0"), pool("logical", "/dev/vg1"), "is /dev/vg0/lun1 on its host and /dev/vg1/lun1 on kvm2."),
    ],
)
def test_a_volume_that_is_another_device_is_refused(own: list[dict[str, t.Any]], there: list[dict[str, t.Any]], words: str | None) -> None:
    """Each host may have another target in the pool of that name."""
    reason = judge_volume(own, there, source="images/lun1", store=None).reason
    assert reason is None if words is None else words in str(reason)
    assert judge_volume(own, there, unsafe=True, source="images/lun1", store=None) == Finding()


def test_a_volume_that_protect_found_on_both_hosts_passes_without_a_warning() -> None:
    pools = pool("logical", "/dev/vg0")
    there = dataclasses.replace(host(pools=pools), seen_devices=frozenset(["images/vda.qcow2"]))
    assert judge_with("storage", request(disks=[{**VOLUME, "shared": None}]), there, host("kvm1", pools=pools)) == Finding()


@pytest.mark.parametrize("kind", ["nvme", "vhostuser", "vhostvdpa"])
def test_a_disk_of_a_kind_that_cannot_be_proved_is_a_warning(kind: str) -> None:
    disk = f.disk("vda", None, kind=kind, source="pci:0000:01:00.0/1")
    assert f"of the kind {kind!r}" in judge_disk(disk).warnings[0]
    assert judge_with("storage", dataclasses.replace(request(disks=[disk]), unsafe=True), host()) == Finding()


def test_a_network_disk_that_its_own_host_serves_is_a_warning() -> None:
    finding = judge_disk(f.disk("vda", None, kind="network", source="export"))
    assert finding.reason is None
    assert "served by" in finding.warnings[0]


def test_all_missing_disks_are_named() -> None:
    disks = [f.disk("vda"), f.disk("vdb")]
    reason = str(judge_with("storage", request(disks=disks), host(paths={disk["source"]: False for disk in disks})).reason)
    assert "disk vda" in reason
    assert "disk vdb" in reason


BASE = "/var/lib/libvirt/images/base.qcow2"


def overlay(shared: bool | None, **more: t.Any) -> dict[str, t.Any]:
    store = "nfs4:nas:/images/base.qcow2" if shared else None
    return {**f.disk("vda"), "files": [{"role": "backing", "kind": "file", "source": BASE, "shared": shared, "store": store}], **more}


def test_backing_files_are_checked_like_disks() -> None:
    assert judge_disk(overlay(False), paths={PATH: True, BASE: False}).reason == f"The backing file {BASE} of disk vda is not there."
    finding = judge_disk(overlay(False), paths={PATH: True, BASE: True})
    assert finding.reason is None
    assert f"The backing file {BASE} of disk vda exists on" in finding.warnings[0]
    assert judge_disk(overlay(True), paths={PATH: True, BASE: True}).warnings == ()
    assert judge_disk(overlay(False), {"vda": MIB}, paths={PATH: False, BASE: False}).reason is None


def test_an_unknown_backing_chain_is_a_warning() -> None:
    finding = judge_disk({**f.disk("vda"), "files_problem": "/x cannot be read"}, paths={PATH: True})
    assert finding.reason is None
    assert "are not known: /x cannot be read" in finding.warnings[0]


def judge_secrets(**facts: t.Any) -> Finding:
    return judge_with("secrets", request(secrets=["ceph client.libvirt", SECRET]), host(**facts))


SECRET = "0e1b6d5c-2f0a-4d3e-9d47-5f2f0c6d0a11"


def test_a_host_without_a_secret_of_the_guest_is_refused() -> None:
    """libvirt would refuse the guest on arrival and at a start."""
    assert judge_secrets(secrets=["ceph client.libvirt", SECRET]) == Finding()
    assert judge_secrets(secrets=["ceph client.libvirt"]).reason == f"It has no libvirt secret {SECRET}."
    assert judge_secrets(secrets=None).warnings == (f"Whether kvm2 has the libvirt secrets of web1 (ceph client.libvirt, {SECRET}) is not known.",)
    assert judge_with("secrets", request(), host(secrets=None)) == Finding()
