# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import pathlib
import threading
import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import images as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.images import ImageLocator
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.qemu_locks import lease_seconds
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import storage_queries
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import Mount, parse_mount
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import StoragePool
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskNeed
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import NeededFile, SavedDisk, SavedMount

NFS = Mount("/srv/nfs", "nfs4", "/", "nas:/export")
POOLS = [StoragePool("images", "dir", path="/srv/pool"), StoragePool("vg0", "logical", path="/dev/vg0"), StoragePool("ceph", "rbd", path=None)]
SAN = StoragePool("san", "iscsi", path="/dev/disk/by-path", volumes={"web1": "/dev/disk/by-path/lun-1"})


def asked(source: str, kind: str = "file", **differing: t.Any) -> DiskNeed:
    return decode(DiskNeed, {"target": "vda", "kind": kind, "source": source, "readonly": False, "optional": False, "shared": None, **differing})


def disk_of(one: DiskNeed, live: str = "", mounts: t.Sequence[Mount] = ()) -> SavedDisk:
    root = ElementTree.fromstring(live) if live else None
    return ImageLocator([Mount("/", "ext4"), NFS, *mounts]).locate_disks([one], [*POOLS, SAN], root)[0]


def test_a_saved_disk_has_the_folder_and_mount_of_its_image() -> None:
    disk = disk_of(asked("/srv/nfs/vm/web1.qcow2"))
    assert disk.folders == ("/srv/nfs/vm",)
    assert disk.mount == SavedMount("/srv/nfs", "nfs4", "nfs4:nas:/export")


def test_a_saved_disk_keeps_whether_it_is_shareable() -> None:
    assert [disk_of(asked("/srv/nfs/a.raw", shareable=shareable)).shareable for shareable in (True, False)] == [True, False]
    assert disk_of(asked("/srv/nfs/a.raw")).shareable is False


@pytest.mark.parametrize(
    ("line", "locks"),
    [
        ("- nfs4 nas:/export rw,vers=4.2,rsize=1048576,proto=tcp", "leased"),
        ("- nfs nas:/export rw,vers=4.1,proto=tcp", "leased"),
        ("- nfs nas:/export rw,vers=3,proto=tcp,local_lock=none", "kept"),
        ("- nfs nas:/export rw,vers=3,nolock,local_lock=all", "local"),
        ("- ceph 192.0.2.1:/ rw,name=admin", "leased"),
        ("- ext4 /dev/vda rw", "leased"),
    ],
)
def test_the_kind_of_locks_follows_type_and_options_of_the_mount(line: str, locks: str) -> None:
    mount = parse_mount(f"36 35 98:0 / /srv/images rw,noatime master:1 {line}\n")
    assert mount
    assert disk_of(asked("/srv/images/web1.raw"), mounts=[mount]).locks == locks


def test_the_longest_lease_counts_and_locks_that_never_end_do_not() -> None:
    disk = SavedDisk("vda", "file", "/srv/a", False, False, ())
    nfs4, ceph, old = (
        dataclasses.replace(disk, mount=SavedMount("/srv", kind), locks=locks) for kind, locks in (("nfs4", "leased"), ("ceph", None), ("nfs", "kept"))
    )
    assert [lease_seconds(disks) for disks in ([nfs4], [nfs4, ceph], [old, nfs4], [old], [], [disk])] == [105, 315, 105, 0, 0, 105]


def test_a_linked_image_has_both_folders_and_one_in_a_linked_folder_only_its_own(tmp_path: pathlib.Path) -> None:
    store, images = tmp_path / "store", tmp_path / "images"
    store.mkdir()
    images.mkdir()
    (store / "web1.raw").touch()
    (images / "web1.raw").symlink_to(store / "web1.raw")
    (tmp_path / "link").symlink_to(store)
    assert disk_of(asked(str(images / "web1.raw"))).folders == (str(images), str(store))
    assert disk_of(asked(str(tmp_path / "link" / "web1.raw"))).folders == (str(tmp_path / "link"),)


def test_a_volume_is_located_by_its_pool() -> None:
    located = {name: disk_of(asked(f"{name}/web1", "volume")) for name in ("images", "vg0", "ceph", "san", "unknown")}
    assert {name: (disk.kind, disk.path) for name, disk in located.items()} == {
        "images": ("file", "/srv/pool/web1"),
        "vg0": ("block", "/dev/vg0/web1"),
        "ceph": ("network", "ceph/web1"),
        "san": ("block", "/dev/disk/by-path/lun-1"),
        "unknown": ("volume", ""),
    }
    assert located["images"].folders == ("/srv/pool",)
    gone = disk_of(asked("san/web2", "volume"))
    assert (gone.kind, gone.path) == ("volume", "")


def test_only_backing_files_of_a_running_domain_count() -> None:
    live = """<domain><devices><disk><target dev='vda'/><source file='/a/top'/><backingStore type='file'><source file='/srv/base/one'/>
              <backingStore type='network'><source name='two'/><backingStore/></backingStore></backingStore></disk></devices></domain>"""
    disk = disk_of(asked("/a/top"), live)
    assert (disk.backing, disk.folders) == (("/srv/base/one",), ("/a", "/srv/base"))


def test_backing_files_and_devices_of_an_inactive_domain_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.BlockDevices, "identify_device", lambda self, path: (None, "lvm:x"))
    files = [{"role": "backing", "kind": kind, "source": path} for kind, path in (("file", "/srv/base"), ("block", "/dev/vg0/base"), ("network", ""))]
    disk = disk_of(asked("/a/top", files=files, files_problem="it cannot be read"))
    assert (disk.backing, disk.backing_devices, disk.folders) == (("/srv/base",), {"/dev/vg0/base": "lvm:x"}, ("/a", "/srv"))
    assert disk.backing_problem == "it cannot be read"


def test_a_running_domain_has_no_backing_problem() -> None:
    live = "<domain><devices><disk type='file'><target dev='vda'/><source file='{}'/><backingStore/></disk></devices></domain>"
    unread = asked("/a/top", files=[], files_problem="it cannot be read")
    assert disk_of(unread, live.format("/a/top")).backing_problem is None


_LIVE = "<domain><devices><disk type='file'><target dev='vda'/><source file='{}'/><backingStore/></disk></devices></domain>"


def test_a_disk_of_which_the_running_domain_has_another_image_is_not_known() -> None:
    """Its definition was made anew, from a file that is older than a snapshot: a start would use the base, and spoil the overlay."""
    problem = disk_of(asked("/a/web1.qcow2"), _LIVE.format("/a/web1.snap")).backing_problem
    assert problem == "the running domain has /a/web1.snap as this disk, and its definition has /a/web1.qcow2, which may be outdated"


@pytest.mark.parametrize("differing", [{"readonly": True}, {"device": "floppy"}, {"source": ""}])
def test_a_medium_may_have_been_changed_in_a_running_domain(differing: dict[str, t.Any]) -> None:
    assert disk_of(asked(**{"source": "/a/one.iso", **differing}), _LIVE.format("/a/two.iso")).backing_problem is None
    assert disk_of(asked("/a/one.img"), "<domain><devices><disk type='file'><target dev='vda'/></disk></devices></domain>").backing_problem is None


def test_a_transient_disk_runs_on_an_overlay_of_its_image() -> None:
    live = "<domain><devices><disk type='file'><target dev='vda'/><source file='/a/one.qcow2.TRANSIENT'/><transient/></disk></devices></domain>"
    assert not disk_of(asked("/a/one.qcow2"), live).backing_problem


def test_one_image_may_have_several_names(tmp_path: pathlib.Path) -> None:
    image, link = tmp_path / "web1.qcow2", tmp_path / "link.qcow2"
    image.touch()
    link.symlink_to(image)
    assert disk_of(asked(str(link)), _LIVE.format(image)).backing_problem is None
    pool = "<domain><devices><disk type='volume'><target dev='vda'/><source pool='images' volume='web1'/><backingStore/></disk></devices></domain>"
    assert disk_of(asked("/srv/pool/web1"), pool).backing_problem is None


def test_other_needed_files_have_their_folders(tmp_path: pathlib.Path) -> None:
    (tmp_path / "web_VARS.fd").touch()
    needed = [
        ("nvram", "file", tmp_path / "web_VARS.fd"),
        ("nvram", "file", tmp_path / "none"),
        ("filesystem", "dir", tmp_path),
        ("tpm", "device", "/dev/tpm0"),
    ]
    found = ImageLocator([Mount("/", "ext4")]).locate_files([NeededFile(what, kind, str(path)) for what, kind, path in needed])
    assert [file.folders for file in found] == [(str(tmp_path),)] * 3 + [()]
    assert [file.present for file in found[:3]] == [True, False, True]


def test_a_block_device_is_identified_only_by_its_wwn(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"/dev/sdb": "wwn:0x5", "/dev/rbd0": "krbd:f1/2//10ab", "/dev/rbd1": "rbd:pool/image", "/dev/sdc": None}
    monkeypatch.setattr(module.BlockDevices, "identify_device", lambda self, path: (None, names[path]))
    assert {path: disk_of(asked(path, "block")).wwn for path in names} == {
        "/dev/sdb": "wwn:0x5",
        "/dev/rbd0": "krbd:f1/2//10ab",
        "/dev/rbd1": None,
        "/dev/sdc": None,
    }


def test_a_file_system_that_does_not_answer_is_waited_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, is_over = [], threading.Event()

    def hang(path: str) -> str:
        calls.append(path)
        is_over.wait(60)
        return path

    monkeypatch.setattr(storage_queries, "STORAGE_SECONDS", 0.01)
    monkeypatch.setattr(module.os.path, "realpath", hang)
    images = ImageLocator([NFS])
    disks = images.locate_disks([asked(f"/srv/nfs/web{number}") for number in range(5)], POOLS, None)
    monkeypatch.undo()
    is_over.set()
    assert [(disk.folders, disk.mount) for disk in disks] == [(("/srv/nfs",), None)] * 5
    assert calls == [f"/srv/nfs/web{number}" for number in range(2)]
