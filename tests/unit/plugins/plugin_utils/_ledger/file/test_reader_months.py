# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders of months: only those asked for are read, and closed records cost an open query nothing."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.reader import DocumentReader
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import FileStore


@pytest.fixture
def months(ledger: FileLedger, store: FileStore, new_move: Callable[..., MoveRecord], advance_record: Callable[..., Stored]) -> dict[str, MoveRecord]:
    """One running move, one tombstone, two of each of two months."""
    advance_record(ledger, ledger.open_record(new_move("db1", record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    store.put_closed(new_move("web5"), "2024-09-30T23:59:59.999Z")
    store.put_closed(new_move("web5"), "2024-10-01T00:00:00.000Z")
    return {"running": advance_record(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED, s.RUNNING).record}


def test_only_the_months_of_the_query_are_read(ledger: FileLedger, months: dict[str, MoveRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, ...]] = []
    genuine = DocumentReader.read_all

    def spy(self: DocumentReader, parts: tuple[str, ...], *args: t.Any) -> t.Any:
        read.append(tuple(parts))
        return genuine(self, parts, *args)

    monkeypatch.setattr(DocumentReader, "read_all", spy)
    assert len(list(ledger.list_records(since="2024-10-01", until="2024-10-02"))) == 1
    assert [parts for parts in read if "closed" in parts] == [("migrations", "closed", "2024", "10")]


def test_a_query_for_open_records_does_not_read_closed_ones(ledger: FileLedger, months: dict[str, MoveRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[str, ...]] = []
    genuine = DocumentReader.list_folder

    def spy(self: DocumentReader, parts: tuple[str, ...]) -> list[str]:
        looked.append(tuple(parts))
        return genuine(self, parts)

    monkeypatch.setattr(DocumentReader, "list_folder", spy)
    assert len(list(ledger.list_records(unsettled_only=True))) == 1
    assert len(list(ledger.list_records(statuses=[s.RUNNING, s.DONE]))) == 2
    assert ledger.find_unsettled(months["running"].domain.uuid) is not None
    assert not [parts for parts in looked if "closed" in parts]
