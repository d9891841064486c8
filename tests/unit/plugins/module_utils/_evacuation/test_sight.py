# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import struct
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import sight, tokens
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.sight import is_everywhere, unseen, why_unseen

HOST = str(uuid.UUID(int=1))


def overlay(path: pathlib.Path, backing: str) -> None:
    name = backing.encode()
    path.write_bytes(struct.pack(">4sIQI", b"QFI\xfb", 3, 512, len(name)).ljust(512, b"\0") + name)


@pytest.fixture
def given(tmp_path: pathlib.Path) -> t.Dict[str, t.Any]:
    return {"host_id": HOST, "folders": tokens.leave([str(tmp_path)], HOST)[0]}


def disk(folder: pathlib.Path, **differing: t.Any) -> t.Dict[str, t.Any]:
    known = {"target": "vda", "kind": "file", "path": str(folder / "web"), "optional": False, "folders": [str(folder)], "wwn": None, "format": "qcow2"}
    return {**known, "backing": [], **differing}


def test_an_image_that_is_built_on_another_file_by_now_is_not_the_one_that_was_saved(tmp_path: pathlib.Path, given: t.Dict[str, t.Any]) -> None:
    overlay(tmp_path / "web", "/srv/other")
    assert "/srv/other now" in unseen([disk(tmp_path)], given)["vda"]
    assert unseen([disk(tmp_path, backing=["/srv/other"])], given) == {}
    assert unseen([disk(tmp_path, format="raw")], given) == {}
    assert unseen([disk(tmp_path, format=None)], given) == {}


def test_a_device_that_an_image_is_built_on_has_to_be_here(tmp_path: pathlib.Path, given: t.Dict[str, t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sight.Images, "identity_of", lambda self, path: {"/dev/a": "wwn:1"}.get(path))
    assert unseen([disk(tmp_path, backing_devices={"/dev/a": "wwn:1"})], given) == {}
    assert "wwn:2 is not here" in unseen([disk(tmp_path, backing_devices={"/dev/b": "wwn:2"})], given)["vda"]


def test_files_beside_the_disks_are_looked_for(tmp_path: pathlib.Path, given: t.Dict[str, t.Any]) -> None:
    (tmp_path / "old").touch()
    file = {"what": "nvram", "kind": "file", "path": str(tmp_path / "none"), "folders": [str(tmp_path)], "wwn": None}
    domain = {"disks": [], "tokens": given, "files": [{**file, "present": True}], "fresh": [str(tmp_path / "old"), str(tmp_path / "new")]}
    assert {name: why.partition(":")[0] for name, why in why_unseen(domain).items()} == {
        f"firmware variables {tmp_path / 'none'}": "it is not here any more",
        str(tmp_path / "old"): "it is here already, and would be used in place of a fresh one",
    }
    # One that was never made is made where it is first needed.
    assert why_unseen({**domain, "files": [{**file, "present": False}], "fresh": []}) == {}


def test_a_network_disk_is_everywhere_unless_it_is_built_on_something_of_its_host() -> None:
    network = {"kind": "network", "folders": []}
    assert is_everywhere(network)
    assert not any(is_everywhere({**network, **more}) for more in ({"folders": ["/srv"]}, {"backing_devices": {"/dev/a": None}}, {"backing_problem": "x"}))
