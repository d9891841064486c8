# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record's shape, its history, and what is taken for no record."""

from __future__ import annotations

import copy
import datetime
import json
import re
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import (
    advance,
    check_record,
    did,
    intend,
    is_unsettled,
    new_record,
    note,
    place,
)


@pytest.fixture
def record() -> t.Dict[str, t.Any]:
    domain = {"uuid": "55555555-0000-4000-8000-000000000005", "name": "web1"}
    return new_record(s.LIVE_MIGRATION, domain, place("kvm1"), place("kvm2"), {}, "root@control pid 1", {"memory_mib": 512})


def test_a_new_record_is_one_and_is_json(record: t.Dict[str, t.Any]) -> None:
    assert check_record(json.loads(json.dumps(record))) == record
    assert (record["status"], record["generation"], record["request"]) == (s.ACCEPTED, 0, {"memory_mib": 512})
    assert is_unsettled(record)


def test_a_record_shares_nothing_with_what_it_was_made_of() -> None:
    domain = {"uuid": "55555555-0000-4000-8000-000000000005", "name": "web1"}
    made = new_record(s.LIVE_MIGRATION, domain, place("kvm1"), place("kvm2"), {}, "me")
    domain["name"] = "changed"
    assert made["domain"]["name"] == "web1"


def test_a_transition_is_written_down(record: t.Dict[str, t.Any]) -> None:
    advance(record, s.CANCELLED, "alice", "asked for", s.REASON_OPERATOR)
    last = record["history"][-1]
    assert (last["status"], last["by"], last["detail"], record["reason"]) == (s.CANCELLED, "alice", "asked for", "operator")
    assert record["updated_at"] == last["at"] >= record["created_at"]
    assert not is_unsettled(record)


def test_a_transition_that_is_refused_changes_nothing(record: t.Dict[str, t.Any]) -> None:
    before = copy.deepcopy(record)
    with pytest.raises(Internal, match="from 'accepted' to 'done'"):
        advance(record, s.DONE, "me")
    assert record == before


def test_notes_and_acts_change_no_status(record: t.Dict[str, t.Any]) -> None:
    assert not did(record, "abort")
    intend(record, "abort")
    note(record, "abort_start", "me")
    assert did(record, "abort")
    assert (record["status"], record["history"][-1]["status"]) == (s.ACCEPTED, "abort_start")
    assert check_record(record)


def without(key: str) -> t.Callable[[t.Dict[str, t.Any]], t.Any]:
    return lambda record: record.pop(key)


def having(key: str, value: t.Any) -> t.Callable[[t.Dict[str, t.Any]], t.Any]:
    return lambda record: record.update({key: value})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (having("schema", 2), "schema is 2"),
        (without("schema"), "schema is None"),
        (without("id"), "id is not a text"),
        (having("type", "teleport"), "type is 'teleport'"),
        (having("status", "finished"), "status is 'finished'"),
        (having("generation", "1"), "generation is not a number"),
        (without("progress"), "progress is not an object"),
        (having("history", {}), "history is not a list"),
        (having("domain", {"name": "web1"}), "its domain has no UUID"),
        (having("source", {"host": "kvm1"}), "its source lacks"),
        (having("source", {"host": ["kvm1"], "host_id": None, "host_uuid": None}), "its source lacks"),
        (without("superseded_by"), "superseded_by"),
        (having("reason", 5), "its reason"),
        (having("domain", {"uuid": "a", "name": {}}), "the name of its domain"),
        (having("progress", {}), "its progress lacks a number"),
        (lambda record: record["progress"].update(percent="half"), "its progress lacks a number"),
        (lambda record: record["result"].update(elapsed_ms="long"), "its result lacks a number"),
        (lambda record: record["history"].append("running"), "an entry of its history"),
        (lambda record: record["acts"].append({"act": 5, "at": ""}), "an entry of its acts"),
        (lambda record: record["samples"].append(None), "an entry of its samples"),
    ],
)
def test_what_is_no_record_is_named(record: t.Dict[str, t.Any], change: t.Callable[[t.Dict[str, t.Any]], t.Any], named: str) -> None:
    change(record)
    with pytest.raises(Internal, match=named):
        check_record(record)


@pytest.mark.parametrize("document", [None, [], "record", 5])
def test_what_is_no_object_is_no_record(document: t.Any) -> None:
    with pytest.raises(Internal, match="not a JSON object"):
        check_record(document)


def test_unknown_keys_are_kept(record: t.Dict[str, t.Any]) -> None:
    record["future"] = {"a": 1}
    assert check_record(record)["future"] == {"a": 1}


def test_the_clock_writes_utc_with_milliseconds() -> None:
    now = utc_now()
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", now)
    written = datetime.datetime.strptime(now, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
    assert abs(datetime.datetime.now(datetime.timezone.utc) - written) < datetime.timedelta(minutes=1)
