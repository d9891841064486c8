# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidState, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._storage.token import SEPARATE, SHARED, UNPROVED, compare
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder


class BlindFolder(DirectoryFolder):
    """A folder whose listing is old, as that of a network file system can be."""

    def look(self) -> None:
        pass


@pytest.fixture
def here(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def test_two_folders_are_two_stores_and_nothing_is_left(here: pathlib.Path, there: pathlib.Path) -> None:
    folder = DirectoryFolder(there)
    assert compare(str(here / "web.qcow2"), folder).verdict == SEPARATE
    assert len(folder.made) == 1
    assert os.listdir(here) == os.listdir(there) == []


def test_one_folder_is_one_store_and_nothing_is_left(here: pathlib.Path) -> None:
    assert compare(str(here / "web.qcow2"), DirectoryFolder(here)).verdict == SHARED
    assert os.listdir(here) == []


def test_a_destination_with_an_old_listing_is_seen_through_from_the_source(here: pathlib.Path) -> None:
    assert compare(str(here / "web.qcow2"), BlindFolder(here)).verdict == SHARED
    assert os.listdir(here) == []


def test_the_folder_behind_a_link_counts_as_well(here: pathlib.Path, there: pathlib.Path) -> None:
    (there / "real.qcow2").touch()
    (here / "web.qcow2").symlink_to(there / "real.qcow2")
    assert compare(str(here / "web.qcow2"), DirectoryFolder(there)).verdict == SHARED
    assert compare(str(here / "web.qcow2"), DirectoryFolder(here)).verdict == SHARED


def test_a_destination_that_takes_no_file_proves_nothing(here: pathlib.Path, there: pathlib.Path) -> None:
    finding = compare(str(here / "web.qcow2"), DirectoryFolder(there, refuses=InvalidState("The folder is read-only.")))
    assert finding.verdict == UNPROVED
    assert "read-only" in finding.why
    assert os.listdir(here) == []


def test_a_source_that_takes_no_file_proves_nothing(tmp_path: pathlib.Path, there: pathlib.Path) -> None:
    finding = compare(str(tmp_path / "gone" / "web.qcow2"), DirectoryFolder(there))
    assert finding.verdict == UNPROVED
    assert "No such file" in finding.why


def test_a_destination_that_is_gone_is_no_finding(here: pathlib.Path, there: pathlib.Path) -> None:
    with pytest.raises(Unreachable):
        compare(str(here / "web.qcow2"), DirectoryFolder(there, refuses=Unreachable("kvm2 is gone.")))
    assert os.listdir(here) == []
