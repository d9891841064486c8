# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Notices in the spool: those of a dead process are sent by the next one, those of a living one are left alone, and their number is limited."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import notice_delivery as module
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.notice_delivery import Spool, SpooledNotice, count_spooled


def ids(kept: list[SpooledNotice]) -> list[str]:
    return [one.event["id"] for one in kept]


def left_by_a_dead_one(path: Path, *event_ids: str) -> None:
    """Keep events in a process that then is no more."""
    pid = os.fork()
    if pid == 0:
        spool = Spool(str(path))
        for event_id in event_ids:
            spool.keep_event({"id": event_id}, sure=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_notices_of_a_living_process_are_not_taken_by_others(tmp_path: Path) -> None:
    one, other = Spool(str(tmp_path)), Spool(str(tmp_path))
    one.keep_event({"id": "a"}, sure=True)
    assert list(other.left_notices()) == []
    assert list(one.left_notices()) == []
    one.close()
    assert ids(list(other.left_notices())) == ["a"]


def test_notices_of_a_dead_process_are_taken_once_and_in_order(tmp_path: Path) -> None:
    left_by_a_dead_one(tmp_path, "a", "b", "c")
    one, other = Spool(str(tmp_path)), Spool(str(tmp_path))
    found = []
    for kept in one.left_notices():
        found.append(kept)
        assert list(other.left_notices()) == []
        one.remove_notice(kept)
    assert ids(found) == ["a", "b", "c"]
    assert list(tmp_path.iterdir()) == []


def test_notices_that_were_not_sent_are_left_for_the_next_process(tmp_path: Path) -> None:
    left_by_a_dead_one(tmp_path, "a", "b")
    one = Spool(str(tmp_path))
    first, _second = one.left_notices()
    one.remove_notice(first)
    assert ids(list(Spool(str(tmp_path)).left_notices())) == ["b"]


def test_the_oldest_notices_are_dropped_over_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NOTICES", 3)
    spool = Spool(str(tmp_path))
    for number in range(5):
        spool.keep_event({"id": str(number)}, sure=True)
    assert (spool.dropped, count_spooled(str(tmp_path))) == (2, 3)
    spool.close()
    assert ids(list(Spool(str(tmp_path)).left_notices())) == ["2", "3", "4"]


def test_old_or_damaged_notices_are_dropped(tmp_path: Path) -> None:
    left_by_a_dead_one(tmp_path, "old", "torn", "good")
    old, torn, _good = sorted(tmp_path.glob("*.json"))
    old.rename(tmp_path / f"{time.time_ns() - 8 * 86400 * 10**9:020d}{old.name[20:]}")
    torn.write_bytes(b'{"sure": true, "eve')
    spool = Spool(str(tmp_path))
    assert ids(list(spool.left_notices())) == ["good"]
    assert spool.dropped == 2


def test_the_spool_is_private_to_its_owner(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"))
    spool.keep_event({"id": "a"}, sure=True)
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "spool").iterdir()} == {0o600}


def test_a_spool_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError):
        Spool(str(tmp_path))


def test_a_missing_spool_has_no_waiting_notices(tmp_path: Path) -> None:
    assert count_spooled(str(tmp_path / "none")) == 0
