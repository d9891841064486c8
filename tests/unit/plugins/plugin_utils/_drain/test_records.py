# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which records say that domains have arrived on a host lately."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import clock
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.records import read_arrived, read_arrived_since_plan, read_unsettled
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger

UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


@pytest.mark.parametrize(
    ("record_type", "statuses", "has_arrived"),
    [
        (s.LIVE_MIGRATION, (s.SCHEDULED, s.RUNNING), False),
        (s.LIVE_MIGRATION, (s.SCHEDULED, s.RUNNING, s.COMPLETED), True),
        (s.EVACUATION, (s.PRE_MIGRATING,), False),
        (s.EVACUATION, (s.PRE_MIGRATING, s.DONE), True),
        (s.EVACUATION, (s.PRE_MIGRATING, s.DONE, s.COMPLETED), True),
    ],
)
def test_moves_and_evacuations_have_arrived_also_once_the_source_was_cleaned_up(
    tmp_path: pathlib.Path, record_type: str, statuses: tuple[str, ...], has_arrived: bool
) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    source, destination = (HostRef(name, None, None) for name in ("kvm1", "kvm2"))
    stored = ledger.open_record(new_record(record_type, DomainRef(UUID, "web1"), source, destination, {}, "ann"))
    for status in statuses:
        stored = ledger.update_record(stored, stored.record.advance(status, "ann"))
    expected = [stored.record.record_id] if has_arrived else []
    assert [record.record_id for record in read_arrived(ledger, 3600)] == expected
    assert [record.record_id for record in read_arrived_since_plan(ledger, clock.utc_now())] == expected


@pytest.mark.parametrize("record_type", s.TYPES)
def test_a_superseded_record_is_not_read_as_one_that_is_under_way(tmp_path: pathlib.Path, record_type: str) -> None:
    """A drain would follow it, or send its domain to the destination that it names."""
    ledger = FileLedger(str(tmp_path / "ledger"), create=True)
    source, destination = (HostRef(name, None, None) for name in ("kvm1", "kvm2"))
    stored = ledger.open_record(new_record(record_type, DomainRef(UUID, "web1"), source, destination, {}, "ann"))
    assert read_unsettled(ledger) == [stored.record]
    ledger.update_record(stored, stored.record.supersede(UUID))
    assert read_unsettled(ledger) == []
