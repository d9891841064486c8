# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who listens to a ledger, in each of the stores, hears of each change before it is written, and of what became of it."""

from __future__ import annotations

import contextlib
import copy
import typing as t
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored, Witness
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

New = Callable[..., dict[str, t.Any]]
Heard = tuple[str | None, str, str, str]


class Ear(Witness):
    """Writes down each change: the status before and after it, and what the ledger says when it begins and when it has ended."""

    def __init__(self, ledger: Ledger) -> None:
        self.heard: list[Heard] = []
        self._ledger = ledger

    @contextlib.contextmanager
    def change(self, before: dict[str, t.Any] | None, after: dict[str, t.Any]) -> Iterator[None]:
        first = self._status(after["id"])
        try:
            yield
        finally:
            self.heard.append((before["status"] if before else None, after["status"], first, self._status(after["id"])))

    def _status(self, record_id: str) -> str:
        try:
            return str(self._ledger.get(record_id).record["status"])
        except NotFound:
            return "missing"


def test_it_hears_of_each_change_around_the_write(store: Store, new_move: New, go: Callable[..., Stored]) -> None:
    ledger = store.open()
    ledger.witness = ear = Ear(store.open())
    go(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.FAILED)
    assert ear.heard == [
        (None, "accepted", "missing", "accepted"),
        ("accepted", "scheduled", "accepted", "scheduled"),
        ("scheduled", "failed", "scheduled", "failed"),
    ]


def test_it_hears_that_a_change_was_not_made(store: Store, new_move: New, go: Callable[..., Stored]) -> None:
    ledger = store.open()
    stored = ledger.open_record(new_move())
    ledger.witness = ear = Ear(store.open())
    go(store.open(), stored, s.SCHEDULED)
    late = copy.deepcopy(stored.record)
    advance(late, s.CONFLICT, "me")
    with pytest.raises(Conflict):
        ledger.update(stored, late)
    assert ear.heard == [("accepted", "conflict", "scheduled", "scheduled")]
