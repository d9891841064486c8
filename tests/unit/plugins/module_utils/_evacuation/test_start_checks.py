# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import pathlib
import struct
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import images, start_checks
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.start_checks import find_unproved, find_unproved_disks
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainToProbe, HostTokens, SavedDisk, SavedFile

HOST = str(uuid.UUID(int=1))


def overlay(path: pathlib.Path, backing: str) -> None:
    name = backing.encode()
    path.write_bytes(struct.pack(">4sIQI", b"QFI\xfb", 3, 512, len(name)).ljust(512, b"\0") + name)


@pytest.fixture
def given(tmp_path: pathlib.Path) -> HostTokens:
    return HostTokens(HOST, images.leave_tokens([str(tmp_path)], HOST)[0])


def disk(folder: pathlib.Path, **differing: t.Any) -> SavedDisk:
    known = SavedDisk("vda", "file", str(folder / "web"), False, False, (str(folder),), format="qcow2", backing=(), wwn=None)
    return dataclasses.replace(known, **differing)


def test_an_image_with_another_backing_file_than_saved_is_unseen(tmp_path: pathlib.Path, given: HostTokens) -> None:
    overlay(tmp_path / "web", "/srv/other")
    assert "/srv/other now" in find_unproved_disks([disk(tmp_path)], given)["vda"]
    assert find_unproved_disks([disk(tmp_path, backing=("/srv/other",))], given) == {}
    assert find_unproved_disks([disk(tmp_path, format="raw")], given) == {}
    assert find_unproved_disks([disk(tmp_path, format=None)], given) == {}


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


def test_a_network_disk_is_everywhere_unless_its_backing_is_local() -> None:
    network = SavedDisk("vda", "network", "pool/image", False, False, ())
    assert network.is_everywhere
    for more in ({"folders": ("/srv",)}, {"backing_devices": {"/dev/a": None}}, {"backing_problem": "x"}):
        assert not dataclasses.replace(network, **more).is_everywhere
