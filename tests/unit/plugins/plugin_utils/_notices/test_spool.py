# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notices on disk: who has died leaves his to the next one, who lives keeps his own, and there are never too many."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices import spool as module
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.spool import Kept, Spool, waiting_in


def ids(kept: list[Kept]) -> list[str]:
    return [one.event["id"] for one in kept]


def left_by_a_dead_one(path: Path, *event_ids: str) -> None:
    """Keep events in a process that then is no more."""
    pid = os.fork()
    if pid == 0:
        spool = Spool(str(path))
        for event_id in event_ids:
            spool.keep({"id": event_id}, sure=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_who_lives_keeps_his_own(tmp_path: Path) -> None:
    one, other = Spool(str(tmp_path)), Spool(str(tmp_path))
    one.keep({"id": "a"}, sure=True)
    assert list(other.left()) == []
    assert list(one.left()) == []
    one.close()
    assert ids(list(other.left())) == ["a"]


def test_what_a_dead_one_left_is_had_once_and_in_its_order(tmp_path: Path) -> None:
    left_by_a_dead_one(tmp_path, "a", "b", "c")
    one, other = Spool(str(tmp_path)), Spool(str(tmp_path))
    found = []
    for kept in one.left():
        found.append(kept)
        assert list(other.left()) == []
        one.drop(kept)
    assert ids(found) == ["a", "b", "c"]
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_sent_is_there_for_the_next_one(tmp_path: Path) -> None:
    left_by_a_dead_one(tmp_path, "a", "b")
    one = Spool(str(tmp_path))
    first, _second = one.left()
    one.drop(first)
    assert ids(list(Spool(str(tmp_path)).left())) == ["b"]


def test_there_are_never_more_than_the_most_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    spool = Spool(str(tmp_path))
    for number in range(5):
        spool.keep({"id": str(number)}, sure=True)
    assert (spool.dropped, waiting_in(str(tmp_path))) == (2, 3)
    spool.close()
    assert ids(list(Spool(str(tmp_path)).left())) == ["2", "3", "4"]


def test_what_is_a_week_old_or_damaged_is_for_nobody(tmp_path: Path) -> None:
    left_by_a_dead_one(tmp_path, "old", "torn", "good")
    old, torn, _good = sorted(tmp_path.glob("*.json"))
    old.rename(tmp_path / f"{time.time_ns() - 8 * 86400 * 10**9:020d}{old.name[20:]}")
    torn.write_bytes(b'{"sure": true, "eve')
    spool = Spool(str(tmp_path))
    assert ids(list(spool.left())) == ["good"]
    assert spool.dropped == 2


def test_what_is_kept_is_the_owners_alone(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    spool.keep({"id": "a"}, sure=True)
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "spool").iterdir()} == {0o600}


def test_somebody_elses_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError):
        Spool(str(tmp_path))


def test_no_folder_has_nothing_waiting(tmp_path: Path) -> None:
    assert waiting_in(str(tmp_path / "none")) == 0
