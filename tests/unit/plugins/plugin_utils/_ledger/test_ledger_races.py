# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several processes on one ledger: one of two wins, and nothing is lost."""

from __future__ import annotations

import dataclasses
import os
import time
import typing as t
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

NewMove = Callable[..., MoveRecord]


def test_one_of_two_concurrent_changes_of_a_record_succeeds(
    ledger: Ledger, store: Store, new_move: NewMove, in_child: Callable[[Callable[[], None]], int], exit_of: Callable[[int], int]
) -> None:
    for _turn in range(5):
        stored = ledger.open_record(new_move())
        gate_read, gate_write = os.pipe()

        def change(status: str, gate: int = gate_read, stored: Stored = stored) -> None:
            own = store.open()
            os.read(gate, 1)
            record = stored.record.advance(status, "child")
            own.update_record(stored, record)

        pids = [in_child(lambda: change(s.SCHEDULED)), in_child(lambda: change(s.CANCELLED))]
        os.write(gate_write, b"..")
        codes = [exit_of(pid) for pid in pids]
        assert sorted(codes) == [0, 99]
        assert ledger.read_record(stored.record.record_id).record.status == (s.SCHEDULED if codes[0] == 0 else s.CANCELLED)
        os.close(gate_read)
        os.close(gate_write)
    assert ledger.verify_audit() == []


def test_eight_concurrent_processes_lose_no_record(
    store: Store, new_move: NewMove, in_child: Callable[[Callable[[], None]], int], exit_of: Callable[[int], int]
) -> None:
    def open_many(number: int) -> None:
        own = store.open()
        for turn in range(25):
            own.open_record(new_move(f"web-{number}-{turn}"))

    # They make the ledger, too: one identity must come of it.
    pids = [in_child(lambda number=number: open_many(number)) for number in range(8)]
    assert [exit_of(pid) for pid in pids] == [0] * 8
    ledger = store.open()
    names = sorted(record.domain.name for record in ledger.list_records(unsettled_only=True))
    assert names == sorted(f"web-{number}-{turn}" for number in range(8) for turn in range(25))
    assert len(ledger.list_domains()) == 200
    assert ledger.verify_audit() == []
    assert ledger.problems == []


def test_one_of_several_concurrent_opens_of_a_domain_succeeds(
    store: Store, new_move: NewMove, in_child: Callable[[Callable[[], None]], int], exit_of: Callable[[int], int]
) -> None:
    records = [new_move(domain_uuid="99999999-0000-4000-8000-000000000009") for _number in range(4)]
    pids = [in_child(lambda record=record: t.cast(None, store.open().open_record(record))) for record in records]
    assert sorted(t.cast(list[int], [exit_of(pid) for pid in pids])) == [0, 99, 99, 99]
    assert len(list(store.open().list_records())) == 1


HOSTS, ROOM, BOOKERS, WISHES = 3, 4, 6, 5


def test_concurrent_reservations_never_exceed_the_capacity(
    store: Store, new_move: NewMove, in_child: Callable[[Callable[[], None]], int], exit_of: Callable[[int], int]
) -> None:
    """All together request more than there is: in the end every host is full, and none exceeds its capacity."""

    def book(number: int) -> None:
        own = store.open()
        for turn in range(WISHES):
            opened = own.open_record(new_move(f"web-{number}-{turn}", destination=HostRef("nowhere", None, None)))
            for host in (f"h{(number + turn + offset) % HOSTS}" for offset in range(HOSTS)):
                if opened.record.status == s.ACCEPTED:
                    opened = _booked(own, opened, host)

    store.open()
    pids = [in_child(lambda number=number: book(number)) for number in range(BOOKERS)]
    assert [exit_of(pid) for pid in pids] == [0] * BOOKERS
    ledger = store.open()
    booked = [record.destination.host for record in ledger.list_records(statuses=[s.SCHEDULED])]
    assert {host: booked.count(host) for host in set(booked)} == {f"h{number}": ROOM for number in range(HOSTS)}
    assert len(list(ledger.list_records())) == BOOKERS * WISHES
    assert ledger.verify_audit() == []


def _booked(ledger: Ledger, opened: Stored, host: str) -> Stored:
    """Reserve on a host if it has capacity, which is read and reserved under its lock."""
    with ledger.hold_lock(f"host-{host}"):
        if len(list(ledger.list_records(statuses=[s.SCHEDULED], host=host))) >= ROOM:
            return opened
        # As long as a task takes to judge: long enough for others to have read the same.
        time.sleep(0.02)
        record = dataclasses.replace(opened.record, destination=HostRef(host, None, None)).advance(s.SCHEDULED, f"pid {os.getpid()}")
        return ledger.update_record(opened, record)
