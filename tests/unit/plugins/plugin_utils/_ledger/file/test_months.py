# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders of months: only those asked for are read, and closed records cost an open query nothing."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.shelf import Shelf
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import FileStore


@pytest.fixture
def months(ledger: FileLedger, store: FileStore, new_move: Callable[..., dict[str, t.Any]], go: Callable[..., Stored]) -> dict[str, dict[str, t.Any]]:
    """One running move, one tombstone, two of each of two months."""
    go(ledger, ledger.open_record(new_move("db1", record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    store.put_closed(new_move("web5"), "2024-09-30T23:59:59.999Z")
    store.put_closed(new_move("web5"), "2024-10-01T00:00:00.000Z")
    return {"running": go(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED, s.RUNNING).record}


def test_only_the_months_asked_for_are_read(ledger: FileLedger, months: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, ...]] = []
    genuine = Shelf.read_all

    def spy(self: Shelf, parts: tuple[str, ...], *args: t.Any) -> t.Any:
        read.append(tuple(parts))
        return genuine(self, parts, *args)

    monkeypatch.setattr(Shelf, "read_all", spy)
    assert len(list(ledger.records(since="2024-10-01", until="2024-10-02"))) == 1
    assert [parts for parts in read if "closed" in parts] == [("migrations", "closed", "2024", "10")]


def test_an_open_query_never_looks_at_closed_records(ledger: FileLedger, months: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[str, ...]] = []
    genuine = Shelf.folders

    def spy(self: Shelf, parts: tuple[str, ...]) -> list[str]:
        looked.append(tuple(parts))
        return genuine(self, parts)

    monkeypatch.setattr(Shelf, "folders", spy)
    assert len(list(ledger.records(unsettled_only=True))) == 1
    assert len(list(ledger.records(statuses=[s.RUNNING, s.DONE]))) == 2
    assert ledger.unsettled_of(months["running"]["domain"]["uuid"]) is not None
    assert not [parts for parts in looked if "closed" in parts]
