# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The locks of a ledger: between processes, in time, ended by the end of their process."""

from __future__ import annotations

import os
import time
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import store as etcd_store
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

InChild = Callable[[Callable[[], None]], int]
ExitOf = Callable[[int], t.Optional[int]]


def test_a_lock_is_held_by_one_process_at_a_time(store: Store, ledger: Ledger, tmp_path: Path, in_child: InChild, exit_of: ExitOf) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count() -> None:
        own = store.open()
        for _turn in range(20):
            with own.hold_lock("host-a"):
                number = int(counter.read_text())
                time.sleep(0.001)
                counter.write_text(str(number + 1))

    pids = [in_child(count) for _number in range(3)]
    assert [exit_of(pid) for pid in pids] == [0, 0, 0]
    assert counter.read_text() == "60"


def test_a_lock_that_is_not_acquired_in_time_is_a_timeout(store: Store, ledger: Ledger) -> None:
    other = store.open()
    with ledger.hold_lock("host-a"):
        with other.hold_lock("host-b", timeout_seconds=0):
            pass
        with pytest.raises(TimedOut, match=r"host-a.* was held by .* for more than 0\.1 s"), other.hold_lock("host-a", 0.1):
            pass
    with other.hold_lock("host-a", 0):
        pass


def test_a_lock_ends_with_its_process(store: Store, ledger: Ledger, in_child: InChild, exit_of: ExitOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_store, "LOCK_SECONDS", 2)

    def hold() -> None:
        with store.open().hold_lock("host-a"):
            os._exit(42)

    assert exit_of(in_child(hold)) == 42
    with ledger.hold_lock("host-a", 30):
        pass


@pytest.mark.parametrize("key", ["", "../x", "a/b", "A", "a" * 101, "a\n", ".hidden"])
def test_an_invalid_name_of_a_lock_is_refused(ledger: Ledger, key: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot name a lock"), ledger.hold_lock(key):
        pass


def test_records_can_be_written_while_a_lock_is_held(ledger: Ledger, new_move: Callable[..., MoveRecord]) -> None:
    with ledger.hold_lock("host-a"):
        assert ledger.open_record(new_move()).version == 1
