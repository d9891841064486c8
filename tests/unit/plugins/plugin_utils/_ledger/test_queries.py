# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Queries: every condition, months that are skipped, and closed records that cost an open query nothing."""

from __future__ import annotations

import itertools
import typing as t
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.encoding import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file_store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.shelf import Shelf
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored

Go = Callable[..., Stored]
NewMove = Callable[..., dict[str, t.Any]]


def put_closed(path: str, record: dict[str, t.Any], at: str) -> dict[str, t.Any]:
    """Write a record as one that was closed at that time."""
    record = {**record, "status": s.COMPLETED, "created_at": at, "updated_at": at}
    folder = Path(path, "migrations", "closed", at[:4], at[5:7])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{record['id']}.json").write_bytes(encode(record, 6))
    return record


@pytest.fixture
def fleet(ledger: FileLedger, path: str, new_move: NewMove, go: Go) -> dict[str, dict[str, t.Any]]:
    """One running move, one in error, one tombstone, one failed now, two closed earlier."""
    kvm3 = {"host": "kvm3", "host_id": str(uuid.uuid4()), "host_uuid": str(uuid.uuid4())}
    return {
        "running": go(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED, s.RUNNING).record,
        "error": go(ledger, ledger.open_record(new_move("web2", destination=kvm3)), s.ERROR).record,
        "done": go(ledger, ledger.open_record(new_move("db1", record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE).record,
        "failed": go(ledger, ledger.open_record(new_move("web4")), s.FAILED).record,
        "september": put_closed(path, new_move("web5"), "2024-09-30T23:59:59.999Z"),
        "october": put_closed(path, new_move("web5"), "2024-10-01T00:00:00.000Z"),
    }


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, {"running", "error", "done", "failed", "september", "october"}),
        ({"types": [s.EVACUATION]}, {"done"}),
        ({"statuses": [s.RUNNING, s.FAILED]}, {"running", "failed"}),
        ({"statuses": [s.DONE]}, {"done"}),
        ({"statuses": []}, set()),
        ({"unsettled_only": True}, {"running", "error"}),
        ({"host": "kvm3"}, {"error"}),
        ({"host": "kvm1", "unsettled_only": True}, {"running", "error"}),
        ({"host": "22222222-0000-4000-8000-000000000002", "statuses": [s.RUNNING]}, {"running"}),
        ({"host": "22222222-0000-4000-8000-0000000000a2", "statuses": [s.RUNNING]}, {"running"}),
        ({"host": "nobody"}, set()),
        ({"domain": "web5"}, {"september", "october"}),
        ({"until": "2024-10-01"}, {"september"}),
        ({"until": "2024-10-01T02:00:00+02:00"}, {"september"}),
        ({"since": "2024-10-01T00:00:00Z", "until": "2024-11-01"}, {"october"}),
        ({"since": "2024-10-01T00:00:00.001Z", "statuses": [s.COMPLETED]}, set()),
        ({"since": "2025-01-01"}, {"running", "error", "done", "failed"}),
    ],
)
def test_conditions(ledger: FileLedger, fleet: dict[str, dict[str, t.Any]], conditions: dict[str, t.Any], expected: set[str]) -> None:
    names = {record["id"]: name for name, record in fleet.items()}
    assert sorted(names[record["id"]] for record in ledger.records(**conditions)) == sorted(expected)


def test_a_domain_by_its_uuid(ledger: FileLedger, fleet: dict[str, dict[str, t.Any]]) -> None:
    assert [record["id"] for record in ledger.records(domain=fleet["error"]["domain"]["uuid"])] == [fleet["error"]["id"]]


@pytest.mark.parametrize(
    ("conditions", "named"),
    [
        ({"statuses": ["finished"]}, "'finished' is no status"),
        ({"types": ["teleport"]}, "'teleport' is no type"),
        ({"since": "yesterday"}, "'since' is 'yesterday'"),
        ({"until": "2024-13-01"}, "'until'"),
        ({"until": "0001-01-01T00:00:00+14:00"}, "'until'"),
    ],
)
def test_a_bad_condition_is_named_at_once(ledger: FileLedger, conditions: dict[str, t.Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        ledger.records(**conditions)


def test_only_the_months_asked_for_are_read(ledger: FileLedger, fleet: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, ...]] = []
    genuine = Shelf.read_all

    def spy(self: Shelf, parts: tuple[str, ...], *args: t.Any) -> t.Any:
        read.append(tuple(parts))
        return genuine(self, parts, *args)

    monkeypatch.setattr(Shelf, "read_all", spy)
    assert len(list(ledger.records(since="2024-10-01", until="2024-10-02"))) == 1
    assert [parts for parts in read if "closed" in parts] == [("migrations", "closed", "2024", "10")]


def test_an_open_query_never_looks_at_closed_records(ledger: FileLedger, fleet: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[str, ...]] = []
    genuine = Shelf.folders

    def spy(self: Shelf, parts: tuple[str, ...]) -> list[str]:
        looked.append(tuple(parts))
        return genuine(self, parts)

    monkeypatch.setattr(Shelf, "folders", spy)
    assert len(list(ledger.records(unsettled_only=True))) == 2
    assert len(list(ledger.records(statuses=[s.RUNNING, s.DONE]))) == 2
    assert ledger.unsettled_of(fleet["running"]["domain"]["uuid"]) is not None
    assert not [parts for parts in looked if "closed" in parts]


def test_a_record_closed_during_a_query_is_seen_once(ledger: FileLedger, new_move: NewMove, go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = ledger.open_record(new_move())
    records = ledger.records()
    first = next(records)
    go(ledger, stored, s.CANCELLED)
    assert [record["id"] for record in itertools.chain([first], records)] == [stored.record["id"]]
    assert [record["status"] for record in ledger.records()] == [s.CANCELLED]
