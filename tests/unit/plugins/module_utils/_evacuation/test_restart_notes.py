# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import restart
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, InvalidArgument

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


def test_a_note_is_read_back_and_readable_only_by_root(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "evacuations"
    assert restart.read_noted_record(UUID, str(folder)) is None
    restart.write_note(UUID, {"id": "one"}, str(folder))
    restart.write_note(UUID, {"id": "two"}, str(folder))
    assert restart.read_noted_record(UUID, str(folder)) == "two"
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]
    restart.remove_note(UUID, str(folder))
    assert list(folder.iterdir()) == []
    restart.remove_note(UUID, str(folder))


@pytest.mark.parametrize("content", ["[" * 100000, "", "{", "[]", '{"id": 7}'])
def test_a_damaged_note_is_ignored(tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / f"{UUID}.json").write_text(content)
    assert restart.read_noted_record(UUID, str(tmp_path)) is None


def test_an_invalid_uuid_of_a_note_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgument):
        restart.write_note("../../etc/passwd", {"id": "one"}, str(tmp_path))


def test_a_note_that_cannot_be_written_prevents_the_start(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Forbidden, match="Nothing was started"):
        restart.write_note(UUID, {"id": "one"}, str(tmp_path / "file"))
