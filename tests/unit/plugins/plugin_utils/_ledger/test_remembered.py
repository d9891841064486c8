# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that was set back to an old copy, and hosts that remember more than it."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.own_moves import find_remembered, list_remembered
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef, host_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.archiving import archive_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.archive import ArchiveFolder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import (
    RememberedMove,
    check_known,
    find_missing_records,
    missing_text,
    restore_record,
    write_restored,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import follow
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import Store
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.control import Control
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._migrate.situations import run_one_move


class Fleet(Control):
    """The first of its hosts says in each survey what it remembers; the ledger can be put back to a copy."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.uuid = self.fleet.guest("web1").uuid

    @property
    def memory(self) -> list[dict[str, t.Any]]:
        return list_remembered(str(self.folder / "run-kvm1")) or []

    def back_up(self) -> None:
        shutil.copytree(self.folder / "ledger", self.folder / "copy")

    def restore(self) -> None:
        shutil.rmtree(self.folder / "ledger")
        shutil.copytree(self.folder / "copy", self.folder / "ledger")
        self.ledger = open_ledger(str(self.folder / "ledger"))

    def task(self, **given: t.Any) -> t.Any:
        self.source.facts["kvm1"] = {"remembered": self.memory}
        return run_one_move(self, **given)

    def missing(self) -> list[RememberedMove]:
        return find_missing_records(self.ledger, [("kvm1", self.memory)])


@pytest.fixture
def fleet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0)
    return Fleet(tmp_path)


def test_a_current_ledger_misses_no_move(fleet: Fleet) -> None:
    record = fleet.task().record
    assert [one["id"] for one in fleet.memory] == [record.id]
    assert fleet.missing() == []


def test_a_remembered_move_that_the_ledger_lost_is_reported(fleet: Fleet) -> None:
    fleet.back_up()
    record = fleet.task().record
    fleet.restore()
    (missing,) = fleet.missing()
    assert (missing.id, missing.remembered_by, missing.ledger_status) == (record.id, "kvm1", None)
    for words in (record.id, "web1", "kvm1 to kvm2", "which the ledger does not have", "settle: {id:"):
        assert words in missing_text(missing)
    # Another one, as on the destination, finds the domain itself.
    assert missing_text(missing).endswith("Until then, a task that sees this record neither moves nor starts the domain.")


def test_remembered_moves_of_another_ledger_are_not_missing(fleet: Fleet) -> None:
    fleet.back_up()
    fleet.task()
    fleet.restore()
    others = [{**move, "ledger_id": str(uuid.uuid4())} for move in fleet.memory]
    assert find_missing_records(fleet.ledger, [("kvm1", others), ("kvm2", None)]) == []
    assert find_missing_records(None, [("kvm1", fleet.memory)]) == []


def test_a_remembered_move_is_not_missing_if_a_later_move_has_its_generation(fleet: Fleet) -> None:
    fleet.back_up()
    fleet.task()
    fleet.restore()
    ends = HostRef("kvm2", None, str(uuid.uuid4())), HostRef("kvm3", None, str(uuid.uuid4()))
    fleet.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(fleet.uuid, "web1"), *ends, {}, "x"))
    assert fleet.missing() == []


def test_a_record_that_a_crash_left_behind_does_not_count_as_missing(fleet: Fleet) -> None:
    """A control node that died has opened the record, queued it and started a watcher, which took it over once more."""
    fleet.task()
    (move,) = fleet.memory
    for status, more, is_missing in ((s.QUEUED, 0, False), (s.ACCEPTED, 1, False), (s.ACCEPTED, 0, True), (s.SCHEDULED, 0, True)):
        domain, source, destination = DomainRef(str(uuid.uuid4()), "other"), host_of(move["source"]), host_of(move["destination"])
        stored = fleet.ledger.open_record(new_record(s.LIVE_MIGRATION, domain, source, destination, {}, "x"))
        for step in {s.QUEUED: (s.SCHEDULED, s.QUEUED), s.SCHEDULED: (s.SCHEDULED,)}.get(status, ()):
            stored = fleet.ledger.update_record(stored, stored.record.advance(step, "x"))
        told = {**move, "id": stored.record.id, "domain": encode(domain), "generation": stored.record.generation + more}
        found = find_missing_records(fleet.ledger, [("kvm1", [told])])
        assert [one.ledger_status for one in found] == ([status] if is_missing else []), (status, more)


def test_the_domain_of_a_missing_record_is_not_moved_and_others_are(fleet: Fleet) -> None:
    fleet.fleet.guest("web2", str(uuid.uuid4()))
    fleet.back_up()
    fleet.source.refuse_start = Conflict("A watcher is in the way.")
    record = fleet.task().error.result["migrations"][0]
    assert record["status"] == s.FAILED
    fleet.restore()
    fleet.source.refuse_start = None
    told = {key: record[key] for key in ("id", "generation", "type", "status", "updated_at", "domain", "source", "destination", "ledger_id")}
    fleet.source.facts["kvm1"] = {"remembered": [told]}
    job = run_one_move(fleet)
    assert isinstance(job.error, Conflict)
    assert "neither moved nor started" in str(job.error)
    assert fleet.records() == []
    assert [warning for warning in fleet.warnings if record["id"] in warning]
    (other,) = fleet.run(name="web2", destination="kvm2")
    assert (other.error, other.record.status) == (None, s.COMPLETED)


def test_a_missing_record_refuses_only_its_own_domain() -> None:
    ends = HostRef("a", None, None), HostRef("b", None, None)
    missing = [RememberedMove("i", 1, s.LIVE_MIGRATION, "completed", DomainRef("u", "web1"), *ends, None, "a", "accepted")]
    check_known("web2", "other", missing)
    with pytest.raises(Conflict, match="the ledger says 'accepted'"):
        check_known("web1", "u", missing)


def settle(fleet: Fleet, record_id: str, status: str, stored: t.Any = None) -> MoveRecord:
    told = find_remembered(record_id, str(fleet.folder / "run-kvm1"))
    assert told is not None
    told["watched"] = False
    return write_restored(fleet.ledger, stored, *restore_record(told, status, "kvm1", "seen there", "a person"))


def test_settling_a_remembered_move_restores_its_record(fleet: Fleet) -> None:
    fleet.back_up()
    record = fleet.task().record
    fleet.restore()
    after = settle(fleet, record.id, s.COMPLETED)
    assert fleet.records() == [after]
    assert [line.status for line in after.history][-3:] == ["completed", "restored", "completed"]
    assert (after.generation, after.result, after.progress) == (record.generation, record.result, record.progress)
    document = fleet.ledger.read_domain(fleet.uuid)
    assert document is not None
    assert [place["host"] for place in document.body["possible_hosts"]] == ["kvm2"]
    assert fleet.missing() == []
    assert fleet.ledger.verify_audit() == []


def test_the_generation_of_a_remembered_move_is_not_reused(fleet: Fleet) -> None:
    fleet.back_up()
    record = fleet.task().record
    fleet.restore()
    told = {"record": {**encode(record), "generation": 9}, "watched": False}
    assert write_restored(fleet.ledger, None, *restore_record(told, s.COMPLETED, "kvm1", "seen", "x")).generation == 9
    document = fleet.ledger.read_domain(fleet.uuid)
    assert document is not None
    assert document.body["generation"] == 9


def test_a_remembered_move_older_than_the_ledger_is_not_restored(fleet: Fleet) -> None:
    record = fleet.task().record
    told = {"record": {**encode(record), "id": str(uuid.uuid4())}, "watched": False}
    with pytest.raises(Conflict, match="a later move"):
        write_restored(fleet.ledger, None, *restore_record(told, s.FAILED, "kvm1", "seen", "x"))
    assert fleet.records() == [record]


def test_a_running_remembered_move_is_not_settled(fleet: Fleet) -> None:
    record = fleet.task().record
    for told in ({"record": encode(record), "watched": True}, {"record": {**encode(record), "status": s.RUNNING}, "watched": False}):
        with pytest.raises(InvalidState, match="Wait for its end"):
            restore_record(told, s.COMPLETED, "kvm1", "seen", "x")


def test_a_remembered_move_cannot_be_settled_as_done(fleet: Fleet) -> None:
    record = fleet.task().record
    with pytest.raises(InvalidArgument, match="cannot become 'done'"):
        restore_record({"record": encode(record), "watched": False}, s.DONE, "kvm1", "seen", "x")


def move_three_times(
    ledger: Ledger, new_move: Callable[..., MoveRecord], advance_record: Callable[..., t.Any], domain_uuid: t.Optional[str] = None
) -> list[MoveRecord]:
    """Return three moves of one domain, from the oldest on."""
    domain = domain_uuid or str(uuid.uuid4())
    moves = (ledger.open_record(new_move("web1", domain)) for _ in range(3))
    return [advance_record(ledger, stored, s.SCHEDULED, s.RUNNING, s.COMPLETED).record for stored in moves]


def test_an_archived_move_is_not_restored_over_a_newer_one(
    store: Store, ledger: Ledger, new_move: Callable[..., MoveRecord], advance_record: Callable[..., t.Any], tmp_path: pathlib.Path
) -> None:
    """The document of the domain is damaged, so that its newest record alone tells its generation."""
    first, _second, last = move_three_times(ledger, new_move, advance_record)
    archive_ledger(ledger, ArchiveFolder(str(tmp_path / "archive")), "2999-01-01T00:00:00.000Z", "a person")
    store.write(f"domains/{first.domain.uuid}.json", b"torn")
    told = {"record": t.cast(t.Any, encode(first)), "watched": False}
    with pytest.raises(Conflict, match="a later move"):
        write_restored(store.open(), None, *restore_record(told, s.COMPLETED, "kvm1", "seen", "x"))
    assert [record.id for record in store.open().list_records()] == [last.id]


def test_archived_moves_are_not_missing_if_the_document_of_the_domain_is_of_an_old_backup(
    store: Store, ledger: Ledger, new_move: Callable[..., MoveRecord], advance_record: Callable[..., t.Any], tmp_path: pathlib.Path
) -> None:
    stored = ledger.open_record(new_move("web1", str(uuid.uuid4())))
    backup = store.read(name := f"domains/{stored.record.domain.uuid}.json")
    advance_record(ledger, stored, s.SCHEDULED, s.RUNNING, s.COMPLETED)
    moves = move_three_times(ledger, new_move, advance_record, stored.record.domain.uuid)
    told = [{**t.cast(t.Any, encode(one)), "ledger_id": ledger.ledger_id} for one in moves]
    archive_ledger(ledger, ArchiveFolder(str(tmp_path / "archive")), "2999-01-01T00:00:00.000Z", "a person")
    store.write(name, t.cast(bytes, backup))
    assert find_missing_records(store.open(), [("kvm1", told)]) == []
    lost = [{**told[-1], "id": str(uuid.uuid4()), "generation": moves[-1].generation + 1}]
    assert [one.id for one in find_missing_records(store.open(), [("kvm1", lost)])] == [lost[0]["id"]]


def test_a_domain_that_is_at_the_destination_is_reported_although_its_record_is_archived(fleet: Fleet) -> None:
    fleet.task()
    document = fleet.ledger.read_domain(fleet.uuid)
    assert document is not None
    # A document of a backup names a record that was archived since.
    fleet.ledger.put_domain(dataclasses.replace(document.domain, last_record=str(uuid.uuid4())), document.version)
    job = fleet.task()
    assert job.error is None
    assert (job.record.id, job.record.status) == (None, s.COMPLETED)


def test_a_domain_moves_although_hosts_remember_later_generations_of_a_lost_ledger(fleet: Fleet) -> None:
    """The generations of a new ledger begin again, and a host begins no record whose generation it has had."""
    for generation in (1, 2):
        record = fleet.task().record
        assert (record.status, record.generation) == (s.COMPLETED, generation)
        del fleet.fleet.machines["kvm2"].domains[fleet.uuid]
        fleet.fleet.guest("web1", fleet.uuid)
    shutil.rmtree(fleet.folder / "ledger")
    fleet.ledger = open_ledger(str(fleet.folder / "ledger"))
    job = fleet.task()
    assert job.error is None
    assert (job.record.status, job.record.generation) == (s.COMPLETED, 3)
