# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which records a person may settle: none that hosts still act on."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_decisions import discarded_entry, has_lost_source, settle_record
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

NewMove = Callable[..., MoveRecord]
MOVING, STARTING = (s.SCHEDULED, s.QUEUED, s.RUNNING), (s.PRE_MIGRATING,)


@pytest.mark.parametrize("status", [s.FAILED, s.COMPLETED])
@pytest.mark.parametrize(("kind", "statuses"), [(s.LIVE_MIGRATION, MOVING), (s.COLD_MIGRATION, MOVING), (s.EVACUATION, ()), (s.EVACUATION, STARTING)])
def test_a_move_that_is_under_way_is_not_settled_by_a_person(new_move: NewMove, kind: str, statuses: tuple[str, ...], status: str) -> None:
    record = new_move(record_type=kind)
    for one in statuses:
        record = record.advance(one, "kvm1")
    with pytest.raises(InvalidState, match="a person settles one that is 'error'"):
        settle_record(Stored(record, 1), status, "seen", "ann")
    superseded = settle_record(Stored(record.supersede(str(uuid.uuid4())), 1), s.FAILED, "seen", "ann")
    assert superseded is not None
    assert superseded.status == s.FAILED


def test_the_discarded_host_of_another_move_is_not_the_lost_source_of_this_one(new_move: NewMove) -> None:
    record = new_move()
    source, other = (host_entry({"name": end.host, "host_id": end.host_id, "host_uuid": end.host_uuid}) for end in record.ends)
    gone = [discarded_entry(entry, "burnt", "ann") for entry in (source, other)]
    assert all(gone)
    assert [has_lost_source(record, [entry]) for entry in (source, *filter(None, gone))] == [False, True, False]
