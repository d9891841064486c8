# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intents
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import read_json
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.intents import ABORT, BANDWIDTH, Intent, leave, take, withdraw
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID

OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"


def abort(record: str = "r1", generation: int = 3) -> Intent:
    return Intent(ABORT, record, generation, "ann@control")


def test_what_was_left_is_taken_once_and_whole(tmp_path: pathlib.Path) -> None:
    left = Intent(BANDWIDTH, "r1", 3, "ann@control", 7)
    leave(UUID, left, str(tmp_path))
    assert take(UUID, "r1", 3, str(tmp_path)) == [left]
    assert take(UUID, "r1", 3, str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("record", "generation"), [("r2", 3), ("r1", 2), ("r1", 4)])
def test_one_for_another_move_is_removed_unheeded(tmp_path: pathlib.Path, record: str, generation: int) -> None:
    leave(UUID, abort(record, generation), str(tmp_path))
    assert take(UUID, "r1", 3, str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_one_for_another_domain_stays(tmp_path: pathlib.Path) -> None:
    leave(OTHER, abort(), str(tmp_path))
    assert take(UUID, "r1", 3, str(tmp_path)) == []
    assert len(take(OTHER, "r1", 3, str(tmp_path))) == 1


def test_what_was_not_taken_can_be_taken_back(tmp_path: pathlib.Path) -> None:
    intent = abort()
    leave(UUID, intent, str(tmp_path))
    assert withdraw(UUID, intent, str(tmp_path)) is True
    assert take(UUID, "r1", 3, str(tmp_path)) == []


def test_what_was_taken_cannot_be_taken_back(tmp_path: pathlib.Path) -> None:
    intent = abort()
    leave(UUID, intent, str(tmp_path))
    take(UUID, "r1", 3, str(tmp_path))
    assert withdraw(UUID, intent, str(tmp_path)) is False


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
def test_what_is_no_intent_is_removed_and_the_others_are_taken(tmp_path: pathlib.Path, content: str) -> None:
    (tmp_path / f"{UUID}.00000000-0000-4000-8000-000000000000.intent").write_text(content, encoding="ascii")
    leave(UUID, abort(), str(tmp_path))
    assert [intent.act for intent in take(UUID, "r1", 3, str(tmp_path))] == [ABORT]
    assert list(tmp_path.iterdir()) == []


def test_an_intent_never_leaves_its_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises((InvalidArgument, ValueError)):
        leave("../../etc/passwd", abort(), str(tmp_path))
    with pytest.raises((InvalidArgument, ValueError)):
        leave(UUID, Intent(ABORT, "r1", 3, "x", id="../x"), str(tmp_path))


def test_others_cannot_read_it(tmp_path: pathlib.Path) -> None:
    leave(UUID, abort(), str(tmp_path))
    assert [path.stat().st_mode & 0o077 for path in tmp_path.iterdir()] == [0]


def test_one_that_is_taken_back_while_it_is_read_is_not_heeded_and_ends_nobody(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever removes the file has it: the one who took it back was told that nothing happens."""
    withdrawn, kept = abort(), abort()
    for intent in (withdrawn, kept):
        leave(UUID, intent, str(tmp_path))

    def read(path: str) -> t.Any:
        document = read_json(path)
        if withdrawn.id in path:
            assert withdraw(UUID, withdrawn, str(tmp_path)) is True
        return document

    monkeypatch.setattr(intents, "read_json", read)
    assert take(UUID, "r1", 3, str(tmp_path)) == [kept]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_has_no_intents(tmp_path: pathlib.Path) -> None:
    """Somebody has cleared /run: the guest is not left alone for that."""
    assert take(UUID, "r1", 3, str(tmp_path / "gone")) == []
