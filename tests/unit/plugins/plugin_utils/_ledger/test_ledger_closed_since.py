# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ids of records that were closed lately, from each of the stores: what a booking asks again and again, however many there were before."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import RecentMoves, read_open_records

AdvanceRecord = Callable[..., Stored]
New = Callable[..., MoveRecord]
DAY = datetime.timedelta(days=1)


def since(before: datetime.timedelta = datetime.timedelta(minutes=10)) -> str:
    return (datetime.datetime.now(datetime.UTC) - before).isoformat()


def test_closed_since_returns_closed_records_at_once(ledger: Ledger, new_move: New, advance_record: AdvanceRecord) -> None:
    assert ledger.list_closed_since(since()) == set()
    advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED)
    closed = [
        advance_record(ledger, ledger.open_record(new_move()), s.CANCELLED),
        advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.FAILED),
    ]
    assert ledger.list_closed_since(since()) == {stored.record.id for stored in closed}


def test_closed_since_a_future_time_is_empty(ledger: Ledger, new_move: New, advance_record: AdvanceRecord) -> None:
    advance_record(ledger, ledger.open_record(new_move()), s.CANCELLED)
    assert ledger.list_closed_since(since(-2 * DAY)) == set()


def test_closed_since_an_invalid_time_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidArgument, match="is not a time"):
        ledger.list_closed_since("lately")


def test_arrivals_are_moves_completed_since_and_read_once(
    ledger: Ledger, new_move: New, advance_record: AdvanceRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING)
    before = advance_record(ledger, ledger.open_record(new_move("before")), *way, s.COMPLETED)
    under_way, failing = advance_record(ledger, ledger.open_record(new_move("a")), *way), advance_record(ledger, ledger.open_record(new_move("b")), *way)
    arrivals = RecentMoves(ledger)
    assert arrivals.list_arrivals([]) == []
    there = advance_record(ledger, under_way, s.COMPLETED)
    advance_record(ledger, failing, s.FAILED)
    assert arrivals.list_arrivals([]) == [there.record]
    read: list[str] = []
    get = Ledger.read_record
    monkeypatch.setattr(Ledger, "read_record", lambda self, key: read.append(key) or get(self, key))
    assert arrivals.list_arrivals([]) == [there.record]
    domain = there.record.domain
    again = advance_record(ledger, ledger.open_record(dataclasses.replace(new_move(), domain=domain)), *way, s.COMPLETED)
    assert arrivals.list_arrivals([]) == [again.record], "it has moved on"
    assert read == [again.record.id]
    assert before.record.id not in read


def test_the_arrival_of_the_latest_generation_counts_whatever_the_clocks_say(ledger: Ledger, new_move: New, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dataclasses.replace(new_move(), generation=1, status=s.COMPLETED, updated_at="2026-11-05T12:00:00.000Z")
    second = dataclasses.replace(new_move(), domain=first.domain, generation=2, status=s.COMPLETED, updated_at="2026-11-05T11:59:00.000Z")
    records = {first.record_id: first, second.record_id: second}
    monkeypatch.setattr(Ledger, "read_record", lambda self, key: Stored(records[key], 1))
    for names in (list(records), list(reversed(records))):
        monkeypatch.setattr(type(ledger), "list_closed_since", lambda self, since, names=names: names)
        arrivals = RecentMoves(ledger)
        arrivals._known = {}
        assert arrivals.list_arrivals([]) == [second]


def test_domains_that_evacuations_have_started_since_are_arrivals(ledger: Ledger, new_move: New, advance_record: AdvanceRecord) -> None:
    def evacuate(name: str) -> Stored:
        record = dataclasses.replace(new_move(name), type=s.EVACUATION)
        return advance_record(ledger, ledger.open_record(record), s.PRE_MIGRATING)

    advance_record(ledger, evacuate("before"), s.DONE)
    starting = evacuate("web")
    arrivals = RecentMoves(ledger)
    assert arrivals.list_arrivals(read_open_records(ledger)) == []
    started = advance_record(ledger, starting, s.DONE)
    assert arrivals.list_arrivals(read_open_records(ledger)) == [started.record]
    cleaned = advance_record(ledger, started, s.COMPLETED)
    assert arrivals.list_arrivals(read_open_records(ledger)) == [cleaned.record]
