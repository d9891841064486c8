# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of two control nodes writes a record, and when the other steps in."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.mirror import OWNER_LAG_SECONDS, Mirror
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock

UUID = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c01"


class Mirrored:
    """One record in a ledger, the state file of its move, and mirrors between the two."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.ledger = FileLedger(str(folder / "ledger"))
        self.clock = FakeClock()
        record = schema.new_record(s.LIVE_MIGRATION, {"uuid": UUID, "name": "web1"}, schema.place("kvm1"), schema.place("kvm2"), {}, "x")
        self.stored = self._queued(self.ledger.open_record(record))
        self.state = schema.copied(self.stored.record)

    def _queued(self, stored: Stored) -> Stored:
        for status in (s.SCHEDULED, s.QUEUED):
            record = schema.copied(stored.record)
            schema.advance(record, status, "x")
            stored = self.ledger.update(stored, record)
        return stored

    def mirror(self, owner: bool) -> Mirror:
        return Mirror(self.ledger, self.stored, owner, self.clock)

    def moves_on(self, *statuses: str) -> t.Dict[str, t.Any]:
        """Let the watcher write these, and return the state file."""
        for status in statuses:
            schema.advance(self.state, status, "watcher")
        return {**schema.copied(self.state), "watcher": {"pid": 1}, "alive": True}

    @property
    def written(self) -> str:
        return str(self.ledger.get(self.stored.record["id"]).record["status"])


@pytest.fixture
def mirrored(tmp_path: pathlib.Path) -> Mirrored:
    return Mirrored(tmp_path)


def test_the_owner_writes_each_status_at_once_and_without_the_watcher(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    for status in (s.PREPARING, s.RUNNING, s.COMPLETED):
        mirror.follow(mirrored.moves_on(status))
        assert mirrored.written == status
    record = mirrored.ledger.get(mirrored.stored.record["id"]).record
    assert not {"watcher", "alive"} & set(record)
    assert mirror.is_settled


def test_figures_alone_are_no_write(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    mirror.follow(mirrored.moves_on(s.PREPARING, s.RUNNING))
    version = mirror.stored.version
    mirrored.state["progress"]["percent"] = 50
    mirror.follow(mirrored.moves_on())
    assert mirror.stored.version == version


def test_an_abort_is_written_when_it_begins_and_once(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    mirror.follow(mirrored.moves_on(s.PREPARING, s.RUNNING))
    schema.note(mirrored.state, s.ABORT_START, "root@other")
    mirror.follow(mirrored.moves_on())
    record = mirrored.ledger.get(mirrored.stored.record["id"]).record
    assert (record["status"], record["history"][-1]["status"]) == (s.RUNNING, s.ABORT_START)
    version = mirror.stored.version
    mirror.follow(mirrored.moves_on())
    assert mirror.stored.version == version
    mirror.follow(mirrored.moves_on(s.CANCELLED))
    assert mirrored.written == s.CANCELLED


def test_an_abort_of_what_waits_is_written_with_its_outcome(mirrored: Mirrored) -> None:
    """Who gives turns keeps a word of his own in the record meanwhile."""
    mirror = mirrored.mirror(owner=True)
    schema.note(mirrored.state, s.ABORT_START, "root@other")
    mirror.follow(mirrored.moves_on())
    assert mirror.stored.version == mirrored.stored.version


def test_who_only_looks_on_writes_nothing_while_the_owner_does(mirrored: Mirrored) -> None:
    owner, other = mirrored.mirror(owner=True), mirrored.mirror(owner=False)
    for status in (s.PREPARING, s.RUNNING, s.COMPLETED):
        state = mirrored.moves_on(status)
        other.follow(state)
        mirrored.clock.sleep(OWNER_LAG_SECONDS - 1)
        owner.follow(state)
        other.follow(state)
    mirrored.clock.sleep(1)
    other.follow(mirrored.moves_on())
    assert (other.owner, other.record["status"], mirrored.written) == (False, s.COMPLETED, s.COMPLETED)


def test_who_looks_on_steps_in_only_after_the_owner_lagged_for_five_seconds(mirrored: Mirrored) -> None:
    other = mirrored.mirror(owner=False)
    state = mirrored.moves_on(s.PREPARING)
    other.follow(state)
    mirrored.clock.sleep(OWNER_LAG_SECONDS - 0.2)
    other.follow(state)
    assert (other.owner, mirrored.written) == (False, s.QUEUED)
    mirrored.clock.sleep(0.4)
    other.follow(state)
    assert (other.owner, mirrored.written) == (True, s.PREPARING)


def test_an_owner_that_was_overtaken_gives_way(mirrored: Mirrored) -> None:
    late, quick = mirrored.mirror(owner=True), mirrored.mirror(owner=True)
    state = mirrored.moves_on(s.PREPARING)
    quick.follow(state)
    late.follow(state)
    assert (quick.owner, late.owner, late.record["status"]) == (True, False, s.PREPARING)
    late.follow(mirrored.moves_on(s.RUNNING))
    assert mirrored.written == s.PREPARING


def test_a_record_that_is_not_there_any_more_is_an_error_that_says_where_to_look(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    (file,) = mirrored.folder.glob("ledger/migrations/open/*.json")
    file.write_text("torn")
    with pytest.raises(Conflict, match=r"is not in the ledger any more\. .*set_aside"):
        mirror.follow(mirrored.moves_on(s.PREPARING))


def test_a_state_of_another_record_or_an_older_generation_is_ignored(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    state = mirrored.moves_on(s.PREPARING)
    mirror.follow({**state, "id": "another"})
    mirror.follow({**state, "generation": state["generation"] - 1})
    assert mirrored.written == s.QUEUED


def test_a_newer_generation_of_the_same_status_is_written(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(owner=True)
    mirrored.state["generation"] += 4
    mirror.follow(mirrored.moves_on())
    assert mirrored.ledger.get(mirrored.stored.record["id"]).record["generation"] == mirrored.state["generation"]
