# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import os
import pathlib
import stat
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _run_folder
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument

UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"


@pytest.mark.parametrize("path", [_run_folder.state_path, _run_folder.lock_path, _run_folder.heartbeat_path, _run_folder.log_path, _run_folder.act_path])
def test_paths_are_built_only_from_uuids(path: t.Callable[[str, str], str]) -> None:
    assert path(UUID.upper(), "/run/x").startswith(f"/run/x/{UUID}.")
    for wrong in ("../../etc/passwd", "", "web1", f"{UUID}/..", f"{UUID}\n/x"):
        with pytest.raises(InvalidArgument):
            path(wrong, "/run/x")


def test_a_document_is_written_in_one_line_with_mode_0600(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.json"
    _run_folder.write_json(str(path), {"name": "line\nbreak", "n": 1})
    assert path.read_text(encoding="utf-8").count("\n") == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert _run_folder.read_json(str(path)) == {"name": "line\nbreak", "n": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_writing_does_not_follow_a_link(tmp_path: pathlib.Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept", encoding="utf-8")
    (tmp_path / "a.json").symlink_to(victim)
    _run_folder.write_json(str(tmp_path / "a.json"), {})
    assert victim.read_text(encoding="utf-8") == "kept"


def test_a_missing_or_torn_document_is_none(tmp_path: pathlib.Path) -> None:
    assert _run_folder.read_json(str(tmp_path / "none.json")) is None
    (tmp_path / "torn.json").write_text('{"a": ', encoding="utf-8")
    assert _run_folder.read_json(str(tmp_path / "torn.json")) is None
    (tmp_path / "deep.json").write_text("[" * 100000, encoding="utf-8")
    assert _run_folder.read_json(str(tmp_path / "deep.json")) is None


def test_the_run_folder_is_created_with_mode_0700_and_reused(tmp_path: pathlib.Path) -> None:
    folder = str(tmp_path / "kvmfleet")
    assert _run_folder.prepare_run_folder(folder) == folder
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert _run_folder.prepare_run_folder(folder) == folder


def test_a_run_folder_that_others_can_read_is_made_private(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "kvmfleet"
    folder.mkdir()
    folder.chmod(0o755)
    _run_folder.prepare_run_folder(str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_run_folder_that_others_can_write_is_refused(tmp_path: pathlib.Path) -> None:
    for mode in (0o777, 0o720, 0o702):
        folder = tmp_path / f"{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        with pytest.raises(Forbidden, match="only this user can write"):
            _run_folder.prepare_run_folder(str(folder))


def test_a_link_or_a_file_in_place_of_the_run_folder_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("", encoding="utf-8")
    for name in ("link", "file"):
        with pytest.raises(Forbidden, match=name):
            _run_folder.prepare_run_folder(str(tmp_path / name))


@pytest.mark.parametrize(("number", "advice"), [(errno.EACCES, "set become"), (errno.ENOSPC, "full or read-only"), (errno.EROFS, "full or read-only")])
def test_a_run_folder_that_cannot_be_created_is_refused_with_its_cause(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def refuse(path: str, mode: int, exist_ok: bool) -> t.NoReturn:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "makedirs", refuse)
    with pytest.raises(Forbidden, match=f"cannot be used: {os.strerror(number)}.*{advice}"):
        _run_folder.prepare_run_folder(str(tmp_path / "kvmfleet"))


def test_each_start_or_stop_by_the_collection_has_an_id_of_its_own(tmp_path: pathlib.Path) -> None:
    assert _run_folder.read_own_act(UUID, str(tmp_path)) is None
    ids = set()
    for _count in range(2):
        _run_folder.note_own_act(UUID, str(tmp_path))
        ids.add(_run_folder.read_own_act(UUID, str(tmp_path)))
    assert len(ids) == 2
    assert None not in ids


def test_a_note_that_is_torn_or_cannot_be_written_stops_nothing(tmp_path: pathlib.Path) -> None:
    _run_folder.note_own_act(UUID, str(tmp_path / "missing"))
    for content in ("{", "[]", "7"):
        (tmp_path / f"{UUID}.act").write_text(content, encoding="utf-8")
        assert _run_folder.read_own_act(UUID, str(tmp_path)) is None


def test_a_user_who_may_not_read_the_folder_knows_nothing_of_starts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> t.NoReturn:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(_run_folder, "read_json", refuse)
    assert _run_folder.read_own_act(UUID, str(tmp_path)) is ABSENT
