# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ids of records that were closed lately, from each of the stores: what a booking asks again and again, however many there were before."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_ledger import DocumentLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.arrivals import Arrivals

Go = Callable[..., Stored]
New = Callable[..., dict[str, t.Any]]
DAY = datetime.timedelta(days=1)


def since(before: datetime.timedelta = datetime.timedelta(minutes=10)) -> str:
    return (datetime.datetime.now(datetime.UTC) - before).isoformat()


def test_what_was_closed_is_there_at_once_and_what_is_open_is_not(ledger: Ledger, new_move: New, go: Go) -> None:
    assert ledger.closed_since(since()) == set()
    go(ledger, ledger.open_record(new_move()), s.SCHEDULED)
    closed = [go(ledger, ledger.open_record(new_move()), s.CANCELLED), go(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.FAILED)]
    assert ledger.closed_since(since()) == {stored.record["id"] for stored in closed}


def test_nothing_is_closed_in_the_future(ledger: Ledger, new_move: New, go: Go) -> None:
    go(ledger, ledger.open_record(new_move()), s.CANCELLED)
    assert ledger.closed_since(since(-2 * DAY)) == set()


def test_a_time_that_is_none_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidArgument, match="is no time"):
        ledger.closed_since("lately")


def test_arrivals_are_what_was_completed_since_and_each_is_read_once(ledger: Ledger, new_move: New, go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    way = (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING)
    before = go(ledger, ledger.open_record(new_move("before")), *way, s.COMPLETED)
    under_way, failing = go(ledger, ledger.open_record(new_move("a")), *way), go(ledger, ledger.open_record(new_move("b")), *way)
    arrivals = Arrivals(ledger)
    assert arrivals.records() == []
    there = go(ledger, under_way, s.COMPLETED)
    go(ledger, failing, s.FAILED)
    assert arrivals.records() == [there.record]
    read: list[str] = []
    get = DocumentLedger.get
    monkeypatch.setattr(DocumentLedger, "get", lambda self, key: read.append(key) or get(self, key))
    assert arrivals.records() == [there.record]
    domain = there.record["domain"]
    again = go(ledger, ledger.open_record({**new_move(), "domain": domain}), *way, s.COMPLETED)
    assert arrivals.records() == [again.record], "it has moved on"
    assert read == [again.record["id"]]
    assert before.record["id"] not in read
