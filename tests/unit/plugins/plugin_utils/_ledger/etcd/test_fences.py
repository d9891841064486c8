# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lock is worth what its fence is: who lost it without noticing is refused, and those who wait come in turn."""

from __future__ import annotations

import threading
import time
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import lease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

Go = Callable[..., Stored]
NewMove = Callable[..., dict[str, t.Any]]


def end_lease_of(store: EtcdStore, name: str) -> None:
    """End the lock's lease behind its holder's back, as time does while a process sleeps."""
    (key,) = store.names(f"locks/{name}")
    store.client.revoke(int(key.rpartition("/")[2], 16))


def test_who_lost_a_lock_and_did_not_notice_writes_nothing(ledger: EtcdLedger, store: EtcdStore, new_move: NewMove, go: Go) -> None:
    stored = ledger.open_record(new_move())
    with ledger.locked("host-a"):
        end_lease_of(store, "host-a")
        other = store.open()
        with other.locked("host-a", 5):
            for act in (lambda: go(ledger, stored, s.SCHEDULED), lambda: ledger.open_record(new_move("web2"))):
                with pytest.raises(Conflict, match=r"The lock host-a .* was lost.*Nothing was written"):
                    act()
            booked = go(other, other.get(stored.record["id"]), s.SCHEDULED)
    assert ledger.get(stored.record["id"]) == booked
    # Outside of the lock it may write again.
    assert ledger.open_record(new_move("web2")).version == 1
    assert ledger.verify_audit() == []


def test_a_lock_that_was_lost_stays_lost_when_it_is_taken_again_by_the_same_process(ledger: EtcdLedger, store: EtcdStore, new_move: NewMove) -> None:
    with ledger.locked("host-a"):
        end_lease_of(store, "host-a")
        with ledger.locked("host-a", 5), pytest.raises(Conflict, match="was lost"):
            ledger.open_record(new_move())


def test_a_held_lock_outlives_its_lease(ledger: EtcdLedger, store: EtcdStore, new_move: NewMove, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LOCK_SECONDS", 2)
    with ledger.locked("host-a"):
        time.sleep(5)
        with pytest.raises(TimedOut), store.open().locked("host-a", 0):
            pass
        assert ledger.open_record(new_move()).version == 1


def test_those_who_wait_have_it_in_turn(store: EtcdStore, in_child: Callable[[Callable[[], None]], int], exit_of: Callable[[int], t.Optional[int]]) -> None:
    ledger = store.open()

    def wait(number: int) -> None:
        own = store.open()
        with own.locked("host-a"):
            host_uuid = f"33333333-0000-4000-8000-00000000000{number}"
            own.put_host({"host_id": None, "host_uuid": host_uuid, "name": "kvm", "state": "enabled", "order": len(own.hosts())}, None)

    pids = []
    with ledger.locked("host-a"):
        for number in range(4):
            pids.append(in_child(lambda number=number: wait(number)))
            while len(store.names("locks/host-a")) < number + 2:
                time.sleep(0.01)
    assert [exit_of(pid) for pid in pids] == [0] * 4
    assert [document.body["order"] for document in sorted(ledger.hosts(), key=lambda document: document.body["host_uuid"])] == [0, 1, 2, 3]


def test_nothing_of_a_lock_is_left(ledger: EtcdLedger, store: EtcdStore) -> None:
    with ledger.locked("host-a"):
        assert len(store.names("locks")) == 1
    assert store.names("locks") == []


def test_a_place_in_the_queue_that_was_lost_is_no_lock(ledger: EtcdLedger, store: EtcdStore) -> None:
    with store.open().locked("host-a"):
        (first,) = store.names("locks/host-a")
        revoking = threading.Thread(target=_revoke_the_second, args=(store, first), daemon=True)
        revoking.start()
        with pytest.raises(Conflict, match=r"place in the queue .* was lost"), ledger.locked("host-a", 30):
            pass
        revoking.join(30)
        assert store.names("locks/host-a") == [first]


def _revoke_the_second(store: EtcdStore, first: str) -> None:
    while len(names := store.names("locks/host-a")) < 2:
        time.sleep(0.01)
    (second,) = set(names) - {first}
    store.client.revoke(int(second.rpartition("/")[2], 16))
