# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.shared_storage import compare_folders
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import SEPARATE, SHARED, UNPROVED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, Unreachable
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder


class BlindFolder(DirectoryFolder):
    """A folder whose listing is old, as that of a network file system can be."""

    def refresh_listing(self) -> None:
        pass


@pytest.fixture
def source_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def destination_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def test_different_folders_are_separate_and_no_token_is_left(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    folder = DirectoryFolder(destination_folder)
    assert compare_folders(str(source_folder / "web.qcow2"), folder).verdict == SEPARATE
    assert len(folder.made) == 1
    assert os.listdir(source_folder) == os.listdir(destination_folder) == []


def test_the_same_folder_is_shared_and_no_token_is_left(source_folder: pathlib.Path) -> None:
    assert compare_folders(str(source_folder / "web.qcow2"), DirectoryFolder(source_folder)).verdict == SHARED
    assert os.listdir(source_folder) == []


def test_a_shared_folder_with_a_stale_listing_is_recognised_from_the_source(source_folder: pathlib.Path) -> None:
    assert compare_folders(str(source_folder / "web.qcow2"), BlindFolder(source_folder)).verdict == SHARED
    assert os.listdir(source_folder) == []


def test_the_folder_of_a_link_target_is_compared_too(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    (destination_folder / "real.qcow2").touch()
    (source_folder / "web.qcow2").symlink_to(destination_folder / "real.qcow2")
    assert compare_folders(str(source_folder / "web.qcow2"), DirectoryFolder(destination_folder)).verdict == SHARED
    assert compare_folders(str(source_folder / "web.qcow2"), DirectoryFolder(source_folder)).verdict == SHARED


def test_a_destination_that_refuses_a_token_is_unproved(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    finding = compare_folders(str(source_folder / "web.qcow2"), DirectoryFolder(destination_folder, refuses=InvalidState("The folder is read-only.")))
    assert finding.verdict == UNPROVED
    assert "read-only" in finding.why
    assert os.listdir(source_folder) == []


def test_a_source_that_refuses_a_token_is_unproved(tmp_path: pathlib.Path, destination_folder: pathlib.Path) -> None:
    finding = compare_folders(str(tmp_path / "gone" / "web.qcow2"), DirectoryFolder(destination_folder))
    assert finding.verdict == UNPROVED
    assert "No such file" in finding.why


def test_a_lost_destination_is_unreachable(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    with pytest.raises(Unreachable):
        compare_folders(str(source_folder / "web.qcow2"), DirectoryFolder(destination_folder, refuses=Unreachable("kvm2 is gone.")))
    assert os.listdir(source_folder) == []


def test_the_token_of_a_killed_test_is_removed_by_a_later_one(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    prefix = ".kvmfleet-token-"
    left, running, filled = (source_folder / f"{prefix}{digit * 32}" for digit in "abc")
    others = [source_folder / f"{prefix}notes", source_folder / f"web{prefix}{'d' * 32}"]
    for path in (left, running, filled, *others):
        path.touch()
    filled.write_text("a person's", encoding="utf-8")
    for path in (left, filled, *others):
        os.utime(path, (0, path.stat().st_mtime - 2 * 86400))
    compare_folders(str(source_folder / "web.qcow2"), DirectoryFolder(destination_folder))
    assert sorted(source_folder.iterdir()) == sorted([running, filled, *others])
