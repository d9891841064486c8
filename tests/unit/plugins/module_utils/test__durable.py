# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file that survives a power cut has its old content or its new one, and nothing else is left beside it."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _durable


def test_a_file_is_replaced_with_its_mode_whatever_the_umask_is(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "token.json"
    before = os.umask(0o077)
    try:
        for text in ("old", "new"):
            _durable.replace_file(str(path), text, 0o644)
    finally:
        os.umask(before)
    assert (path.read_text(), path.stat().st_mode & 0o777, os.listdir(tmp_path)) == ("new", 0o644, ["token.json"])


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_disk_that_fails_leaves_the_old_content_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "token.json"
    path.write_text("old")

    def fail(*_arguments: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="Input/output error"):
        _durable.replace_file(str(path), "new", 0o600)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["token.json"])


def test_content_is_on_disk_before_the_name_and_the_name_before_the_end(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    sync, rename = os.fsync, os.rename

    def noting_sync(handle: int) -> None:
        steps.append(("sync", os.path.isdir(f"/proc/self/fd/{handle}")))
        sync(handle)

    def noting_rename(source: str, target: str) -> None:
        steps.append(("rename", target.endswith("token.json")))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(os, "rename", noting_rename)
    _durable.replace_file(str(tmp_path / "token.json"), "new", 0o600)
    assert steps == [("sync", False), ("rename", True), ("sync", True)]


def test_what_exists_is_not_created_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "host-id"
    _durable.create_file(str(path), "first", 0o644)
    with pytest.raises(FileExistsError):
        _durable.create_file(str(path), "second", 0o644)
    assert path.read_text() == "first"
