# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that was set back to an old copy, and hosts that remember more than it."""

from __future__ import annotations

import pathlib
import shutil
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.remembered import recalled, remembered
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.missing import check_known, missing_records, sentence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.restored import restored, write
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves import follow
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._moves.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._moves.situations import one


class Fleet(Control):
    """The first of its hosts says in each survey what it remembers; the ledger can be put back to a copy."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.uuid = self.fleet.guest("web1").uuid

    @property
    def memory(self) -> list[schema.Record]:
        return remembered(str(self.folder / "run-kvm1")) or []

    def back_up(self) -> None:
        shutil.copytree(self.folder / "ledger", self.folder / "copy")

    def restore(self) -> None:
        shutil.rmtree(self.folder / "ledger")
        shutil.copytree(self.folder / "copy", self.folder / "ledger")
        self.ledger = open_ledger(str(self.folder / "ledger"))

    def task(self, **given: t.Any) -> t.Any:
        self.source.facts["kvm1"] = {"remembered": self.memory}
        return one(self, **given)

    def missing(self) -> list[dict[str, t.Any]]:
        return missing_records(self.ledger, [("kvm1", self.memory)])


@pytest.fixture
def fleet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0)
    return Fleet(tmp_path)


def test_a_ledger_that_was_not_set_back_misses_nothing(fleet: Fleet) -> None:
    record = fleet.task().record
    assert [one["id"] for one in fleet.memory] == [record["id"]]
    assert fleet.missing() == []


def test_what_a_host_remembers_and_the_ledger_does_not_is_reported(fleet: Fleet) -> None:
    fleet.back_up()
    record = fleet.task().record
    fleet.restore()
    (missing,) = fleet.missing()
    assert (missing["id"], missing["remembered_by"], missing["ledger_status"]) == (record["id"], "kvm1", None)
    for words in (record["id"], "web1", "kvm1 to kvm2", "which the ledger does not have", "settle: {id:"):
        assert words in sentence(missing)


def test_nothing_is_missing_of_another_ledger_or_without_one(fleet: Fleet) -> None:
    fleet.back_up()
    fleet.task()
    fleet.restore()
    others = [{**move, "ledger_id": str(uuid.uuid4())} for move in fleet.memory]
    assert missing_records(fleet.ledger, [("kvm1", others), ("kvm2", None)]) == []
    assert missing_records(None, [("kvm1", fleet.memory)]) == []


def test_a_ledger_that_has_given_the_generation_to_a_later_move_has_found_the_domain_itself(fleet: Fleet) -> None:
    fleet.back_up()
    fleet.task()
    fleet.restore()
    ends = schema.place("kvm2", None, str(uuid.uuid4())), schema.place("kvm3", None, str(uuid.uuid4()))
    fleet.ledger.open_record(schema.new_record(s.LIVE_MIGRATION, {"uuid": fleet.uuid, "name": "web1"}, *ends, {}, "x"))
    assert fleet.missing() == []


def test_a_record_that_a_crash_left_behind_is_not_missing(fleet: Fleet) -> None:
    """A control node that died has opened the record, queued it and started a watcher, which took it over once more."""
    fleet.task()
    (move,) = fleet.memory
    for status, more, is_missing in ((s.QUEUED, 0, False), (s.ACCEPTED, 1, False), (s.ACCEPTED, 0, True), (s.SCHEDULED, 0, True)):
        domain = {"uuid": str(uuid.uuid4()), "name": "other"}
        stored = fleet.ledger.open_record(schema.new_record(s.LIVE_MIGRATION, domain, move["source"], move["destination"], {}, "x"))
        for step in {s.QUEUED: (s.SCHEDULED, s.QUEUED), s.SCHEDULED: (s.SCHEDULED,)}.get(status, ()):
            record = schema.copied(stored.record)
            schema.advance(record, step, "x")
            stored = fleet.ledger.update(stored, record)
        told = {**move, "id": stored.record["id"], "domain": domain, "generation": stored.record["generation"] + more}
        found = missing_records(fleet.ledger, [("kvm1", [told])])
        assert [one["ledger_status"] for one in found] == ([status] if is_missing else []), (status, more)


def test_its_domain_is_not_moved_and_others_are(fleet: Fleet) -> None:
    fleet.fleet.guest("web2", str(uuid.uuid4()))
    fleet.back_up()
    fleet.source.refuse_start = Conflict("A watcher is in the way.")
    record = fleet.task().error.result["migrations"][0]
    assert record["status"] == s.FAILED
    fleet.restore()
    fleet.source.refuse_start = None
    told = {key: record[key] for key in ("id", "generation", "type", "status", "updated_at", "domain", "source", "destination", "ledger_id")}
    fleet.source.facts["kvm1"] = {"remembered": [told]}
    job = one(fleet)
    assert isinstance(job.error, Conflict)
    assert "neither moved nor started" in str(job.error)
    assert fleet.records() == []
    assert [warning for warning in fleet.warnings if record["id"] in warning]
    (other,) = fleet.run(name="web2", destination="kvm2")
    assert (other.error, other.record["status"]) == (None, s.COMPLETED)


def test_only_its_own_domain_is_refused() -> None:
    ends = {"source": {"host": "a"}, "destination": {"host": "b"}}
    told = {"id": "i", "type": s.LIVE_MIGRATION, "status": "completed", "domain": {"uuid": "u", "name": "web1"}, **ends}
    missing = [{**told, "remembered_by": "a", "ledger_status": "accepted"}]
    check_known("web2", "other", missing)
    with pytest.raises(Conflict, match="the ledger says 'accepted'"):
        check_known("web1", "u", missing)


def settle(fleet: Fleet, record_id: str, status: str, stored: t.Any = None) -> schema.Record:
    told = recalled(record_id, str(fleet.folder / "run-kvm1"))
    assert told is not None
    told["watched"] = False
    return write(fleet.ledger, stored, *restored(told, status, "kvm1", "seen there", "a person"))


def test_a_person_settles_it_and_the_ledger_has_it_again(fleet: Fleet) -> None:
    fleet.back_up()
    record = fleet.task().record
    fleet.restore()
    after = settle(fleet, record["id"], s.COMPLETED)
    assert fleet.records() == [after]
    assert [line["status"] for line in after["history"]][-3:] == ["completed", "restored", "completed"]
    assert (after["generation"], after["result"], after["progress"]) == (record["generation"], record["result"], record["progress"])
    document = fleet.ledger.domain(fleet.uuid)
    assert document is not None
    assert [place["host"] for place in document.body["possible_hosts"]] == ["kvm2"]
    assert fleet.missing() == []
    assert fleet.ledger.verify_audit() == []


def test_the_generation_that_a_host_remembers_is_never_given_again(fleet: Fleet) -> None:
    fleet.back_up()
    record = fleet.task().record
    fleet.restore()
    told = {"record": {**record, "generation": 9}, "watched": False}
    assert write(fleet.ledger, None, *restored(told, s.COMPLETED, "kvm1", "seen", "x"))["generation"] == 9
    document = fleet.ledger.domain(fleet.uuid)
    assert document is not None
    assert document.body["generation"] == 9


def test_an_older_move_than_the_ledger_knows_of_is_not_put_back(fleet: Fleet) -> None:
    record = fleet.task().record
    told = {"record": {**record, "id": str(uuid.uuid4())}, "watched": False}
    with pytest.raises(Conflict, match="a later move"):
        write(fleet.ledger, None, *restored(told, s.FAILED, "kvm1", "seen", "x"))
    assert fleet.records() == [record]


def test_a_move_under_way_is_not_settled(fleet: Fleet) -> None:
    record = fleet.task().record
    for told in ({"record": record, "watched": True}, {"record": {**record, "status": s.RUNNING}, "watched": False}):
        with pytest.raises(InvalidState, match="Wait for its end"):
            restored(told, s.COMPLETED, "kvm1", "seen", "x")


def test_a_move_does_not_become_a_tombstone(fleet: Fleet) -> None:
    record = fleet.task().record
    with pytest.raises(InvalidArgument, match="cannot become 'done'"):
        restored({"record": record, "watched": False}, s.DONE, "kvm1", "seen", "x")
