# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A listener of a ledger, in each of the stores, gets each change before it is written, and its outcome."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger, Witness
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

New = Callable[..., MoveRecord]
Heard = tuple[str | None, str, str, str]


class Ear(Witness):
    """Writes down each change: the status before and after it, and what the ledger says when it begins and when it has ended."""

    def __init__(self, ledger: Ledger) -> None:
        self.heard: list[Heard] = []
        self._ledger = ledger

    @contextlib.contextmanager
    def watch_change(self, before: MoveRecord | None, after: MoveRecord) -> Iterator[None]:
        first = self._status(after.record_id)
        try:
            yield
        finally:
            self.heard.append((before.status if before else None, after.status, first, self._status(after.record_id)))

    def _status(self, record_id: str) -> str:
        try:
            return str(self._ledger.read_record(record_id).record.status)
        except NotFound:
            return "missing"


def test_a_witness_is_called_before_and_after_each_change(store: Store, new_move: New, advance_record: Callable[..., Stored]) -> None:
    ledger = store.open()
    ledger.witness = ear = Ear(store.open())
    advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.FAILED)
    assert ear.heard == [
        (None, "accepted", "missing", "accepted"),
        ("accepted", "scheduled", "accepted", "scheduled"),
        ("scheduled", "failed", "scheduled", "failed"),
    ]


def test_a_witness_is_called_when_a_change_is_refused(store: Store, new_move: New, advance_record: Callable[..., Stored]) -> None:
    ledger = store.open()
    stored = ledger.open_record(new_move())
    ledger.witness = ear = Ear(store.open())
    advance_record(store.open(), stored, s.SCHEDULED)
    late = stored.record.advance(s.CONFLICT, "me")
    with pytest.raises(Conflict):
        ledger.update_record(stored, late)
    assert ear.heard == [("accepted", "conflict", "scheduled", "scheduled")]
