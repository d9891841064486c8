# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import images as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.images import Images
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.leases import lease_seconds
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.storage import Mount, parse_mount

NFS = Mount("/srv/nfs", "nfs4", "/", "nas:/export")
POOLS = [{"name": "images", "path": "/srv/pool"}, {"name": "vg0", "path": "/dev/vg0"}, {"name": "ceph", "path": None}]

Json = t.Dict[str, t.Any]


def asked(source: str, kind: str = "file", **differing: t.Any) -> Json:
    return {"target": "vda", "kind": kind, "source": source, "readonly": False, "optional": False, "shared": None, **differing}


def disk_of(one: Json, live: str = "", mounts: t.Sequence[Mount] = ()) -> Json:
    root = ElementTree.fromstring(live) if live else None
    return Images([Mount("/", "ext4"), NFS, *mounts]).disks([one], POOLS, root)[0]


def test_an_image_has_its_folder_and_its_mount() -> None:
    disk = disk_of(asked("/srv/nfs/vm/web1.qcow2"))
    assert disk["folders"] == ["/srv/nfs/vm"]
    assert disk["mount"] == {"path": "/srv/nfs", "kind": "nfs4", "store": "nfs4:nas:/export"}


def test_it_is_kept_whether_several_guests_may_write_a_disk() -> None:
    assert [disk_of(asked("/srv/nfs/a.raw", shareable=shareable))["shareable"] for shareable in (True, False)] == [True, False]
    assert disk_of(asked("/srv/nfs/a.raw"))["shareable"] is False


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
def test_what_becomes_of_locks_is_told_by_the_kind_of_mount_and_its_options(line: str, locks: str) -> None:
    mount = parse_mount(f"36 35 98:0 / /srv/images rw,noatime master:1 {line}\n")
    assert mount
    assert disk_of(asked("/srv/images/web1.raw"), mounts=[mount])["locks"] == locks


def test_of_leases_the_longest_counts_and_what_does_not_end_is_left_out() -> None:
    nfs4, ceph, old = {"mount": {"kind": "nfs4"}, "locks": "leased"}, {"mount": {"kind": "ceph"}}, {"mount": {"kind": "nfs"}, "locks": "kept"}
    assert [lease_seconds(disks) for disks in ([nfs4], [nfs4, ceph], [old, nfs4], [old], [], [{"mount": None}])] == [105, 315, 105, 0, 0, 105]


def test_a_linked_image_needs_both_folders_and_one_in_a_linked_folder_but_its_own(tmp_path: pathlib.Path) -> None:
    store, images = tmp_path / "store", tmp_path / "images"
    store.mkdir()
    images.mkdir()
    (store / "web1.raw").touch()
    (images / "web1.raw").symlink_to(store / "web1.raw")
    (tmp_path / "link").symlink_to(store)
    assert disk_of(asked(str(images / "web1.raw")))["folders"] == [str(images), str(store)]
    assert disk_of(asked(str(tmp_path / "link" / "web1.raw")))["folders"] == [str(tmp_path / "link")]


def test_a_volume_is_what_its_pool_makes_of_it() -> None:
    located = {name: disk_of(asked(f"{name}/web1", "volume")) for name in ("images", "vg0", "ceph", "unknown")}
    assert {name: (disk["kind"], disk["path"]) for name, disk in located.items()} == {
        "images": ("file", "/srv/pool/web1"),
        "vg0": ("block", "/dev/vg0/web1"),
        "ceph": ("network", "ceph/web1"),
        "unknown": ("volume", ""),
    }
    assert located["images"]["folders"] == ["/srv/pool"]


def test_backing_files_of_a_running_domain_count_and_what_is_no_file_does_not() -> None:
    live = """<domain><devices><disk><target dev='vda'/><source file='/a/top'/><backingStore type='file'><source file='/srv/base/one'/>
              <backingStore type='network'><source name='two'/><backingStore/></backingStore></backingStore></disk></devices></domain>"""
    disk = disk_of(asked("/a/top"), live)
    assert (disk["backing"], disk["folders"]) == (["/srv/base/one"], ["/a", "/srv/base"])


def test_what_the_images_of_a_domain_that_is_off_are_built_on_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.BlockDevices, "identify", lambda self, path: (None, "lvm:x"))
    files = [{"role": "backing", "kind": kind, "source": path} for kind, path in (("file", "/srv/base"), ("block", "/dev/vg0/base"), ("network", ""))]
    disk = disk_of(asked("/a/top", files=files, files_problem="it cannot be read"))
    assert (disk["backing"], disk["backing_devices"], disk["folders"]) == (["/srv/base"], {"/dev/vg0/base": "lvm:x"}, ["/a", "/srv"])
    assert disk["backing_problem"] == "it cannot be read"


def test_what_runs_shows_its_whole_chain() -> None:
    live = "<domain><devices><disk type='file'><target dev='vda'/><source file='{}'/><backingStore/></disk></devices></domain>"
    unread = asked("/a/top", files=[], files_problem="it cannot be read")
    assert disk_of(unread, live.format("/a/top"))["backing_problem"] is None
    assert disk_of(unread, live.format("/a/other"))["backing_problem"] == "it cannot be read"


def test_other_files_have_the_folders_that_prove_them(tmp_path: pathlib.Path) -> None:
    (tmp_path / "web_VARS.fd").touch()
    needed = [
        ("nvram", "file", tmp_path / "web_VARS.fd"),
        ("nvram", "file", tmp_path / "none"),
        ("filesystem", "dir", tmp_path),
        ("tpm", "device", "/dev/tpm0"),
    ]
    found = Images([Mount("/", "ext4")]).files([{"what": what, "kind": kind, "path": str(path)} for what, kind, path in needed])
    assert [file["folders"] for file in found] == [[str(tmp_path)]] * 3 + [[]]
    assert [file["present"] for file in found[:3]] == [True, False, True]


def test_a_block_device_is_known_by_what_is_its_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"/dev/sdb": "wwn:0x5", "/dev/rbd0": "rbd:pool/image", "/dev/sdc": None}
    monkeypatch.setattr(module.BlockDevices, "identify", lambda self, path: (None, names[path]))
    assert {path: disk_of(asked(path, "block"))["wwn"] for path in names} == {"/dev/sdb": "wwn:0x5", "/dev/rbd0": None, "/dev/sdc": None}


def test_a_file_system_that_does_not_answer_costs_its_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: t.List[float] = []
    monkeypatch.setattr(module, "within", lambda seconds, ask: calls.append(seconds))
    images = Images([NFS])
    disks = images.disks([asked("/srv/nfs/web1"), asked("/srv/nfs/web2")], POOLS, None)
    assert [(disk["folders"], disk["mount"]) for disk in disks] == [(["/srv/nfs"], None)] * 2
    assert len(calls) == 1
