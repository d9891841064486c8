# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import QuarantineEntry
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.cleanup import judge_retention
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger

KVM1, KVM2, KVM3 = (HostRef(f"kvm{number}", str(uuid.UUID(int=number)), str(uuid.UUID(int=number + 16))) for number in (1, 2, 3))
WEB = DomainRef(str(uuid.UUID(int=64)), "web")
DAY = datetime.timedelta(days=1)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    return FileLedger(str(tmp_path / "ledger"))


def evacuation(ledger: FileLedger, *statuses: str, source: HostRef = KVM1, destination: HostRef = KVM2, closed_at: str = "") -> str:
    """Open a record, and lead it through these statuses.

    :arg closed_at: what the clock of the control node said when the record was closed.
    """
    stored = ledger.open_record(new_record(s.EVACUATION, WEB, source, destination, {}, "me"))
    for status in statuses:
        record = stored.record.advance(status, "me")
        if closed_at and status == s.COMPLETED:
            last = dataclasses.replace(record.history[-1], at=closed_at)
            record = dataclasses.replace(record, updated_at=closed_at, history=(*record.history[:-1], last))
        stored = ledger.update_record(stored, record)
    return stored.record.record_id


def judged(ledger: FileLedger, record: str, after: datetime.timedelta = 0 * DAY, days: int = 14) -> tuple[list[str], str]:
    entry = QuarantineEntry(record, WEB.uuid, WEB.name, ("/x",))
    due, kept = judge_retention([entry], ledger, KVM1.host_id, days, now() + after)
    assert not (due and kept)
    assert all(dataclasses.replace(one, reason=ABSENT) == entry for one in kept)
    return due, str(kept[0].reason) if kept else ""


def test_the_retention_counts_from_the_end_of_the_record(ledger: FileLedger) -> None:
    record = evacuation(ledger, s.PRE_MIGRATING, s.DONE, s.COMPLETED)
    assert judged(ledger, record) == ([], "")
    assert judged(ledger, record, 13.9 * DAY) == ([], "")
    assert judged(ledger, record, 14 * DAY) == ([record], "")
    assert judged(ledger, record, days=0) == ([record], "")


def test_files_of_an_open_record_are_never_due(ledger: FileLedger) -> None:
    """The run that moved the file into quarantine may have died right after that; the next run continues it."""
    record = evacuation(ledger, s.PRE_MIGRATING, s.DONE)
    assert judged(ledger, record, 1000 * DAY) == ([], "")


def test_a_record_closed_by_a_clock_that_was_behind_is_not_overdue(ledger: FileLedger) -> None:
    record = evacuation(ledger, s.PRE_MIGRATING, s.DONE, s.COMPLETED, closed_at="1970-01-01T00:00:09.000Z")
    assert judged(ledger, record) == ([], "")
    assert judged(ledger, record, 15 * DAY) == ([record], "")


def test_nothing_is_due_if_the_clock_is_behind_the_record(ledger: FileLedger) -> None:
    record = evacuation(ledger, s.PRE_MIGRATING, s.DONE, s.COMPLETED)
    due, reason = judged(ledger, record, -30 * DAY, days=0)
    assert due == []
    assert "set the clock" in reason


def test_files_without_a_record_of_this_host_are_kept(ledger: FileLedger) -> None:
    assert "has no record" in judged(ledger, str(uuid.UUID(int=99)), 1000 * DAY)[1]
    other = evacuation(ledger, s.PRE_MIGRATING, s.DONE, s.COMPLETED, source=KVM3)
    assert "not of an evacuation or a cold move of this host" in judged(ledger, other, 1000 * DAY)[1]


def test_a_failed_record_with_this_host_as_destination_counts(ledger: FileLedger) -> None:
    record = evacuation(ledger, s.PRE_MIGRATING, s.FAILED, source=KVM3, destination=KVM1)
    assert judged(ledger, record, 15 * DAY) == ([record], "")
