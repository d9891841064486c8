# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import os
import pathlib
import struct
import threading
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import images, start_checks
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.images import ImageLocator
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.start_checks import (
    find_other_volumes,
    find_unproved,
    list_volumes,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import storage_queries
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.mounts import Mount
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import StoragePool
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DiskNeed, DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainToProbe, HostTokens, SavedDisk, SavedFile

HOST = str(uuid.UUID(int=1))


def overlay(path: pathlib.Path, backing: str) -> None:
    name = backing.encode()
    path.write_bytes(struct.pack(">4sIQI", b"QFI\xfb", 3, 512, len(name)).ljust(512, b"\0") + name)


@pytest.fixture
def given(tmp_path: pathlib.Path) -> HostTokens:
    return HostTokens(HOST, images.leave_tokens([str(tmp_path)], HOST)[0])


def find_unproved_disks(disks: t.Sequence[SavedDisk], tokens: HostTokens) -> dict[str, str]:
    return start_checks.find_unproved_disks(disks, tokens, ImageLocator())


def disk(folder: pathlib.Path, **differing: t.Any) -> SavedDisk:
    known = SavedDisk("vda", "file", str(folder / "web"), False, False, (str(folder),), format="qcow2", backing=(), wwn=None)
    return dataclasses.replace(known, **differing)


def test_an_image_with_another_backing_file_than_saved_is_unseen(tmp_path: pathlib.Path, given: HostTokens) -> None:
    overlay(tmp_path / "web", "/srv/other")
    assert "/srv/other now" in find_unproved_disks([disk(tmp_path)], given)["vda"]
    assert find_unproved_disks([disk(tmp_path, backing=("/srv/other",))], given) == {}
    assert find_unproved_disks([disk(tmp_path, format="raw")], given) == {}
    assert find_unproved_disks([disk(tmp_path, format=None)], given) == {}


def test_an_image_on_a_device_with_another_backing_file_than_saved_is_unseen(
    tmp_path: pathlib.Path, given: HostTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageLocator, "find_device_identity", lambda _locator, path: f"lvm:{path}")
    device, bases = str(tmp_path / "web"), {"/dev/vg0/base": "lvm:/dev/vg0/base"}
    saved = disk(tmp_path, kind="block", format="qcow2", path=device, folders=(), wwn=f"lvm:{device}", backing=(), backing_devices=bases)
    overlay(tmp_path / "web", "/dev/vg0/base")
    assert find_unproved_disks([saved], given) == {}
    overlay(tmp_path / "web", "/dev/vg0/other")
    assert "/dev/vg0/other now, which was not proved" in find_unproved_disks([saved], given)["vda"]


def write_at(path: pathlib.Path, second: int, backing: pathlib.Path | None = None) -> None:
    """Write an image, built on another one or plain, with that time of its last write."""
    if backing:
        overlay(path, str(backing))
    else:
        path.touch()
    os.utime(path, (second, second))


@pytest.mark.parametrize("image_format", ["raw", "qcow2"])
def test_an_image_on_which_a_later_one_is_built_is_not_started(tmp_path: pathlib.Path, given: HostTokens, image_format: str) -> None:
    """A backup has made a snapshot since the domain was saved: what the guest has written since then is in the overlay."""
    base, first, second = tmp_path / "web", tmp_path / "web.backup", tmp_path / "web.backup2"
    write_at(base, 100)
    write_at(first, 200, base)
    write_at(second, 300, first)
    why = find_unproved_disks([disk(tmp_path, format=image_format)], given)["vda"]
    assert why.startswith(f"{second} is built on it and was written later")
    # It was merged, and left.
    write_at(base, 400)
    assert find_unproved_disks([disk(tmp_path, format=image_format)], given) == {}


@pytest.mark.parametrize("named", ["{folder}//web", "{folder}/./web", "{folder}/link/web"])
def test_a_later_overlay_is_found_however_the_definition_writes_the_path(tmp_path: pathlib.Path, given: HostTokens, named: str) -> None:
    """libvirt gives the overlay the path of the definition, with its slashes; a backup program may give it the path without links."""
    (tmp_path / "link").symlink_to(tmp_path)
    write_at(tmp_path / "web", 100)
    write_at(tmp_path / "web.snap", 200, tmp_path / "web")
    path = named.format(folder=tmp_path)
    assert "web.snap is built on it and was written later" in find_unproved_disks([disk(tmp_path, path=path)], given)["vda"]


@pytest.mark.parametrize(("name", "backing", "differing"), [("web.old", "other", {}), ("clone", "web", {}), ("web.snap", "web", {"readonly": True})])
def test_other_images_of_the_folder_prevent_no_start(tmp_path: pathlib.Path, given: HostTokens, name: str, backing: str, differing: dict[str, t.Any]) -> None:
    write_at(tmp_path / "web", 100)
    write_at(tmp_path / name, 200, tmp_path / backing)
    assert find_unproved_disks([disk(tmp_path, **differing)], given) == {}


@pytest.mark.parametrize(("state", "refused"), [("shut off", False), ("running", True), (ABSENT, True)])
def test_a_template_that_stays_off_may_have_later_clones(tmp_path: pathlib.Path, given: HostTokens, state: t.Any, refused: bool) -> None:
    write_at(tmp_path / "web", 100)
    write_at(tmp_path / "web-clone1", 200, tmp_path / "web")
    template = DomainToProbe("uuid", (disk(tmp_path),), (), (), given, {}, state)
    assert list(find_unproved(template)) == ["disk vda"] * refused


def test_an_image_whose_base_was_written_later_is_not_started(tmp_path: pathlib.Path, given: HostTokens) -> None:
    """The snapshot was merged into its base since the domain was saved, and its file was left."""
    base = tmp_path / "base"
    write_at(tmp_path / "web", 100, base)
    write_at(base, 200)
    saved = disk(tmp_path, backing=(str(base),))
    assert find_unproved_disks([saved], given)["vda"].startswith(f"its base {base} was written later")
    # What the bytes of a raw image look like is up to its guest.
    assert find_unproved_disks([dataclasses.replace(saved, format="raw", backing=())], given) == {}
    write_at(base, 50)
    assert find_unproved_disks([saved], given) == {}


@pytest.mark.parametrize(("slow", "image_format"), [("list_files_below", "qcow2"), ("_find_later_overlay", "raw")])
def test_an_image_that_cannot_be_read_in_time_is_not_started(
    tmp_path: pathlib.Path, given: HostTokens, monkeypatch: pytest.MonkeyPatch, slow: str, image_format: str
) -> None:
    """Its token may come from a cache. Whether a snapshot was made since it was saved is then not known."""
    write_at(tmp_path / "web", 100)
    write_at(tmp_path / "web.snap1", 200, tmp_path / "web")
    is_over = threading.Event()
    monkeypatch.setattr(storage_queries, "STORAGE_SECONDS", 0.1)
    monkeypatch.setattr(start_checks, slow, lambda path: is_over.wait(60) and [])
    why = find_unproved_disks([disk(tmp_path, format=image_format)], given)
    is_over.set()
    assert why == {"vda": "its file system does not answer, so that it is not known whether a snapshot was made or merged since it was saved"}


def test_a_file_that_a_start_has_to_create_is_looked_for_in_time(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, is_over = str(tmp_path / "vars.fd"), threading.Event()
    monkeypatch.setattr(storage_queries, "STORAGE_SECONDS", 0.1)
    monkeypatch.setattr(os.path, "lexists", lambda path: is_over.wait(60))
    stale = start_checks.find_stale_files([path], ImageLocator([Mount("/", "ext4")]).storage)
    is_over.set()
    assert stale == {path: "its file system does not answer, so that it is not known whether it already exists on this host"}


def test_a_missing_backing_device_makes_a_disk_unseen(tmp_path: pathlib.Path, given: HostTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_checks.ImageLocator, "find_device_identity", lambda self, path: {"/dev/a": "wwn:1"}.get(path))
    assert find_unproved_disks([disk(tmp_path, backing_devices={"/dev/a": "wwn:1"})], given) == {}
    assert "wwn:2 is not on this host" in find_unproved_disks([disk(tmp_path, backing_devices={"/dev/b": "wwn:2"})], given)["vda"]


def test_other_needed_files_are_checked(tmp_path: pathlib.Path, given: HostTokens) -> None:
    (tmp_path / "old").touch()
    file = SavedFile("nvram", "file", str(tmp_path / "none"), (str(tmp_path),), present=True)
    domain = DomainToProbe("uuid", (), (file,), (str(tmp_path / "old"), str(tmp_path / "new")), given, {})
    assert {name: why.partition(":")[0] for name, why in find_unproved(domain).items()} == {
        f"firmware variables {tmp_path / 'none'}": "it no longer exists on this host",
        str(tmp_path / "old"): "it already exists on this host, and would be used instead of a fresh one",
    }
    # One that was never made is made where it is first needed.
    assert find_unproved(dataclasses.replace(domain, files=(dataclasses.replace(file, present=False),), fresh=())) == {}
    # One that exists may be another one.
    file = dataclasses.replace(file, path=str(tmp_path / "old"), folders=("/elsewhere",))
    unproved = find_unproved(dataclasses.replace(domain, files=(file,), fresh=()))
    assert unproved == {f"firmware variables {file.path}": "the token that its host left in /elsewhere is not visible on this host"}


def test_a_network_disk_is_everywhere_unless_its_backing_is_local() -> None:
    network = SavedDisk("vda", "network", "pool/image", False, False, ())
    assert network.is_everywhere
    for more in ({"folders": ("/srv",)}, {"backing_devices": {"/dev/a": None}}, {"backing_problem": "x"}):
        assert not dataclasses.replace(network, **more).is_everywhere


def test_a_volume_that_is_another_file_in_the_pool_of_this_host_is_found(tmp_path: pathlib.Path) -> None:
    disks = (DiskNeed("vda", kind="volume", source="images/web"), DiskNeed("vdb", kind="file", source="/srv/db"))
    volumes = list_volumes(DomainRequest(1024, 1, disks=disks))
    assert volumes == {"vda": "images/web"}
    pools = [StoragePool("images", "dir", path="/var/lib/libvirt/images")]
    beside = disk(tmp_path, target="vdb", path="/srv/db")
    assert find_other_volumes([beside, disk(tmp_path, path="/var/lib/libvirt/images/web")], volumes, pools) == {}
    assert "which is the file /var/lib/libvirt/images/web on this host" in find_other_volumes([disk(tmp_path)], volumes, pools)["disk vda"]


def test_an_optional_disk_is_left_out_only_if_its_path_does_not_exist(tmp_path: pathlib.Path, given: HostTokens) -> None:
    other = str(tmp_path / "elsewhere")
    optional = disk(tmp_path, optional=True, folders=(other,))
    assert find_unproved_disks([optional], given) == {}
    (tmp_path / "web").touch()
    assert f"the token that its host left in {other} is not visible" in find_unproved_disks([optional], given)["vda"]
    # libvirt may leave it out, and the guest cannot write to it.
    assert find_unproved_disks([dataclasses.replace(optional, readonly=True)], given) == {}


def test_an_optional_disk_whose_path_does_not_answer_has_to_be_proved(tmp_path: pathlib.Path, given: HostTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_queries.StorageQueries, "ask", lambda storage, folder, question: None)
    assert find_unproved_disks([disk(tmp_path, optional=True)], given)


@pytest.mark.parametrize(("kind", "path"), [("nvme", "pci:0000:01:00.0/1"), ("vhostvdpa", "/dev/vhost-vdpa-0"), ("vhostuser", "/run/disk.sock")])
def test_a_disk_of_another_kind_is_never_proved(tmp_path: pathlib.Path, given: HostTokens, kind: str, path: str) -> None:
    assert f"of the kind {kind!r} cannot be proved" in find_unproved_disks([disk(tmp_path, kind=kind, path=path, folders=())], given)["vda"]


def test_a_network_disk_that_its_own_host_serves_is_not_proved(tmp_path: pathlib.Path, given: HostTokens) -> None:
    served = disk(tmp_path, kind="network", path="export", folders=(), format="raw", shared=None)
    assert not served.is_everywhere
    assert "served by its own host" in find_unproved_disks([served], given)["vda"]
    for shared in (True, ABSENT):
        assert find_unproved_disks([dataclasses.replace(served, shared=shared)], given) == {}


def test_a_file_server_that_hangs_is_waited_for_twice_whatever_is_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guests on other storage wait for these answers, while their host is dead."""
    monkeypatch.setattr(storage_queries, "STORAGE_SECONDS", 0.01)
    asked, is_over = [], threading.Event()

    def hang(folder: str, _host_id: str, _nonce: str) -> bool:
        asked.append(folder)
        return is_over.wait(60)

    monkeypatch.setattr(images, "is_token_seen", hang)
    locator = ImageLocator([Mount("/", "ext4"), Mount("/srv", "nfs4", source="nas:/srv")])
    folders = [f"/srv/vm{number}" for number in range(40)]
    tokens = HostTokens(HOST, dict.fromkeys(folders, HOST))
    reasons = [find_unproved(DomainToProbe(HOST, (disk(pathlib.Path(folder)),), (), (), tokens, {}), locator) for folder in folders]
    locks = start_checks.read_lock_states([f"{folder}/web" for folder in folders], False, locator.storage)
    is_over.set()
    assert asked == folders[:2]
    assert {why["disk vda"].partition("(")[2] for why in reasons} == {f"the file system of {folder} does not answer)" for folder in folders}
    assert {one["state"] for one in locks.values()} == {"unprovable"}
