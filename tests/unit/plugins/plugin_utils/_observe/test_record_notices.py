# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which events a change of a record makes, and that they are what CloudEvents 1.0 asks for."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import HistoryLine
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.cloud_events import EVENT_TYPE_PREFIX
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.record_notices import events_of_change, has_happened, make_event
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.conftest import new_move

LEDGER_ID = str(uuid.UUID(int=7))


def record_through(record_type: str, *words: str) -> MoveRecord:
    record = new_move(record_type)
    for second, word in enumerate(words, 1):
        record = record.note(word, "me") if word.startswith("abort_") else record.advance(word, "me", f"It is {word}.")
        record = with_last_line(record, at=f"2026-11-21T03:00:{second:02d}.000Z")
    return record


def with_last_line(record: MoveRecord, **changes: str) -> MoveRecord:
    return dataclasses.replace(record, history=(*record.history[:-1], dataclasses.replace(record.history[-1], **changes)))


def kinds(before: MoveRecord | None, after: MoveRecord) -> list[str]:
    return [event["type"].removeprefix(f"{EVENT_TYPE_PREFIX}.") for event in events_of_change(before, after, LEDGER_ID)]


MOVE, EVACUATION = s.LIVE_MIGRATION, s.EVACUATION


@pytest.mark.parametrize(
    ("record_type", "words", "expected"),
    [
        (MOVE, [s.SCHEDULED, s.QUEUED], []),
        (MOVE, [s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED], ["move.started", "move.completed"]),
        (MOVE, [s.CONFLICT], ["move.conflict"]),
        (MOVE, [s.SCHEDULED, s.QUEUED, "abort_start", "abort_end", s.CANCELLED], ["abort_start", "abort_end", "move.cancelled"]),
        (MOVE, [s.RUNNING, "abort_start", "abort_start", s.COMPLETED], ["move.started", "abort_start", "abort_end", "move.completed"]),
        (MOVE, [s.RUNNING, s.ERROR, s.COMPLETED], ["move.started", "move.error", "move.completed"]),
        (MOVE, [s.RUNNING, "abort_start", s.ERROR, s.FAILED], ["move.started", "abort_start", "abort_end", "move.error", "move.failed"]),
        (EVACUATION, [s.PRE_MIGRATING, s.DONE, s.COMPLETED], ["evacuation.started", "evacuation.completed", "cleanup.completed"]),
        (EVACUATION, [s.PRE_MIGRATING, s.ERROR, s.COMPLETED], ["evacuation.started", "evacuation.error", "evacuation.completed"]),
        (EVACUATION, [s.PRE_MIGRATING, s.ERROR, s.PRE_MIGRATING, s.FAILED], ["evacuation.started", "evacuation.error", "evacuation.failed"]),
        (EVACUATION, [s.CONFLICT], ["evacuation.conflict"]),
    ],
)
def test_events_of_a_history_are_the_same_at_once_and_line_by_line(record_type: str, words: list[str], expected: list[str]) -> None:
    assert kinds(None, record_through(record_type, *words)) == expected
    whole = record_through(record_type, *words)
    lines = []
    for count in range(1, len(whole.history) + 1):
        part, before = (dataclasses.replace(whole, history=whole.history[:end]) for end in (count, count - 1))
        lines += kinds(before, part)
    assert lines == expected


def test_an_event_has_the_attributes_of_cloudevents() -> None:
    record = record_through(MOVE, s.RUNNING, s.COMPLETED)
    record = dataclasses.replace(record, result=dataclasses.replace(record.result, downtime_ms=95))
    started, completed = events_of_change(None, record, LEDGER_ID)
    for event in (started, completed):
        assert event["specversion"] == "1.0"
        assert re.fullmatch(r"io\.github\.kvmfleet\.migration\.move\.[a-z]+", event["type"])
        assert event["source"] == f"urn:uuid:{LEDGER_ID}"
        assert event["datacontenttype"] == "application/json"
        assert datetime.datetime.fromisoformat(event["time"]).tzinfo is not None
        assert all(re.fullmatch("[a-z0-9]+", name) for name in event)
        assert all(isinstance(value, str) and value for name, value in event.items() if name != "data")
    assert started["id"] != completed["id"]
    assert (started["data"]["status"], started["data"]["result"], started["data"]["reason"]) == ("running", None, None)
    assert (completed["data"]["status"], completed["data"]["result"]["downtime_ms"]) == ("completed", 95)
    assert completed["data"]["domain"] == {"uuid": record.domain.uuid, "name": "web1"}
    assert (completed["data"]["source"]["host"], completed["data"]["destination"]["host"]) == ("kvm1", "kvm2")


def test_the_id_of_an_event_is_deterministic() -> None:
    record = record_through(MOVE, s.RUNNING, s.COMPLETED)
    ids = [event["id"] for event in events_of_change(None, record, LEDGER_ID)]
    assert [event["id"] for event in events_of_change(None, record, LEDGER_ID)] == ids
    assert len(set(ids)) == 2


def test_an_event_has_no_evidence_and_a_short_detail() -> None:
    record = with_last_line(record_through(MOVE, s.RUNNING, s.FAILED).add_evidence([{"output": "password=hunter2"}]), detail="x" * 5000)
    text = json.dumps(events_of_change(None, record, LEDGER_ID))
    assert "hunter2" not in text
    assert "x" * 1000 in text
    assert "x" * 1001 not in text


def test_an_event_has_happened_only_if_the_record_shows_it() -> None:
    record = record_through(MOVE, s.RUNNING)
    later = record.advance(s.COMPLETED, "me")
    (completed,) = events_of_change(record, later, LEDGER_ID)
    assert has_happened(completed, later)
    assert not has_happened(completed, record)


def test_an_event_outside_of_the_history_has_the_status_of_its_record() -> None:
    record = record_through(EVACUATION, s.PRE_MIGRATING, s.DONE)
    event = make_event(record, "cleanup.started", HistoryLine("2026-11-21T03:00:00.000Z", s.DONE, "me"), LEDGER_ID)
    assert (event["type"], event["data"]["status"], event["data"]["detail"]) == (f"{EVENT_TYPE_PREFIX}.cleanup.started", "done", "")
