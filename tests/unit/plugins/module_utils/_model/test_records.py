# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a move: its form in JSON, its history, and what is refused as a record."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import CopiedStorage, DiskCopy, Turn
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record, read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.tests.golden.corpus import GOLDEN, find_records

Document = t.Dict[str, t.Any]
Change = t.Callable[[Document], object]
WEB = DomainRef("55555555-0000-4000-8000-000000000005", "web1")


@pytest.fixture
def record() -> MoveRecord:
    ends = (HostRef("kvm1", None, None), HostRef("kvm2", None, None))
    return new_record(s.LIVE_MIGRATION, WEB, *ends, {}, "root@control pid 1", {"memory_mib": 512})


@pytest.fixture
def document(record: MoveRecord) -> Document:
    return t.cast(Document, encode(record))


def test_a_new_record_survives_json(record: MoveRecord) -> None:
    assert read_record(json.loads(json.dumps(encode(record)))) == record
    assert (record.status, record.generation, record.request, record.is_unsettled) == (s.ACCEPTED, 0, {"memory_mib": 512}, True)


@pytest.mark.parametrize("path", sorted({path for path, _record in find_records()}), ids=lambda path: str(path.relative_to(GOLDEN)))
def test_records_of_earlier_versions_are_written_back_unchanged(path: t.Any) -> None:
    for found, document in find_records():
        if found == path:
            assert encode(read_record(document)) == document


def test_a_transition_adds_a_line_of_history(record: MoveRecord) -> None:
    cancelled = record.advance(s.CANCELLED, "alice", "asked for", s.REASON_OPERATOR)
    last = cancelled.history[-1]
    assert (last.status, last.by, last.detail, cancelled.reason) == (s.CANCELLED, "alice", "asked for", "operator")
    assert cancelled.updated_at == last.at >= cancelled.created_at
    assert not cancelled.is_unsettled
    assert (record.status, len(record.history)) == (s.ACCEPTED, 1)


def test_a_transition_that_is_not_allowed_is_refused(record: MoveRecord) -> None:
    with pytest.raises(Internal, match="from 'accepted' to 'done'"):
        record.advance(s.DONE, "me")


def test_a_record_cannot_be_changed_in_place(record: MoveRecord) -> None:
    for part, key in ((record, "status"), (record.domain, "name"), (record.source, "host"), (record.progress, "percent")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, key, "changed")
    assert (record.status, record.domain.name) == (s.ACCEPTED, "web1")


def test_notes_and_acts_change_no_status(record: MoveRecord) -> None:
    assert not record.has_begun("abort")
    begun = record.intend("abort").note("abort_start", "me")
    assert begun.has_begun("abort")
    assert (begun.status, begun.history[-1].status, begun.is_aborting) == (s.ACCEPTED, "abort_start", True)
    assert read_record(encode(begun)) == begun


def test_a_sample_may_have_only_the_allowed_downtime(document: Document) -> None:
    document["samples"] = [{"allowed_downtime_ms": 50}]
    record = read_record(document)
    assert (record.samples[0].allowed_downtime_ms, record.samples[0].elapsed_ms) == (50, None)
    assert encode(record) == document


def test_values_of_another_form_in_samples_and_history_are_kept(document: Document) -> None:
    document["samples"] = [{"allowed_downtime_ms": 50, "elapsed_ms": "long", "iteration": None}]
    document["history"].append({"at": "2026-01-01T00:00:00.000Z", "status": "queued", "by": None, "detail": 5})
    record = read_record(document)
    assert (record.samples[0].elapsed_ms, record.history[-1].by, record.history[-1].detail) == (None, None, ABSENT)
    assert encode(record) == document


def test_a_target_is_marked_in_a_new_record_only(record: MoveRecord) -> None:
    disks = tuple(DiskCopy(target, f"/images/{target}", "raw", 10, 10, "create", made=False) for target in ("vda", "vdb"))
    planned = dataclasses.replace(record, storage=CopiedStorage("full", disks))
    made = planned.mark_target("vdb", is_made=True)
    assert [disk.made for disk in made.disk_copies] == [False, True]
    assert [disk.made for disk in planned.disk_copies] == [False, False]
    assert record.mark_target("vdb", is_made=True) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ledger_id", 5),
        ("connection", "qemu"),
        ("storage", {"mode": "full", "disks": [{"target": "vda"}]}),
        ("wanted_state", ["running"]),
        ("turn", {"limits": {"moves_in": "1"}}),
    ],
)
def test_an_optional_part_of_another_form_is_kept(document: Document, key: str, value: object) -> None:
    document[key] = value
    record = read_record(document)
    assert (getattr(record, key), record.extra) == (ABSENT, {key: value})
    assert encode(record) == document


def test_copied_disks_are_added_to_the_request_and_removed_again(record: MoveRecord) -> None:
    copying = record.copy_disks("full", [DiskCopy(target, f"/images/{target}", "raw", 20, 10, "create") for target in ("vda", "vdb")])
    assert (copying.request["copied_disk_bytes"], copying.copied_bytes) == ({"vda": 10, "vdb": 10}, [10, 10])
    assert [disk.path for disk in copying.disk_copies] == ["/images/vda", "/images/vdb"]
    assert read_record(encode(copying)) == copying
    assert copying.copy_disks("full", []) == record


def test_the_turn_of_a_record_is_noted_and_dropped(record: MoveRecord) -> None:
    waiting = record.note_turn(Turn({"moves_in": 1}, record.created_at, None, record.created_at, "1 is moving to kvm2"))
    assert read_record(encode(waiting)) == waiting != record
    assert waiting.drop_turn() == record


def test_a_predicted_record_has_no_id_and_cannot_be_read_as_a_record(record: MoveRecord) -> None:
    predicted = record.predict()
    assert predicted.id is None
    with pytest.raises(Internal, match="only predicted"):
        str(predicted.record_id)
    with pytest.raises(Internal, match="id must be text"):
        read_record(encode(predicted))


def drop_key(key: str) -> Change:
    return lambda document: document.pop(key)


def set_key(key: str, value: object) -> Change:
    return lambda document: document.update({key: value})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (set_key("schema", 2), "its schema is 2, and this version reads 1"),
        (drop_key("schema"), "its schema is None"),
        (drop_key("id"), "id must be there"),
        (set_key("id", None), "id must be text"),
        (set_key("type", "teleport"), "type must be one of live-migration, cold-migration, evacuation"),
        (set_key("status", "finished"), "status must be one that this version knows"),
        (set_key("generation", "1"), "generation must be a whole number"),
        (drop_key("progress"), "progress must be there"),
        (set_key("history", {}), "history must be a list"),
        (set_key("domain", {"name": "web1"}), "domain.uuid must be there"),
        (set_key("source", {"host": "kvm1"}), "source.host_id must be there"),
        (set_key("source", {"host": ["kvm1"], "host_id": None, "host_uuid": None}), "source.host must be text, or null"),
        (drop_key("superseded_by"), "superseded_by must be there"),
        (set_key("reason", 5), "reason must be text, or null"),
        (set_key("domain", {"uuid": "a", "name": {}}), "domain.name must be text, or null"),
        (set_key("progress", {}), "progress.memory_total_bytes must be there"),
        (lambda document: document["progress"].update(percent="half"), "progress.percent must be a whole number"),
        (lambda document: document["result"].update(elapsed_ms="long"), "result.elapsed_ms must be a whole number"),
        (lambda document: document["history"].append("running"), r"history\[1\] must be a JSON object"),
        (lambda document: document["acts"].append({"act": 5, "at": ""}), r"acts\[0\].act must be text"),
        (lambda document: document["samples"].append(None), r"samples\[0\] must be a JSON object"),
        (lambda document: document["samples"].append({"elapsed_ms": 1}), r"samples\[0\].allowed_downtime_ms must be there"),
    ],
)
def test_an_invalid_record_is_refused_with_its_first_problem(document: Document, change: Change, named: str) -> None:
    change(document)
    with pytest.raises(Internal, match=named):
        read_record(document)


@pytest.mark.parametrize("document", [None, [], "record", 5])
def test_a_record_that_is_not_an_object_is_refused(document: object) -> None:
    with pytest.raises(Internal, match="the document must be a JSON object"):
        read_record(document)


def test_a_record_names_the_person_who_caused_an_event(record: MoveRecord) -> None:
    """Not a limit, and not the watcher of a version that named no person."""
    assert record.requester_of(s.ABORT_START) is None
    assert record.note(s.ABORT_START, "watcher pid 7", "timeout").requester_of(s.ABORT_START) is None
    assert record.note(s.ABORT_START, "watcher pid 7", s.REASON_OPERATOR).requester_of(s.ABORT_START) is None
    asked = record.note(s.ABORT_START, "ann@control pid 1", s.REASON_OPERATOR)
    assert asked.requester_of(s.ABORT_START) == "ann@control pid 1"
    assert asked.note(s.ABORT_START, "bob@control pid 2", s.REASON_OPERATOR).requester_of(s.ABORT_START) == "bob@control pid 2"
    assert asked.requester_of(s.FORCE_COMPLETE) is None
    assert record.note(s.FORCE_COMPLETE, "ann", "operator; the timeout of 8 s no longer applies").requester_of(s.FORCE_COMPLETE) == "ann"


def test_a_record_without_a_destination_is_that_of_a_foreign_job(record: MoveRecord) -> None:
    unknown = dataclasses.replace(record, destination=HostRef(None, None, None))
    assert (record.is_foreign, unknown.is_foreign, dataclasses.replace(unknown, type=s.EVACUATION).is_foreign) == (False, True, False)
    assert (record.destination.label, unknown.destination.label) == ("kvm2", "an unknown host")
    assert read_record(encode(unknown)) == unknown
