# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import MIB, Finding, f, host, judged, request

PATH = "/srv/images/vda.qcow2"
LOCAL_PATH = "/var/lib/libvirt/images/vda.qcow2"
LOCAL_MOUNT = {"path": "/", "kind": "ext4", "store": None, "capacity_bytes": MIB, "available_bytes": MIB}


def of(disk: dict[str, t.Any], copied: dict[str, int] | None = None, **there: t.Any) -> Finding:
    return judged("storage", request(disks=[disk], copied=copied), host(**there))


def test_an_image_that_was_looked_for_and_is_absent_refuses() -> None:
    assert of(f.disk("vda"), paths={PATH: False}).reason == f"The image {PATH} of disk vda is not there."


@pytest.mark.parametrize("disk", [f.disk("sda", optional=True, source=PATH), f.disk("sda", source=""), f.disk("sda", kind="network", source="rbd/vda")])
def test_what_may_be_missing_or_has_no_path_passes(disk: dict[str, t.Any]) -> None:
    finding = of(disk, paths={PATH: False, "": False, "rbd/vda": False})
    assert (finding.reason, finding.warnings) == (None, ())


def test_a_disk_that_is_copied_need_not_be_there() -> None:
    finding = of(f.disk("vda"), {"vda": MIB}, paths={PATH: False})
    assert (finding.reason, finding.warnings) == (None, ())


@pytest.mark.parametrize("shared", [False, None])
def test_what_is_present_and_not_proved_shared_is_a_warning(shared: bool | None) -> None:
    finding = of(f.disk("vda", shared), paths={f.disk("vda", shared)["source"]: True})
    assert finding.reason is None
    assert "not proved" in finding.warnings[0]


def test_what_is_present_and_shared_or_read_only_passes_silently() -> None:
    for disk in (f.disk("vda"), f.disk("vda", store=None), f.disk("sda", None, readonly=True, source=PATH)):
        finding = of(disk, paths={PATH: True})
        assert (finding.reason, finding.warnings) == (None, ())


DEVICE = f.disk("vdb", None, kind="block", source="/dev/vg0/web", store="lvm:x")


@pytest.mark.parametrize("paths", [{}, {DEVICE["source"]: True}], ids=["not looked up", "present"])
def test_a_device_is_a_warning_until_protect_has_seen_it_on_both_hosts(paths: dict[str, bool]) -> None:
    there = host(paths=paths)
    assert "disk vdb" in judged("storage", request(disks=[DEVICE]), there).warnings[0]
    finding = judged("storage", request(disks=[DEVICE]), dataclasses.replace(there, seen_devices=frozenset([DEVICE["source"]])))
    assert (finding.reason, finding.warnings) == (None, ())


def test_a_device_that_was_seen_and_is_absent_now_refuses() -> None:
    there = dataclasses.replace(host(paths={DEVICE["source"]: False}), seen_devices=frozenset([DEVICE["source"]]))
    assert "is not there" in (judged("storage", request(disks=[DEVICE]), there).reason or "")


def test_what_is_present_on_a_store_of_another_name_is_a_warning() -> None:
    finding = of(f.disk("vda"), paths={PATH: True}, mounts=[{"path": "/srv/images", "kind": "nfs4", "store": "nfs4:other:/images"}])
    assert finding.reason is None
    assert "nfs4:nas:/images/vda.qcow2, and there nfs4:other:/images/vda.qcow2" in finding.warnings[0]


def test_where_nobody_looked_the_same_store_passes_silently() -> None:
    finding = of(f.disk("vda"))
    assert (finding.reason, finding.warnings) == (None, ())


def test_a_store_that_is_mounted_deeper_or_higher_is_the_same() -> None:
    deeper = [{"path": "/srv", "kind": "ext4", "store": None}, {"path": "/srv/images/", "kind": "nfs4", "store": "nfs4:nas:/images"}]
    assert of(f.disk("vda"), mounts=deeper).reason is None
    higher = [{"path": "/srv", "kind": "nfs4", "store": "nfs4:nas:"}]
    assert of(f.disk("vda"), mounts=higher).reason is None


def test_of_two_file_systems_at_one_point_the_later_one_counts() -> None:
    assert of(f.disk("vda"), mounts=[{"path": "/srv/images", "kind": "ext4", "store": None}, NFS_MOUNT]).reason is None
    assert of(f.disk("vda"), mounts=[NFS_MOUNT, {"path": "/srv/images", "kind": "ext4", "store": None}]).reason


@pytest.mark.parametrize(
    ("mounts", "words"),
    [
        ([{"path": "/srv/images", "kind": "nfs4", "store": "nfs4:other:/images"}], "nfs4:other:/images/vda.qcow2 is another"),
        ([LOCAL_MOUNT, {"path": "/srv/images2", "kind": "nfs4", "store": "nfs4:nas:/images"}], "ext4 at / is not shared"),
    ],
)
def test_another_store_or_none_refuses_and_names_both(mounts: list[dict[str, t.Any]], words: str) -> None:
    reason = of(f.disk("vda"), mounts=mounts).reason
    assert "lies on nfs4:nas:/images/vda.qcow2" in str(reason)
    assert words in str(reason)


LINKED = f.disk("vda", source="/images/vda.qcow2", store="nfs4:nas:/images/vda.qcow2")
NFS_MOUNT = {"path": "/srv/images", "kind": "nfs4", "store": "nfs4:nas:/images"}


def linked(there: list[dict[str, t.Any]], at_source: list[dict[str, t.Any]]) -> Finding:
    return judged("storage", request(disks=[LINKED]), host(mounts=there), host("kvm1", mounts=at_source))


def test_a_path_that_goes_through_a_link_may_do_so_on_the_other_host_too() -> None:
    finding = linked([LOCAL_MOUNT, NFS_MOUNT], [LOCAL_MOUNT, NFS_MOUNT])
    assert finding.reason is None
    assert "is not known" in finding.warnings[0]


def test_a_link_leads_nowhere_on_a_host_that_does_not_have_the_store() -> None:
    for other in ([LOCAL_MOUNT], [LOCAL_MOUNT, {**NFS_MOUNT, "store": "nfs4:nas:/image"}]):
        assert "is not shared" in str(linked(other, [LOCAL_MOUNT, NFS_MOUNT]).reason)


def test_a_path_that_goes_through_no_link_must_lead_to_the_store() -> None:
    assert linked([LOCAL_MOUNT, NFS_MOUNT], [LOCAL_MOUNT, {**NFS_MOUNT, "path": "/images"}]).reason


@pytest.mark.parametrize(
    ("disk", "mounts"), [(f.disk("vda"), None), (f.disk("vda", None), [LOCAL_MOUNT]), (f.disk("vda", False), [LOCAL_MOUNT]), (f.disk("vda"), [])]
)
def test_nothing_to_compare_is_a_warning(disk: dict[str, t.Any], mounts: list[dict[str, t.Any]] | None) -> None:
    finding = of(disk, mounts=mounts)
    assert finding.reason is None
    assert "is there on kvm2 is not known" in finding.warnings[0]


def test_a_block_device_is_not_looked_for_among_file_systems() -> None:
    finding = of(f.disk("vda", None, kind="block", source="/dev/disk/by-id/wwn-0x5000", store="wwn:0x5000"), mounts=[LOCAL_MOUNT])
    assert finding.reason is None
    assert finding.warnings


VOLUME = f.disk("vda", kind="volume", source="images/vda.qcow2")


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ([], "is in the pool images, which it does not have."),
        ([{"name": "images", "type": "netfs", "active": False, "path": "/srv"}], "is in the pool images, which is not active."),
        ([{"name": "images", "type": "netfs", "active": True, "path": "/srv"}], None),
    ],
)
def test_the_pool_of_a_volume_must_be_there_and_active(pools: list[dict[str, t.Any]], words: str | None) -> None:
    reason = of(VOLUME, pools=pools).reason
    assert reason is None if words is None else words in str(reason)


def test_a_pool_of_the_same_name_proves_nothing() -> None:
    pools = [{"name": "images", "type": "dir", "active": True, "path": "/srv"}]
    assert "not proved" in of({**VOLUME, "shared": None}, pools=pools).warnings[0]
    assert of({**VOLUME, "shared": None, "readonly": True}, pools=pools).warnings == ()
    assert of(VOLUME, pools=None).warnings


def test_all_disks_that_are_missing_are_named() -> None:
    disks = [f.disk("vda"), f.disk("vdb")]
    reason = str(judged("storage", request(disks=disks), host(paths={disk["source"]: False for disk in disks})).reason)
    assert "disk vda" in reason
    assert "disk vdb" in reason


BASE = "/var/lib/libvirt/images/base.qcow2"


def overlay(shared: bool | None, **more: t.Any) -> dict[str, t.Any]:
    store = "nfs4:nas:/images/base.qcow2" if shared else None
    return {**f.disk("vda"), "files": [{"role": "backing", "kind": "file", "source": BASE, "shared": shared, "store": store}], **more}


def test_what_a_disk_is_built_on_is_judged_like_the_disk() -> None:
    assert of(overlay(False), paths={PATH: True, BASE: False}).reason == f"The backing file {BASE} of disk vda is not there."
    finding = of(overlay(False), paths={PATH: True, BASE: True})
    assert finding.reason is None
    assert f"The backing file {BASE} of disk vda is there on" in finding.warnings[0]
    assert of(overlay(True), paths={PATH: True, BASE: True}).warnings == ()
    assert of(overlay(False), {"vda": MIB}, paths={PATH: False, BASE: False}).reason is None


def test_a_chain_that_is_not_known_is_a_warning() -> None:
    finding = of({**f.disk("vda"), "files_problem": "/x cannot be read"}, paths={PATH: True})
    assert finding.reason is None
    assert "is built on is not known: /x cannot be read" in finding.warnings[0]
