# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Queries: every condition, months that are skipped, and closed records that cost an open query nothing."""

from __future__ import annotations

import itertools
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]


@pytest.fixture
def fleet(ledger: Ledger, store: Store, new_move: NewMove, advance_record: AdvanceRecord) -> dict[str, MoveRecord]:
    """One running move, one in error, one tombstone, one failed now, two closed earlier."""
    kvm3 = HostRef("kvm3", str(uuid.uuid4()), str(uuid.uuid4()))
    return {
        "running": advance_record(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED, s.RUNNING).record,
        "error": advance_record(ledger, ledger.open_record(new_move("web2", destination=kvm3)), s.ERROR).record,
        "done": advance_record(ledger, ledger.open_record(new_move("db1", record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE).record,
        "failed": advance_record(ledger, ledger.open_record(new_move("web4")), s.FAILED).record,
        "september": store.put_closed(new_move("web5"), "2024-09-30T23:59:59.999Z"),
        "october": store.put_closed(new_move("web5"), "2024-10-01T00:00:00.000Z"),
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
def test_records_are_selected_by_every_condition(ledger: Ledger, fleet: dict[str, MoveRecord], conditions: dict[str, t.Any], expected: set[str]) -> None:
    names = {record.id: name for name, record in fleet.items()}
    assert sorted(names[record.id] for record in ledger.list_records(**conditions)) == sorted(expected)


def test_records_are_selected_by_the_uuid_of_their_domain(ledger: Ledger, fleet: dict[str, MoveRecord]) -> None:
    assert [record.id for record in ledger.list_records(domain=fleet["error"].domain.uuid)] == [fleet["error"].id]


@pytest.mark.parametrize(
    ("conditions", "named"),
    [
        ({"statuses": ["finished"]}, "'finished' is not a status"),
        ({"types": ["teleport"]}, "'teleport' is not a type"),
        ({"since": "yesterday"}, "'since' is 'yesterday'"),
        ({"until": "2024-13-01"}, "'until'"),
        ({"until": "0001-01-01T00:00:00+14:00"}, "'until'"),
    ],
)
def test_an_invalid_condition_is_refused_at_once(ledger: Ledger, conditions: dict[str, t.Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        ledger.list_records(**conditions)


def test_a_record_closed_during_a_query_is_seen_once(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    stored = ledger.open_record(new_move())
    records = ledger.list_records()
    first = next(records)
    advance_record(ledger, stored, s.CANCELLED)
    assert [record.id for record in itertools.chain([first], records)] == [stored.record.id]
    assert [record.status for record in ledger.list_records()] == [s.CANCELLED]
