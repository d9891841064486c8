# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file has its old content or its new content, and nothing else is left beside it; what is durable is on disk in the right order."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _files

Replace = t.Callable[[str, t.Union[str, bytes], int], None]
REPLACING = pytest.mark.parametrize("replace", [_files.replace_file, _files.publish_file, _files.replace_volatile_file], ids=lambda one: one.__name__)
Steps = t.List[t.Tuple[str, bool]]


@pytest.fixture
def system_calls(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """The system calls that matter for a power cut: syncs (of a folder or not), renames and links (to the final name or not)."""
    noted: Steps = []

    def note(call: str) -> None:
        real = getattr(os, call)

        def call_noted(*arguments: t.Any) -> None:
            is_final = os.path.isdir(f"/proc/self/fd/{arguments[0]}") if call == "fsync" else arguments[1].endswith("token.json")
            noted.append((call, is_final))
            real(*arguments)

        monkeypatch.setattr(os, call, call_noted)

    for call in ("fsync", "rename", "link"):
        note(call)
    return noted


@REPLACING
def test_a_file_is_replaced_with_its_mode_whatever_the_umask(tmp_path: pathlib.Path, replace: Replace) -> None:
    path = tmp_path / "token.json"
    before = os.umask(0o077)
    try:
        for content in ("old", "n\u00e9w".encode()):
            replace(str(path), content, 0o644)
    finally:
        os.umask(before)
    assert (path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777, os.listdir(tmp_path)) == ("n\u00e9w", 0o644, ["token.json"])


def _fail(*_arguments: object) -> None:
    raise OSError(5, "Input/output error")


@REPLACING
@pytest.mark.parametrize("call", ["fchmod", "rename"])
def test_a_failed_replacement_keeps_the_old_content(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, replace: Replace, call: str) -> None:
    path = tmp_path / "token.json"
    path.write_text("old")
    monkeypatch.setattr(os, call, _fail)
    with pytest.raises(OSError, match="Input/output error"):
        replace(str(path), "new", 0o600)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["token.json"])


@pytest.mark.parametrize("replace", [_files.replace_file, _files.publish_file])
def test_content_that_cannot_be_flushed_does_not_replace_the_old_content(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, replace: Replace) -> None:
    path = tmp_path / "token.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", _fail)
    with pytest.raises(OSError, match="Input/output error"):
        replace(str(path), "new", 0o600)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["token.json"])


@pytest.mark.parametrize(
    ("replace", "expected"),
    [
        (_files.replace_file, [("fsync", False), ("rename", True), ("fsync", True)]),
        (_files.publish_file, [("fsync", False), ("rename", True)]),
        (_files.replace_volatile_file, [("rename", True)]),
    ],
)
def test_content_is_flushed_before_the_rename_and_the_folder_after_it(tmp_path: pathlib.Path, system_calls: Steps, replace: Replace, expected: Steps) -> None:
    replace(str(tmp_path / "token.json"), "new", 0o600)
    assert system_calls == expected


@REPLACING
def test_replacing_a_file_does_not_follow_links(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, replace: Replace) -> None:
    victim, path, one = tmp_path / "victim", tmp_path / "token.json", uuid.uuid4()
    victim.write_text("kept")
    path.symlink_to(victim)
    replace(str(path), "new", 0o600)
    assert (victim.read_text(), path.read_text()) == ("kept", "new")
    monkeypatch.setattr(uuid, "uuid4", lambda: one)
    (tmp_path / f"token.json.{one}.new").symlink_to(victim)
    with pytest.raises(FileExistsError):
        replace(str(path), "newer", 0o600)
    assert victim.read_text() == "kept"


def test_an_existing_file_is_not_created_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new" / "host-id"
    assert _files.create_file_once(str(path), "first", 0o644)
    assert not _files.create_file_once(str(path), "second", 0o644)
    assert (path.read_text(), path.stat().st_mode & 0o777, os.listdir(path.parent)) == ("first", 0o644, ["host-id"])


def test_only_one_of_several_concurrent_writers_creates_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "host-id"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda number: _files.create_file_once(str(path), str(number), 0o644), range(8)))
    assert sum(created) == 1
    assert path.read_text() == str(created.index(True))


def test_creating_a_file_once_flushes_content_and_name(tmp_path: pathlib.Path, system_calls: Steps) -> None:
    _files.create_file_once(str(tmp_path / "token.json"), "new", 0o600)
    assert system_calls == [("fsync", False), ("link", True), ("fsync", True)]


def test_a_file_that_cannot_be_linked_leaves_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _fail)
    with pytest.raises(OSError, match="Input/output error"):
        _files.create_file_once(str(tmp_path / "host-id"), "first", 0o644)
    assert os.listdir(tmp_path) == []
