# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of two control nodes writes a record, and when the other steps in."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import OWNER_LAG_SECONDS, RecordMirror
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock

UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"


class Mirrored:
    """One record in a ledger, the state file of its move, and mirrors between the two."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.ledger = FileLedger(str(folder / "ledger"))
        self.clock = FakeClock()
        record = new_record(s.LIVE_MIGRATION, DomainRef(UUID, "web1"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "x")
        self.stored = self._queued(self.ledger.open_record(record))
        self.state = self.stored.record

    def _queued(self, stored: Stored) -> Stored:
        for status in (s.SCHEDULED, s.QUEUED):
            stored = self.ledger.update_record(stored, stored.record.advance(status, "x"))
        return stored

    def mirror(self, owner: bool) -> RecordMirror:
        return RecordMirror(self.ledger, self.stored, owner, self.clock)

    def moves_on(self, *statuses: str) -> MoveRecord:
        """Let the watcher write these, and return the record as the state file has it."""
        for status in statuses:
            self.state = self.state.advance(status, "watcher")
        return self.state

    @property
    def written(self) -> str:
        return str(self.ledger.read_record(self.stored.record.record_id).record.status)


@pytest.fixture
def mirrored(tmp_path: pathlib.Path) -> Mirrored:
    return Mirrored(tmp_path)


def test_the_owner_writes_each_status_to_the_ledger_at_once(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    for status in (s.PREPARING, s.RUNNING, s.COMPLETED):
        mirror.follow_state(mirrored.moves_on(status))
        assert mirrored.written == status
    assert mirror.is_settled


def test_progress_without_a_new_status_is_not_written(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    mirror.follow_state(mirrored.moves_on(s.PREPARING, s.RUNNING))
    version = mirror.stored.version
    mirrored.state = dataclasses.replace(mirrored.state, progress=dataclasses.replace(mirrored.state.progress, percent=50))
    mirror.follow_state(mirrored.moves_on())
    assert mirror.stored.version == version


def test_the_start_of_an_abort_is_written_once(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    mirror.follow_state(mirrored.moves_on(s.PREPARING, s.RUNNING))
    mirrored.state = mirrored.state.note(s.ABORT_START, "root@other")
    mirror.follow_state(mirrored.moves_on())
    record = mirrored.ledger.read_record(mirrored.stored.record.record_id).record
    assert (record.status, record.history[-1].status) == (s.RUNNING, s.ABORT_START)
    version = mirror.stored.version
    mirror.follow_state(mirrored.moves_on())
    assert mirror.stored.version == version
    mirror.follow_state(mirrored.moves_on(s.CANCELLED))
    assert mirrored.written == s.CANCELLED


def test_the_abort_of_a_queued_move_is_written_with_its_outcome(mirrored: Mirrored) -> None:
    """The admission keeps its own reason in the record meanwhile."""
    mirror = mirrored.mirror(owner=True)
    mirrored.state = mirrored.state.note(s.ABORT_START, "root@other")
    mirror.follow_state(mirrored.moves_on())
    assert mirror.stored.version == mirrored.stored.version


def test_a_follower_writes_nothing_while_the_owner_writes(mirrored: Mirrored) -> None:
    owner, other = mirrored.mirror(owner=True), mirrored.mirror(owner=False)
    for status in (s.PREPARING, s.RUNNING, s.COMPLETED):
        state = mirrored.moves_on(status)
        other.follow_state(state)
        mirrored.clock.sleep(OWNER_LAG_SECONDS - 1)
        owner.follow_state(state)
        other.follow_state(state)
    mirrored.clock.sleep(1)
    other.follow_state(mirrored.moves_on())
    assert (other.owner, other.record.status, mirrored.written) == (False, s.COMPLETED, s.COMPLETED)


def test_a_follower_takes_over_when_the_owner_lags_for_five_seconds(mirrored: Mirrored) -> None:
    other = mirrored.mirror(owner=False)
    state = mirrored.moves_on(s.PREPARING)
    other.follow_state(state)
    mirrored.clock.sleep(OWNER_LAG_SECONDS - 0.2)
    other.follow_state(state)
    assert (other.owner, mirrored.written) == (False, s.QUEUED)
    mirrored.clock.sleep(0.4)
    other.follow_state(state)
    assert (other.owner, mirrored.written) == (True, s.PREPARING)


def test_an_owner_whose_record_was_changed_stops_writing(mirrored: Mirrored) -> None:
    late, quick = mirrored.mirror(owner=True), mirrored.mirror(owner=True)
    state = mirrored.moves_on(s.PREPARING)
    quick.follow_state(state)
    late.follow_state(state)
    assert (quick.owner, late.owner, late.record.status) == (True, False, s.PREPARING)
    late.follow_state(mirrored.moves_on(s.RUNNING))
    assert mirrored.written == s.PREPARING


def test_only_an_end_that_others_have_written_is_adopted(mirrored: Mirrored) -> None:
    """If the version of an open record were adopted, the owner would write over what it has not seen."""
    mirror, version = mirrored.mirror(owner=True), mirrored.stored.version
    stored = mirrored.ledger.update_record(mirrored.stored, mirrored.stored.record.advance(s.PREPARING, "another"))
    mirror.adopt_end()
    assert (mirror.stored.version, mirror.is_settled) == (version, False)
    mirrored.ledger.update_record(stored, stored.record.advance(s.CANCELLED, "another"))
    mirror.adopt_end()
    assert (mirror.record.status, mirror.is_settled) == (s.CANCELLED, True)


def test_a_record_missing_from_the_ledger_is_a_conflict_that_names_set_aside(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    (file,) = mirrored.folder.glob("ledger/migrations/open/*.json")
    file.write_text("torn")
    with pytest.raises(Conflict, match=r"is no longer in the ledger\. .*set_aside"):
        mirror.follow_state(mirrored.moves_on(s.PREPARING))


def test_a_state_of_another_record_or_an_older_generation_is_ignored(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    state = mirrored.moves_on(s.PREPARING)
    mirror.follow_state(dataclasses.replace(state, id="another"))
    mirror.follow_state(dataclasses.replace(state, generation=state.generation - 1))
    assert mirrored.written == s.QUEUED


def test_a_newer_generation_of_the_same_status_is_written(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    mirrored.state = mirrored.state.raise_generation(mirrored.state.generation + 4)
    mirror.follow_state(mirrored.moves_on())
    assert mirrored.ledger.read_record(mirrored.stored.record.record_id).record.generation == mirrored.state.generation
