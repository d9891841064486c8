# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The index of closed records by domain, in both stores: what it finds, what it does not promise, and ledgers that began without it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.copying import copy_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.domain_index import first_month, index_key
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import FileStore, Store

NewMove = Callable[..., MoveRecord]
AdvanceRecord = Callable[..., Stored]
DOMAIN = "dddddddd-0000-4000-8000-000000000001"


@pytest.fixture
def close(new_move: NewMove, advance_record: AdvanceRecord) -> Callable[..., MoveRecord]:
    """Open a record and close it."""

    def act(ledger: Ledger, name: str = "web1", domain_uuid: str = DOMAIN) -> MoveRecord:
        return advance_record(ledger, ledger.open_record(new_move(name, domain_uuid)), s.SCHEDULED, s.CANCELLED).record

    return act


def ids(ledger: Ledger, domain: str, **conditions: str) -> list[str]:
    return sorted(record.record_id for record in ledger.list_records(domain=domain, **conditions))  # type: ignore[arg-type]


def problems(ledger: Ledger) -> list[str]:
    return ledger.examine_contents(lambda contents: find_problems(contents).all_problems)


def put_unindexed(store: Store, record: MoveRecord, at: str) -> MoveRecord:
    """Keep a record that a version without an index has closed at that time."""
    kept = store.put_closed(record, at)
    for name in store.names("by_domain"):
        store.remove(name)
    return kept


def entry_names(store: Store, domain: str) -> list[str]:
    """Return what the store has for a key of the index."""
    return [name for name in store.names("by_domain") if f"/{index_key(domain)}" in name]


def test_a_domain_is_found_by_uuid_and_by_each_name_that_it_had(ledger: Ledger, close: Callable[..., MoveRecord]) -> None:
    first, second = close(ledger), close(ledger, "web2")
    other = close(ledger, "db1", str(uuid.uuid4()))
    assert ids(ledger, DOMAIN) == sorted([first.record_id, second.record_id])
    assert ids(ledger, "web1") == [first.record_id]
    assert ids(ledger, "db1") == [other.record_id]
    assert ids(ledger, "db1", until="2026-01-01") == []
    assert ids(ledger, "unknown") == []
    assert problems(ledger) == []


def test_only_the_records_of_the_domain_are_read(ledger: Ledger, store: Store, close: Callable[..., MoveRecord]) -> None:
    kept, torn = close(ledger), close(ledger, "db1", str(uuid.uuid4()))
    path = next(name for name in store.names("migrations/closed") if torn.record_id in name)
    store.write(path, b"torn")
    assert ids(store.open(), DOMAIN) == [kept.record_id]
    assert store.read(path) == b"torn"


def test_an_entry_without_its_record_and_one_of_another_domain_find_nothing(ledger: Ledger, store: Store, close: Callable[..., MoveRecord]) -> None:
    gone, other = close(ledger), close(ledger, "db1", str(uuid.uuid4()))
    store.remove(next(name for name in store.names("migrations/closed") if gone.record_id in name))
    if isinstance(store, FileStore):
        (name,) = entry_names(store, DOMAIN)
        data = store.read(name) or b""
        store.write(name, data + data.replace(gone.record_id.encode(), other.record_id.encode()) + b"2026/1")
    assert ids(store.open(), DOMAIN) == []
    assert ids(store.open(), "db1") == [other.record_id]


def test_verify_reports_a_closed_record_that_the_index_lacks(ledger: Ledger, store: Store, close: Callable[..., MoveRecord]) -> None:
    record = close(ledger)
    (name,) = entry_names(store, DOMAIN)
    store.remove(name)
    assert ids(ledger, DOMAIN) == []
    (problem,) = problems(ledger)
    assert "lacks the closed record" in problem or "is missing" in problem
    assert record.record_id in problem
    # Without an index, all records are read.
    store.remove("by_domain/begin" if isinstance(store, FileStore) else "by_domain.begin")
    assert ids(store.open(), DOMAIN) == [record.record_id]
    assert problems(ledger) == []


def test_records_from_before_the_index_are_found_too(ledger: Ledger, store: Store, new_move: NewMove, close: Callable[..., MoveRecord]) -> None:
    old = [put_unindexed(store, new_move("web1", DOMAIN), at) for at in ("2025-12-31T10:00:00.000Z", "2026-01-01T10:00:00.000Z")]
    assert ids(ledger, DOMAIN) == sorted(record.record_id for record in old)
    new = close(ledger)
    assert ids(ledger, DOMAIN) == sorted(record.record_id for record in (*old, new))
    assert ids(ledger, "web1", since="2026-01-01", until="2026-02-01") == [old[1].record_id]
    assert problems(ledger) == []
    begin = (store.read("by_domain/begin") or store.read("by_domain.begin") or b"").decode()
    # From the month after the one in which both versions may have closed records.
    assert begin > f"{new.updated_at[:4]}/{new.updated_at[5:7]}"


def test_months_before_the_index_are_searched_and_later_ones_are_not(ledger: Ledger, store: Store, new_move: NewMove) -> None:
    late = put_unindexed(store, new_move("web1", DOMAIN), "2025-12-31T11:00:00.000Z")
    hole = put_unindexed(store, new_move("web1", DOMAIN), "2026-01-01T00:00:00.000Z")
    store.write("by_domain/begin" if isinstance(store, FileStore) else "by_domain.begin", b"2026/01")
    assert ids(ledger, DOMAIN) == [late.record_id]
    assert [hole.record_id in problem for problem in problems(ledger)] == [True, True]


def test_a_new_index_begins_after_the_month_of_the_first_record() -> None:
    path = ("migrations", "closed", "2026", "12", f"{DOMAIN}.json")
    assert first_month(path, True) == "2027/01"
    assert first_month((*path[:3], "01", path[4]), True) == "2026/02"
    assert first_month(path, False) == "0000/00"


def test_a_copied_ledger_has_a_complete_index(store: Store, ledger: Ledger, other_store: Store, new_move: NewMove) -> None:
    old = put_unindexed(store, new_move("web1", DOMAIN), "2025-12-31T10:00:00.000Z")
    assert copy_ledger(ledger, other_store.target(), "somebody").changed
    copied = other_store.open()
    assert problems(copied) == []
    assert (other_store.read("by_domain/begin") or other_store.read("by_domain.begin")) == b"0000/00"
    assert ids(copied, DOMAIN) == [old.record_id]
    assert entry_names(other_store, DOMAIN)


def test_a_torn_line_of_the_index_is_ended_by_the_next_one(tmp_path_factory: pytest.TempPathFactory, close: Callable[..., MoveRecord]) -> None:
    store = FileStore(tmp_path_factory.mktemp("torn") / "ledger")
    ledger = store.open()
    first = close(ledger)
    (name,) = entry_names(store, DOMAIN)
    store.write(name, (store.read(name) or b"") + b"2026/11/0f6f")
    second = close(ledger)
    assert ids(ledger, DOMAIN) == sorted([first.record_id, second.record_id])
    assert problems(ledger) == []
