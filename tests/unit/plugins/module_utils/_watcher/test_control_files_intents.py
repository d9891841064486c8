# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import read_json
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import control_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import (
    ABORT,
    BANDWIDTH,
    Intent,
    leave_intent,
    new_intent,
    take_intents,
    withdraw_intent,
)
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID

OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"


def abort(record: str = "r1", generation: int = 3) -> Intent:
    return new_intent(ABORT, record, generation, "ann@control")


def test_an_intent_is_taken_once_and_complete(tmp_path: pathlib.Path) -> None:
    left = new_intent(BANDWIDTH, "r1", 3, "ann@control", 7)
    leave_intent(UUID, left, str(tmp_path))
    assert take_intents(UUID, "r1", 3, str(tmp_path)) == [left]
    assert take_intents(UUID, "r1", 3, str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("record", "generation"), [("r2", 3), ("r1", 2), ("r1", 4)])
def test_an_intent_for_another_move_is_removed_and_ignored(tmp_path: pathlib.Path, record: str, generation: int) -> None:
    leave_intent(UUID, abort(record, generation), str(tmp_path))
    assert take_intents(UUID, "r1", 3, str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_an_intent_for_another_domain_is_kept(tmp_path: pathlib.Path) -> None:
    leave_intent(OTHER, abort(), str(tmp_path))
    assert take_intents(UUID, "r1", 3, str(tmp_path)) == []
    assert len(take_intents(OTHER, "r1", 3, str(tmp_path))) == 1


def test_an_intent_that_was_not_taken_can_be_withdrawn(tmp_path: pathlib.Path) -> None:
    intent = abort()
    leave_intent(UUID, intent, str(tmp_path))
    assert withdraw_intent(UUID, intent, str(tmp_path)) is True
    assert take_intents(UUID, "r1", 3, str(tmp_path)) == []


def test_an_intent_that_was_taken_cannot_be_withdrawn(tmp_path: pathlib.Path) -> None:
    intent = abort()
    leave_intent(UUID, intent, str(tmp_path))
    take_intents(UUID, "r1", 3, str(tmp_path))
    assert withdraw_intent(UUID, intent, str(tmp_path)) is False


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100000,
        '{"act": "abort"}',
        '{"act":"abort","record":"r1","generation":3,"by":"x","rm":1}',
        '{"act":"reboot","record":"r1","generation":3,"by":"x"}',
        '{"act":"abort","record":"r1","generation":3,"by":7}',
        '{"act":"abort","record":"r1","generation":3,"by":"x","id":["a"]}',
        '{"act":"bandwidth","record":"r1","generation":3,"by":"x","bandwidth_mib":"fast"}',
        '{"act":"bandwidth","record":"r1","generation":3,"by":"x","bandwidth_mib":-1}',
    ],
)
def test_an_invalid_intent_is_removed_and_the_others_are_taken(tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / f"{UUID}.00000000-0000-4000-8000-000000000000.intent").write_text(content, encoding="ascii")
    leave_intent(UUID, abort(), str(tmp_path))
    assert [intent.act for intent in take_intents(UUID, "r1", 3, str(tmp_path))] == [ABORT]
    assert list(tmp_path.iterdir()) == []


def test_an_intent_cannot_be_written_outside_of_its_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises((InvalidArgument, ValueError)):
        leave_intent("../../etc/passwd", abort(), str(tmp_path))
    with pytest.raises((InvalidArgument, ValueError)):
        leave_intent(UUID, Intent(ABORT, "r1", 3, "x", None, "../x"), str(tmp_path))


def test_an_intent_is_readable_only_by_its_owner(tmp_path: pathlib.Path) -> None:
    leave_intent(UUID, abort(), str(tmp_path))
    assert [path.stat().st_mode & 0o077 for path in tmp_path.iterdir()] == [0]


def test_an_intent_withdrawn_while_it_is_read_is_ignored(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that removes the file owns the intent: the one that withdrew it has already reported that nothing happens."""
    withdrawn, kept = abort(), abort()
    for intent in (withdrawn, kept):
        leave_intent(UUID, intent, str(tmp_path))

    def read(path: str) -> t.Any:
        document = read_json(path)
        if withdrawn.id in path:
            assert withdraw_intent(UUID, withdrawn, str(tmp_path)) is True
        return document

    monkeypatch.setattr(control_files, "read_json", read)
    assert take_intents(UUID, "r1", 3, str(tmp_path)) == [kept]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_has_no_intents(tmp_path: pathlib.Path) -> None:
    """The folder in /run may have been removed by hand: this is no error, so the watcher continues."""
    assert take_intents(UUID, "r1", 3, str(tmp_path / "gone")) == []


@pytest.mark.parametrize("call", ["builtins.open", "os.listdir", "os.unlink"])
def test_an_intent_that_cannot_be_taken_now_is_taken_later(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse_files(*arguments: t.Any, **options: t.Any) -> t.NoReturn:
        raise OSError(errno.ENFILE, "Too many open files in system")

    left = abort()
    leave_intent(UUID, left, str(tmp_path))
    with monkeypatch.context() as full:
        full.setattr(call, refuse_files)
        assert take_intents(UUID, "r1", 3, str(tmp_path)) == []
    assert take_intents(UUID, "r1", 3, str(tmp_path)) == [left]
