# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fencing of locks: a process that lost its lock unnoticed is refused, and waiting processes get it in order."""

from __future__ import annotations

import threading
import time
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, TimedOut, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import store as etcd_store
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]


def end_lease_of(store: EtcdStore, name: str) -> None:
    """End the lock's lease behind its holder's back, as time does while a process sleeps."""
    (key,) = store.names(f"locks/{name}")
    store.client.revoke_lease(int(key.rpartition("/")[2], 16))


def test_a_writer_that_lost_its_lock_cannot_write(ledger: EtcdLedger, store: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    stored = ledger.open_record(new_move())
    with ledger.hold_lock("host-a"):
        end_lease_of(store, "host-a")
        other = store.open()
        with other.hold_lock("host-a", 5):
            for act in (lambda: advance_record(ledger, stored, s.SCHEDULED), lambda: ledger.open_record(new_move("web2"))):
                with pytest.raises(Conflict, match=r"The lock host-a .* was lost.*Nothing was written"):
                    act()
            booked = advance_record(other, other.read_record(stored.record.record_id), s.SCHEDULED)
    assert ledger.read_record(stored.record.record_id) == booked
    # Outside of the lock it may write again.
    assert ledger.open_record(new_move("web2")).version == 1
    assert ledger.verify_audit() == []


def test_a_lost_lock_stays_lost_when_the_process_takes_it_again(ledger: EtcdLedger, store: EtcdStore, new_move: NewMove) -> None:
    with ledger.hold_lock("host-a"):
        end_lease_of(store, "host-a")
        with ledger.hold_lock("host-a", 5), pytest.raises(Conflict, match="was lost"):
            ledger.open_record(new_move())


def test_a_held_lock_is_kept_alive_beyond_its_lease(ledger: EtcdLedger, store: EtcdStore, new_move: NewMove, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_store, "LOCK_SECONDS", 2)
    with ledger.hold_lock("host-a"):
        time.sleep(5)
        with pytest.raises(TimedOut), store.open().hold_lock("host-a", 0):
            pass
        assert ledger.open_record(new_move()).version == 1


def test_a_lock_that_no_thread_can_keep_alive_is_not_held(ledger: EtcdLedger, new_move: NewMove, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that follows moves goes on after an error of its ledger, and after no other."""

    def refuse(thread: threading.Thread) -> t.NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(Unreachable, match="No lock of the ledger can be kept: can't start new thread"), ledger.hold_lock("host-a"):
            pass
    with ledger.hold_lock("host-a", 0):
        assert ledger.open_record(new_move()).version == 1


def test_waiting_processes_get_the_lock_in_order(
    store: EtcdStore, in_child: Callable[[Callable[[], None]], int], exit_of: Callable[[int], t.Optional[int]]
) -> None:
    ledger = store.open()

    def wait(number: int) -> None:
        own = store.open()
        with own.hold_lock("host-a"):
            host_uuid = f"33333333-0000-4000-8000-00000000000{number}"
            own.put_host(host_entry({"host_id": None, "host_uuid": host_uuid, "name": "kvm", "state": "enabled", "order": len(own.list_hosts())}), None)

    pids = []
    with ledger.hold_lock("host-a"):
        for number in range(4):
            pids.append(in_child(lambda number=number: wait(number)))
            while len(store.names("locks/host-a")) < number + 2:
                time.sleep(0.01)
    assert [exit_of(pid) for pid in pids] == [0] * 4
    assert [document.body["order"] for document in sorted(ledger.list_hosts(), key=lambda document: document.body["host_uuid"])] == [0, 1, 2, 3]


def test_a_released_lock_leaves_no_key(ledger: EtcdLedger, store: EtcdStore) -> None:
    with ledger.hold_lock("host-a"):
        assert len(store.names("locks")) == 1
    assert store.names("locks") == []


def test_a_lost_position_in_the_queue_is_a_conflict(ledger: EtcdLedger, store: EtcdStore) -> None:
    with store.open().hold_lock("host-a"):
        (first,) = store.names("locks/host-a")
        revoking = threading.Thread(target=_revoke_the_second, args=(store, first), daemon=True)
        revoking.start()
        with pytest.raises(Conflict, match=r"place in the queue .* was lost"), ledger.hold_lock("host-a", 30):
            pass
        revoking.join(30)
        assert store.names("locks/host-a") == [first]


def _revoke_the_second(store: EtcdStore, first: str) -> None:
    while len(names := store.names("locks/host-a")) < 2:
        time.sleep(0.01)
    (second,) = set(names) - {first}
    store.client.revoke_lease(int(second.rpartition("/")[2], 16))
