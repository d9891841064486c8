# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import CopiedStorage, DiskCopy
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.calls import has_made, make_targets, remove_targets
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder, FakeStorageHost, put_image
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import record_of


class Move:
    """A record that copies one disk, the folders of both hosts, and what was written down."""

    def __init__(self, folder: pathlib.Path, action: str = "create") -> None:
        self.here, self.there = folder / "here", folder / "there"
        self.here.mkdir()
        self.there.mkdir()
        self.path = str(self.here / "web.qcow2")
        copy = DiskCopy(target="vda", path=self.path, format="qcow2", capacity_bytes=100, bytes=60, action=action, made=False)
        self.record = dataclasses.replace(record_of(), storage=CopiedStorage("auto", (copy,)))
        self.host = FakeStorageHost({str(self.here): DirectoryFolder(self.there)})
        self.acts: t.List[str] = []

    def make(self) -> None:
        make_targets(self, t.cast(t.Any, self.host))

    def remove(self) -> t.List[str]:
        return remove_targets(self, t.cast(t.Any, self.host))

    def intend_act(self, act: str, detail: str) -> None:
        self.acts.append(act)


def test_a_record_without_storage_copies_nothing() -> None:
    assert record_of().disk_copies == ()
    assert not has_made(record_of())


def test_a_target_is_created_and_removed_again(tmp_path: pathlib.Path) -> None:
    move = Move(tmp_path)
    move.make()
    assert os.listdir(move.there) == ["web.qcow2"]
    assert move.acts == ["make_target", "make_target_done"]
    assert has_made(move.record)
    assert move.remove() == [move.path]
    assert os.listdir(move.there) == []
    assert not has_made(move.record)
    assert move.remove() == []


def test_a_file_that_appeared_meanwhile_is_a_conflict_and_never_removed(tmp_path: pathlib.Path) -> None:
    move = Move(tmp_path)
    put_image(move.there / "web.qcow2", capacity=7)
    with pytest.raises(Conflict, match="vda"):
        move.make()
    assert move.remove() == []
    assert '"capacity": 7' in (move.there / "web.qcow2").read_text()


def test_a_link_is_replaced_and_its_target_is_kept(tmp_path: pathlib.Path) -> None:
    move = Move(tmp_path, "replace")
    put_image(tmp_path / "precious", capacity=7)
    (move.there / "web.qcow2").symlink_to(tmp_path / "precious")
    move.make()
    assert not (move.there / "web.qcow2").is_symlink()
    assert '"capacity": 7' in (tmp_path / "precious").read_text()


def test_an_existing_target_to_fill_is_not_changed_and_never_removed(tmp_path: pathlib.Path) -> None:
    move = Move(tmp_path, "fill")
    with pytest.raises(NotFound):
        move.make()
    put_image(move.there / "web.qcow2", capacity=100)
    move.make()
    assert move.acts == []
    assert move.remove() == []
    assert os.listdir(move.there) == ["web.qcow2"]


def test_a_folder_that_became_shared_is_not_written_to(tmp_path: pathlib.Path) -> None:
    move = Move(tmp_path, "replace")
    put_image(move.here / "web.qcow2", capacity=7)
    move.host.folders[str(move.here)] = DirectoryFolder(move.here)
    with pytest.raises(Unsafe, match="no longer proved separate"):
        move.make()
    assert '"capacity": 7' in (move.here / "web.qcow2").read_text()


def test_a_file_that_a_domain_uses_meanwhile_is_neither_replaced_nor_removed(tmp_path: pathlib.Path) -> None:
    move = Move(tmp_path, "replace")
    move.host.users[move.path] = ["db1"]
    with pytest.raises(Conflict, match="db1"):
        move.make()
    move.host.users.clear()
    move.make()
    move.host.users[move.path] = ["db1"]
    assert move.remove() == []
    assert os.listdir(move.there) == ["web.qcow2"]


def test_a_target_without_free_space_is_a_conflict(tmp_path: pathlib.Path) -> None:
    move = Move(tmp_path)
    move.host.folders[str(move.here)] = DirectoryFolder(move.there, available=59)
    with pytest.raises(Conflict, match="no longer enough space"):
        move.make()
    assert os.listdir(move.there) == []
