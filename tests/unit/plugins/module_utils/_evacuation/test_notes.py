# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import notes

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


def test_a_note_is_read_again_and_only_by_root(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "evacuations"
    assert notes.record_of(UUID, str(folder)) is None
    notes.write(UUID, {"id": "one"}, str(folder))
    notes.write(UUID, {"id": "two"}, str(folder))
    assert notes.record_of(UUID, str(folder)) == "two"
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]
    notes.remove(UUID, str(folder))
    assert list(folder.iterdir()) == []
    notes.remove(UUID, str(folder))


@pytest.mark.parametrize("content", ["[" * 100000, "", "{", "[]", '{"id": 7}'])
def test_a_damaged_note_is_none(tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / f"{UUID}.json").write_text(content)
    assert notes.record_of(UUID, str(tmp_path)) is None


def test_what_is_no_uuid_is_no_file_either(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgument):
        notes.write("../../etc/passwd", {"id": "one"}, str(tmp_path))


def test_without_a_note_nothing_may_be_put_there(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Forbidden, match="Nothing was started"):
        notes.write(UUID, {"id": "one"}, str(tmp_path / "file"))
