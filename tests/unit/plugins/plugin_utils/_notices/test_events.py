# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which events a change of a record makes, and that they are what CloudEvents 1.0 asks for."""

from __future__ import annotations

import copy
import datetime
import json
import re
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance, note
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.events import PREFIX, event_of, events_of, has_happened
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._notices.conftest import Record, new_move

LEDGER_ID = str(uuid.UUID(int=7))


def led(record_type: str, *words: str) -> Record:
    record = new_move(record_type)
    for second, word in enumerate(words, 1):
        note(record, word, "me") if word.startswith("abort_") else advance(record, word, "me", f"It is {word}.")
        record["history"][-1]["at"] = f"2026-11-21T03:00:{second:02d}.000Z"
    return record


def kinds(before: Record | None, after: Record) -> list[str]:
    return [event["type"].removeprefix(f"{PREFIX}.") for event in events_of(before, after, LEDGER_ID)]


MOVE, EVACUATION = s.LIVE_MIGRATION, s.EVACUATION


@pytest.mark.parametrize(
    ("record_type", "words", "expected"),
    [
        (MOVE, [s.SCHEDULED, s.QUEUED], []),
        (MOVE, [s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED], ["move.started", "move.completed"]),
        (MOVE, [s.CONFLICT], ["move.conflict"]),
        (MOVE, [s.SCHEDULED, s.QUEUED, "abort_start", "abort_end", s.CANCELLED], ["abort.started", "abort.completed", "move.cancelled"]),
        (MOVE, [s.RUNNING, "abort_start", "abort_start", s.COMPLETED], ["move.started", "abort.started", "abort.failed", "move.completed"]),
        (MOVE, [s.RUNNING, s.ERROR, s.COMPLETED], ["move.started", "move.error", "move.completed"]),
        (MOVE, [s.RUNNING, "abort_start", s.ERROR, s.FAILED], ["move.started", "abort.started", "abort.failed", "move.error", "move.failed"]),
        (EVACUATION, [s.PRE_MIGRATING, s.DONE, s.COMPLETED], ["evacuation.started", "evacuation.completed", "cleanup.completed"]),
        (EVACUATION, [s.PRE_MIGRATING, s.ERROR, s.COMPLETED], ["evacuation.started", "evacuation.error", "evacuation.completed"]),
        (EVACUATION, [s.PRE_MIGRATING, s.ERROR, s.PRE_MIGRATING, s.FAILED], ["evacuation.started", "evacuation.error", "evacuation.failed"]),
        (EVACUATION, [s.CONFLICT], ["evacuation.conflict"]),
    ],
)
def test_a_story_is_told_the_same_at_once_or_line_by_line(record_type: str, words: list[str], expected: list[str]) -> None:
    assert kinds(None, led(record_type, *words)) == expected
    whole = led(record_type, *words)
    lines = []
    for count in range(1, len(whole["history"]) + 1):
        part, before = copy.deepcopy(whole), copy.deepcopy(whole)
        part["history"], before["history"] = whole["history"][:count], whole["history"][: count - 1]
        lines += kinds(before, part)
    assert lines == expected


def test_an_event_has_what_cloudevents_ask_for() -> None:
    record = led(MOVE, s.RUNNING, s.COMPLETED)
    record["result"]["downtime_ms"] = 95
    started, completed = events_of(None, record, LEDGER_ID)
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
    assert completed["data"]["domain"] == {"uuid": record["domain"]["uuid"], "name": "web1"}
    assert (completed["data"]["source"]["host"], completed["data"]["destination"]["host"]) == ("kvm1", "kvm2")


def test_who_ever_tells_of_a_change_gives_it_the_same_id() -> None:
    record = led(MOVE, s.RUNNING, s.COMPLETED)
    ids = [event["id"] for event in events_of(None, record, LEDGER_ID)]
    assert [event["id"] for event in events_of(None, copy.deepcopy(record), LEDGER_ID)] == ids
    assert len(set(ids)) == 2


def test_no_more_than_was_agreed_on_is_told() -> None:
    record = led(MOVE, s.RUNNING, s.FAILED)
    record["evidence"] = [{"output": "password=hunter2"}]
    record["history"][-1]["detail"] = "x" * 5000
    text = json.dumps(events_of(None, record, LEDGER_ID))
    assert "hunter2" not in text
    assert "x" * 1000 in text
    assert "x" * 1001 not in text


def test_what_the_ledger_does_not_say_has_not_happened() -> None:
    record = led(MOVE, s.RUNNING)
    later = copy.deepcopy(record)
    advance(later, s.COMPLETED, "me")
    (completed,) = events_of(record, later, LEDGER_ID)
    assert has_happened(completed, later)
    assert not has_happened(completed, record)


def test_an_event_that_is_no_line_of_history_has_the_state_of_its_record() -> None:
    record = led(EVACUATION, s.PRE_MIGRATING, s.DONE)
    event = event_of(record, "cleanup.started", {"at": "2026-11-21T03:00:00.000Z", "status": s.DONE, "by": "me"}, LEDGER_ID)
    assert (event["type"], event["data"]["status"], event["data"]["detail"]) == (f"{PREFIX}.cleanup.started", "done", "")
