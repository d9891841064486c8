# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _start_notes
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._start_notes import DRAIN, forget, is_noted, note, notes

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


def test_a_note_stays_until_it_is_removed_and_keeps_all_its_reasons(tmp_path: pathlib.Path) -> None:
    folder = str(tmp_path / "start-again")
    assert notes(folder) == ([], [])
    assert note(UUID.upper(), "web1", [DRAIN], folder)
    assert not note(UUID, "web1", [DRAIN], folder)
    assert note(UUID, "web1", ["autostart"], folder)
    (found,), damaged = notes(folder)
    assert (found["uuid"], found["name"], found["why"], damaged) == (UUID, "web1", ["autostart", DRAIN], [])
    assert is_noted(UUID, folder)
    assert forget(UUID, folder)
    assert not forget(UUID, folder)
    assert notes(folder) == ([], [])


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", json.dumps({"uuid": "other", "name": "x", "why": [], "at": "now"}), json.dumps({"uuid": UUID, "name": 1, "why": [], "at": "now"})],
)
def test_what_was_torn_or_written_by_hand_starts_nothing_and_is_named(tmp_path: pathlib.Path, content: str) -> None:
    path = tmp_path / f"{UUID}.json"
    path.write_text(content, encoding="utf-8")
    (tmp_path / "passwd.json").write_text(json.dumps({"uuid": "passwd", "name": "x", "why": [], "at": "now"}), encoding="utf-8")
    assert notes(str(tmp_path)) == ([], [str(path), str(tmp_path / "passwd.json")])
    assert note(UUID, "web1", [DRAIN], str(tmp_path))
    assert notes(str(tmp_path))[0][0]["why"] == [DRAIN]


def test_bad_input(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgument):
        note("../passwd", "web1", [DRAIN], str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(Forbidden, match="cannot be noted"):
        note(UUID, "web1", [DRAIN], str(tmp_path / "file"))


def test_a_note_that_is_removed_while_all_are_read_is_not_damaged(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note(UUID, "web1", [DRAIN], str(tmp_path))

    def listed(folder: str) -> list[str]:
        forget(UUID, folder)
        return [f"{UUID}.json"]

    monkeypatch.setattr(_start_notes.os, "listdir", listed)
    assert notes(str(tmp_path)) == ([], [])
