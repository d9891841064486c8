# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._cold import state_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._cold.state_files import copy_files, find_irregular, list_paths, remove_copies
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.interface import Folder
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Permissions
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.shared_storage import Finding
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import Disk
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import CopiedFile
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import Renaming, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import NeededFile
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost

RECORD = "2c0a4f3e-8d5b-4b3f-a1d7-4f9f5f1e2b10"
THERE = "qemu+tcp://kvm2/system"


class Site:
    """Firmware variables in the folder C(here) of the source, whose path is C(there) at the destination."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.here, self.there = folder / "here", folder / "there"
        self.here.mkdir()
        self.there.mkdir()
        self.path = self.here / "web1_VARS.fd"
        self.path.write_bytes(b"variables")
        self.file = NeededFile("nvram", "file", str(self.path))
        self.fleet = FakeFleet("kvm1", "kvm2")
        self.fleet.destination.folders[str(self.here)] = DirectoryFolder(self.there)

    @property
    def host(self) -> FakeHost:
        return self.fleet.open(THERE)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.there.iterdir())


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    return Site(tmp_path)


def test_a_file_is_copied_with_its_checksum_and_nothing_else_is_left(site: Site) -> None:
    (copied,) = copy_files([site.file], site.host, UUID, RECORD)
    assert (copied.what, copied.path, copied.bytes) == ("nvram", str(site.path), 9)
    assert (site.names(), (site.there / "web1_VARS.fd").read_bytes()) == (["web1_VARS.fd"], b"variables")


def test_a_copy_is_noted_before_it_is_made_and_known_afterwards(site: Site) -> None:
    noted: list[CopiedFile] = []

    def note(copied: CopiedFile) -> None:
        assert site.names() == []
        noted.append(copied)

    copies = copy_files([site.file], site.host, UUID, RECORD, note=note)
    assert copies == noted
    # A later process of the move neither writes it again, nor takes it for a file that was there before.
    assert copy_files([site.file], site.host, UUID, RECORD, known=copies, note=lambda copied: pytest.fail("written again")) == copies


def test_an_equal_file_that_was_there_before_is_used_and_not_listed(site: Site) -> None:
    (site.there / "web1_VARS.fd").write_bytes(b"variables")
    assert copy_files([site.file], site.host, UUID, RECORD) == []
    assert site.names() == ["web1_VARS.fd"]


def test_a_file_is_copied_to_the_folder_that_the_destination_has_for_that_of_the_source(site: Site) -> None:
    renaming = Renaming("kvm1", "kvm2", ResourceMaps(images={"state": str(site.here)}), ResourceMaps(images={"state": "/data"}))
    site.fleet.destination.folders = {"/data": DirectoryFolder(site.there)}
    (copied,) = copy_files([site.file], site.host, UUID, RECORD, renaming)
    assert (copied.path, copied.destination_path, copied.path_there) == (str(site.path), "/data/web1_VARS.fd", "/data/web1_VARS.fd")
    assert (site.there / "web1_VARS.fd").read_bytes() == b"variables"
    remove_copies([copied], site.host)
    assert site.names() == []


def test_a_file_that_both_hosts_share_is_not_touched(site: Site) -> None:
    site.fleet.destination.folders[str(site.here)] = DirectoryFolder(site.here)
    assert copy_files([site.file], site.host, UUID, RECORD) == []
    assert sorted(path.name for path in site.here.iterdir()) == ["web1_VARS.fd"]


def test_a_folder_that_is_not_proved_to_be_another_one_is_refused(site: Site) -> None:
    site.fleet.destination.folders[str(site.here)] = DirectoryFolder(site.there, refuses=Internal("no space"))
    with pytest.raises(Unsafe, match="may be the file of the destination: no token"):
        copy_files([site.file], site.host, UUID, RECORD)
    assert site.names() == []


def test_an_older_file_at_the_destination_is_set_aside(site: Site) -> None:
    (site.there / "web1_VARS.fd").write_bytes(b"older")
    copy_files([site.file], site.host, UUID, RECORD)
    assert site.names() == ["web1_VARS.fd", f"web1_VARS.fd.before-{RECORD}"]
    assert (site.there / f"web1_VARS.fd.before-{RECORD}").read_bytes() == b"older"


def test_a_file_that_a_killed_process_has_set_aside_is_replaced(site: Site) -> None:
    aside = site.there / f"web1_VARS.fd.before-{RECORD}"
    for path in (aside, site.there / "web1_VARS.fd"):
        path.write_bytes(b"older")
    copy_files([site.file], site.host, UUID, RECORD)
    assert (aside.read_bytes(), (site.there / "web1_VARS.fd").read_bytes()) == (b"older", b"variables")


@pytest.mark.parametrize("content", [b"of another", b"variables", None])
def test_a_file_that_another_domain_of_the_destination_needs_is_not_touched(site: Site, content: bytes | None) -> None:
    if content is not None:
        (site.there / "web1_VARS.fd").write_bytes(content)
    site.fleet.guest("other", "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02", on="kvm2", disks=(Disk("vda", "file", str(site.path)),))
    with pytest.raises(Conflict, match="Domain other at the destination needs the file"):
        copy_files([site.file], site.host, UUID, RECORD)
    assert [path.read_bytes() for path in site.there.iterdir()] == ([] if content is None else [content])


def test_a_domain_that_needs_a_file_of_a_similar_name_does_not_hinder(site: Site) -> None:
    site.fleet.guest("other", "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02", on="kvm2", disks=(Disk("vda", "file", f"{site.path}.bak"),))
    assert len(copy_files([site.file], site.host, UUID, RECORD)) == 1


def test_a_copy_that_differs_is_reported(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(folder: DirectoryFolder, name: str, new_name: str, permissions: Permissions) -> None:
        folder.write_file(new_name, b"varixbles", permissions)

    monkeypatch.setattr(DirectoryFolder, "copy_file", spoil)
    with pytest.raises(Internal, match="is not what was sent there"):
        copy_files([site.file], site.host, UUID, RECORD)


def test_a_file_that_is_too_large_is_not_copied(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "MAX_BYTES", 8)
    with pytest.raises(NotSupported, match="is larger than"):
        copy_files([site.file], site.host, UUID, RECORD)


def test_a_tpm_has_all_files_of_its_folder_but_the_lock(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / UUID / "tpm2"
    folder.mkdir(parents=True)
    for name in (".lock", "tpm2-00.permall", "tpm2-00.volatilestate"):
        (folder / name).write_bytes(b"x")
    found = list_paths(NeededFile("tpm", "file", str(tmp_path / UUID)))
    assert found == [str(folder / "tpm2-00.permall"), str(folder / "tpm2-00.volatilestate")]
    assert list_paths(NeededFile("nvram", "file", str(tmp_path / "missing"))) == []
    assert list_paths(NeededFile("nvram", "network", str(folder / "tpm2-00.permall"))) == []


def test_variables_behind_a_link_are_not_left_behind(site: Site) -> None:
    elsewhere = site.here.parent / "web1_VARS.fd"
    site.path.rename(elsewhere)
    site.path.symlink_to(elsewhere)
    with pytest.raises(NotSupported, match=f"is a symbolic link to {elsewhere}"):
        copy_files([site.file], site.host, UUID, RECORD)
    assert site.names() == []


@pytest.mark.parametrize("is_folder", [False, True])
def test_the_state_of_a_tpm_behind_a_link_is_not_left_behind(site: Site, is_folder: bool) -> None:
    folder, elsewhere = site.here / UUID, site.here.parent / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "tpm2-00.permall").write_bytes(b"keys")
    if is_folder:
        (folder / "tpm2").symlink_to(elsewhere)
    else:
        (folder / "tpm2-00.permall").symlink_to(elsewhere / "tpm2-00.permall")
    with pytest.raises(NotSupported, match="is a symbolic link to"):
        copy_files([site.file, NeededFile("tpm", "file", str(folder))], site.host, UUID, RECORD)
    # Nothing is copied before all files are known to be complete.
    assert site.names() == []


@pytest.mark.parametrize("becomes", ["link", "pipe"])
def test_variables_that_become_a_link_or_a_pipe_after_they_were_examined_are_not_read(
    site: Site, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    """The user of QEMU or swtpm owns some of these folders, and the copy of a file of root would belong to that user."""
    secret, compare = tmp_path / "shadow", state_files.compare_folders
    secret.write_bytes(b"secret")

    def swap(path: str, folder: Folder) -> Finding:
        site.path.unlink()
        if becomes == "link":
            site.path.symlink_to(secret)
        else:
            os.mkfifo(site.path)
        return compare(path, folder)

    monkeypatch.setattr(state_files, "compare_folders", swap)
    with pytest.raises(NotSupported, match="is not a regular file any more"):
        copy_files([site.file], site.host, UUID, RECORD)
    assert site.names() == []


def test_a_folder_that_is_reached_by_a_link_is_copied(site: Site) -> None:
    (site.here.parent / "link").symlink_to(site.here)
    site.fleet.destination.folders[str(site.here.parent / "link")] = DirectoryFolder(site.there)
    copy_files([NeededFile("nvram", "file", str(site.here.parent / "link/web1_VARS.fd"))], site.host, UUID, RECORD)
    assert (site.there / "web1_VARS.fd").read_bytes() == b"variables"


def test_what_is_no_regular_file_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert find_irregular(NeededFile("nvram", "file", str(tmp_path))) == f"its file {tmp_path} (firmware variables) is not a regular file."
    assert "cannot be examined" in find_irregular(NeededFile("nvram", "file", str(tmp_path / "loop/web1_VARS.fd")))
    assert find_irregular(NeededFile("nvram", "file", str(tmp_path / "missing"))) == ""
    assert find_irregular(NeededFile("nvram", "network", "")) == ""


def test_only_unchanged_copies_are_removed(site: Site) -> None:
    copies = copy_files([site.file], site.host, UUID, RECORD)
    (site.there / "web1_VARS.fd").write_bytes(b"changed since")
    remove_copies(copies, site.host)
    assert site.names() == ["web1_VARS.fd"]
    (site.there / "web1_VARS.fd").write_bytes(b"variables")
    remove_copies(copies, site.host)
    remove_copies(copies, site.host)
    assert site.names() == []


def test_a_file_with_the_longest_name_is_copied(site: Site) -> None:
    """Otherwise, its guest would be shut down at each try, and then be started again on its source."""
    path = site.path.rename(site.path.with_name(f"{'w' * 247}_VARS.fd"))
    copy_files([NeededFile("nvram", "file", str(path))], site.host, UUID, RECORD)
    assert site.names() == [path.name]


def test_a_file_with_a_long_name_is_set_aside_by_its_beginning(site: Site) -> None:
    path = site.path.rename(site.path.with_name(f"{'ü' * 120}_VARS.fd"))
    (site.there / path.name).write_bytes(b"older")
    copy_files([NeededFile("nvram", "file", str(path))], site.host, UUID, RECORD)
    aside = f"{'ü' * 105}.before-{RECORD}"
    assert site.names() == sorted([path.name, aside])
    assert (site.there / aside).read_bytes() == b"older"
