# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import files

UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"


@pytest.mark.parametrize("path", [files.state_path, files.lock_path, files.heartbeat_path, files.log_path])
def test_paths_come_from_uuids_and_from_nothing_else(path: t.Callable[[str, str], str]) -> None:
    assert path(UUID.upper(), "/run/x").startswith(f"/run/x/{UUID}.")
    for wrong in ("../../etc/passwd", "", "web1", f"{UUID}/..", f"{UUID}\n/x"):
        with pytest.raises(InvalidArgument):
            path(wrong, "/run/x")


def test_a_document_is_one_line_and_for_its_owner_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(str(path), {"name": "line\nbreak", "n": 1})
    assert path.read_text(encoding="utf-8").count("\n") == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files.read_json(str(path)) == {"name": "line\nbreak", "n": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_writing_does_not_follow_a_link(tmp_path: pathlib.Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept", encoding="utf-8")
    (tmp_path / "a.json").symlink_to(victim)
    files.write_json(str(tmp_path / "a.json"), {})
    assert victim.read_text(encoding="utf-8") == "kept"
    (tmp_path / f"b.json.{os.getpid()}.new").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        files.write_json(str(tmp_path / "b.json"), {})
    assert victim.read_text(encoding="utf-8") == "kept"


def test_what_is_missing_or_torn_is_nothing(tmp_path: pathlib.Path) -> None:
    assert files.read_json(str(tmp_path / "none.json")) is None
    (tmp_path / "torn.json").write_text('{"a": ', encoding="utf-8")
    assert files.read_json(str(tmp_path / "torn.json")) is None
    (tmp_path / "deep.json").write_text("[" * 100000, encoding="utf-8")
    assert files.read_json(str(tmp_path / "deep.json")) is None


def test_the_folder_is_made_for_its_owner_alone_and_taken_as_it_is_later(tmp_path: pathlib.Path) -> None:
    folder = str(tmp_path / "kvmfleet")
    assert files.run_folder(folder) == folder
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert files.run_folder(folder) == folder


def test_a_folder_that_others_can_read_is_closed_to_them(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "kvmfleet"
    folder.mkdir()
    folder.chmod(0o755)
    files.run_folder(str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_others_can_write_is_refused(tmp_path: pathlib.Path) -> None:
    for mode in (0o777, 0o720, 0o702):
        folder = tmp_path / f"{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        with pytest.raises(Forbidden, match="only this user can write"):
            files.run_folder(str(folder))


def test_a_link_or_a_file_in_the_folder_s_place_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("", encoding="utf-8")
    for name in ("link", "file"):
        with pytest.raises(Forbidden, match=name):
            files.run_folder(str(tmp_path / name))
