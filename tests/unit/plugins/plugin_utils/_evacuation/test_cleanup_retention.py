# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import datetime
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance, new_record, place
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.cleanup_retention import judge_retention
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger

KVM1, KVM2, KVM3 = (place(f"kvm{number}", str(uuid.UUID(int=number)), str(uuid.UUID(int=number + 16))) for number in (1, 2, 3))
WEB = {"uuid": str(uuid.UUID(int=64)), "name": "web"}
DAY = datetime.timedelta(days=1)

Body = dict[str, t.Any]


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> FileLedger:
    return FileLedger(str(tmp_path / "ledger"))


def evacuation(ledger: FileLedger, *statuses: str, source: Body = KVM1, destination: Body = KVM2, closed_at: str = "") -> str:
    """Open a record, and lead it through these statuses.

    :arg closed_at: what the clock of the control node said when the record was closed.
    """
    stored = ledger.open_record(new_record(s.EVACUATION, WEB, source, destination, {}, "me"))
    for status in statuses:
        record = copy.deepcopy(stored.record)
        advance(record, status, "me")
        if closed_at and status == s.COMPLETED:
            record["updated_at"] = record["history"][-1]["at"] = closed_at
        stored = ledger.update(stored, record)
    return str(stored.record["id"])


def judged(ledger: FileLedger, record: str, after: datetime.timedelta = 0 * DAY, days: int = 14) -> tuple[list[str], str]:
    entry = {"record": record, **WEB, "paths": ["/x"]}
    due, kept = judge_retention([entry], ledger, str(KVM1["host_id"]), days, now() + after)
    assert not (due and kept)
    assert all({**one, "reason": ""} == {**entry, "reason": ""} for one in kept)
    return due, kept[0]["reason"] if kept else ""


def test_the_retention_counts_from_the_close_of_the_record(ledger: FileLedger) -> None:
    record = evacuation(ledger, s.PRE_MIGRATING, s.DONE, s.COMPLETED)
    assert judged(ledger, record) == ([], "")
    assert judged(ledger, record, 13.9 * DAY) == ([], "")
    assert judged(ledger, record, 14 * DAY) == ([record], "")
    assert judged(ledger, record, days=0) == ([record], "")


def test_what_is_not_closed_yet_is_not_due_however_old_it_is(ledger: FileLedger) -> None:
    """The run that put it aside may have died right after that, and the next one goes on from there."""
    record = evacuation(ledger, s.PRE_MIGRATING, s.DONE)
    assert judged(ledger, record, 1000 * DAY) == ([], "")


def test_a_record_that_was_closed_by_a_clock_that_was_behind_is_not_overdue(ledger: FileLedger) -> None:
    record = evacuation(ledger, s.PRE_MIGRATING, s.DONE, s.COMPLETED, closed_at="1970-01-01T00:00:09.000Z")
    assert judged(ledger, record) == ([], "")
    assert judged(ledger, record, 15 * DAY) == ([record], "")


def test_nothing_is_deleted_by_a_clock_that_is_behind_the_record(ledger: FileLedger) -> None:
    record = evacuation(ledger, s.PRE_MIGRATING, s.DONE, s.COMPLETED)
    due, reason = judged(ledger, record, -30 * DAY, days=0)
    assert due == []
    assert "set the clock" in reason


def test_what_no_record_of_this_host_tells_of_is_kept(ledger: FileLedger) -> None:
    assert "has no record" in judged(ledger, str(uuid.UUID(int=99)), 1000 * DAY)[1]
    other = evacuation(ledger, s.PRE_MIGRATING, s.DONE, s.COMPLETED, source=KVM3)
    assert "not of an evacuation of this host" in judged(ledger, other, 1000 * DAY)[1]


def test_a_record_that_was_given_up_by_this_host_counts(ledger: FileLedger) -> None:
    record = evacuation(ledger, s.PRE_MIGRATING, s.FAILED, source=KVM3, destination=KVM1)
    assert judged(ledger, record, 15 * DAY) == ([record], "")
