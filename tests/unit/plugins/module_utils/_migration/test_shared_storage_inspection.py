# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import shared_storage as inspection
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.shared_storage import inspect_images
from ansible_collections.kvmfleet.migration.tests.unit.fakes.folder import DirectoryFolder, FakeStorageHost, image, put_image


@pytest.fixture
def source_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "here").mkdir()
    put_image(tmp_path / "here" / "web.qcow2")
    return tmp_path / "here"


@pytest.fixture
def destination_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def facts_of(source_folder: pathlib.Path, host: FakeStorageHost, **facts: t.Any) -> t.Dict[str, t.Any]:
    return inspect_images([image(source_folder / "web.qcow2", **facts)], t.cast(t.Any, host))[0]


def test_an_image_without_a_file_at_the_destination_is_separate(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    facts = facts_of(source_folder, FakeStorageHost({str(source_folder): DirectoryFolder(destination_folder, available=7)}))
    assert (facts["verdict"], facts["existing"], facts["used_by"], facts["available_bytes"]) == ("separate", None, [], 7)
    assert facts["image"]["target"] == "vda"


def test_users_of_the_file_at_the_destination_are_listed(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    put_image(destination_folder / "web.qcow2", capacity=50)
    put_image(destination_folder / "overlay.qcow2", backing=str(source_folder / "web.qcow2"))
    facts = facts_of(source_folder, FakeStorageHost({str(source_folder): DirectoryFolder(destination_folder)}, {str(source_folder / "web.qcow2"): ["db1"]}))
    assert facts["used_by"] == ["db1", "overlay.qcow2"]
    assert facts["existing"]["capacity_bytes"] == 50


def test_a_missing_folder_at_the_destination_is_unproved(source_folder: pathlib.Path) -> None:
    facts = facts_of(source_folder, FakeStorageHost({}))
    assert facts["verdict"] == "unproved"
    assert f"no folder {source_folder}" in facts["why"]


@pytest.mark.parametrize(("kind", "verdict"), [("network", "shared"), ("block", "unproved"), ("dir", "unproved"), ("nvme", "unproved")])
def test_disks_that_are_not_files_are_judged_by_their_kind(source_folder: pathlib.Path, destination_folder: pathlib.Path, kind: str, verdict: str) -> None:
    host = FakeStorageHost({str(source_folder): DirectoryFolder(destination_folder)})
    assert facts_of(source_folder, host, kind=kind)["verdict"] == verdict
    assert host.opened == []


def test_a_folder_is_compared_once_for_all_its_images(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    folder = DirectoryFolder(destination_folder)
    host = FakeStorageHost({str(source_folder): folder})
    facts = inspect_images([image(source_folder / "web.qcow2"), image(source_folder / "data.qcow2", target="vdb")], t.cast(t.Any, host))
    assert [disk["verdict"] for disk in facts] == ["separate", "separate"]
    assert len(folder.made) == 1


def test_a_file_with_nearly_the_same_age_may_be_the_same_file(
    source_folder: pathlib.Path, destination_folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_image(destination_folder / "web.qcow2")
    host = FakeStorageHost({str(source_folder): DirectoryFolder(destination_folder)})
    assert "30 s" in facts_of(source_folder, host)["same_file"]
    monkeypatch.setattr(inspection, "_SETTLED_SECONDS", -1.0)
    assert facts_of(source_folder, host)["same_file"] == ""


def test_an_image_that_cannot_be_inspected_may_be_the_same_file(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    put_image(destination_folder / "web.qcow2")
    os.unlink(source_folder / "web.qcow2")
    assert "cannot be examined" in facts_of(source_folder, FakeStorageHost({str(source_folder): DirectoryFolder(destination_folder)}))["same_file"]


def test_a_backing_file_at_the_same_path_must_have_the_same_content(source_folder: pathlib.Path, destination_folder: pathlib.Path) -> None:
    base = bytes(range(256)) * 40000
    put_image(destination_folder / "web.qcow2")
    host = FakeStorageHost({str(source_folder): DirectoryFolder(destination_folder)})

    def other_base() -> str:
        return str(facts_of(source_folder, host, has_backing=True, backing=(str(source_folder / "base"),))["other_base"])

    (source_folder / "base").write_bytes(base)
    assert "is not there" in other_base()
    (destination_folder / "base").write_bytes(base)
    assert other_base() == ""
    for different in (base[:-1] + b"x", base + b"x", base[:-1], bytes(len(base)), b""):
        (destination_folder / "base").write_bytes(different)
        assert "another file" in other_base()
    (source_folder / "base").unlink()
    assert "cannot be read on the source" in other_base()
    assert "not a file" in facts_of(source_folder, host, has_backing=True, backing=("",))["other_base"]


def test_the_base_that_the_target_names_is_compared(source_folder: pathlib.Path, destination_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The destination may have the folder of the base at another path, and at this path something else."""
    put_image(destination_folder / "web.qcow2", backing="/data/./base")
    for folder, content in ((source_folder, b"gold"), (destination_folder, b"gold"), (tmp_path, b"lead")):
        (folder / "base").write_bytes(content)
    host = FakeStorageHost({str(source_folder): DirectoryFolder(destination_folder), "/data": DirectoryFolder(tmp_path)})
    base = {"has_backing": True, "backing": (str(source_folder / "base"),)}
    assert "/data/base on the destination is another file" in facts_of(source_folder, host, **base)["other_base"]
    (tmp_path / "base").write_bytes(b"gold")
    assert facts_of(source_folder, host, **base)["other_base"] == ""
    host.folders.pop("/data")
    assert facts_of(source_folder, host, **base)["other_base"] == "/data/base is not there"


def test_a_backing_file_in_a_shared_folder_is_not_read(source_folder: pathlib.Path, destination_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    put_image(destination_folder / "web.qcow2")
    (tmp_path / "base").touch()
    host = FakeStorageHost({str(source_folder): DirectoryFolder(destination_folder), str(tmp_path): DirectoryFolder(tmp_path)})
    assert facts_of(source_folder, host, has_backing=True, backing=(str(tmp_path / "base"),))["other_base"] == ""
