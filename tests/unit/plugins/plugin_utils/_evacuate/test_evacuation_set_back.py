# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that was set back to before an evacuation: what the survivor remembers of it, and how an operator restores the record."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.own_moves import find_remembered, list_remembered
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.tombstones import find_tombstones
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import (
    RememberedMove,
    find_missing_records,
    missing_text,
    restore_record,
    write_restored,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import WORD, Site, host_id

Body = dict[str, t.Any]


class Restored(Site):
    """A fleet whose ledger can be put back to a copy."""

    def back_up(self) -> None:
        shutil.copytree(self.folder / "ledger", self.folder / "copy")

    def restore(self) -> None:
        shutil.rmtree(self.folder / "ledger")
        shutil.copytree(self.folder / "copy", self.folder / "ledger")
        self.ledger = FileLedger(str(self.folder / "ledger"))
        self.remembered["kvm2"] = self.recollection()

    def recollection(self) -> list[Body]:
        return list_remembered(*self._folders()) or []

    def missing(self) -> list[RememberedMove]:
        return find_missing_records(self.ledger, [("kvm2", self.recollection())])

    def recalled(self) -> Body:
        (told,) = self.recollection()
        found = find_remembered(told["id"], *self._folders())
        assert found is not None
        return found

    def settle(self, status: str, stored: t.Any = None) -> MoveRecord:
        return write_restored(self.ledger, stored, *restore_record(self.recalled(), status, "kvm2", "seen there", "a person"))

    def _folders(self) -> tuple[str, str]:
        return str(self.folder / "run-kvm2"), str(self.folder / "notes-kvm2")


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Restored:
    site = Restored(tmp_path)
    site.save("web")
    return site


def lines(record: MoveRecord) -> list[str]:
    return [line.status for line in record.history]


def test_a_current_ledger_misses_no_evacuation(site: Restored) -> None:
    site.evacuate()
    assert [one["type"] for one in site.recollection()] == [s.EVACUATION]
    assert site.missing() == []


def test_a_domain_is_started_although_the_survivor_remembers_its_generation_of_a_lost_ledger(site: Restored) -> None:
    """The generations of the new ledger begin again, and the survivor begins no record whose generation it has had."""
    site.back_up()
    site.evacuate()
    site.restore()
    site.hosts["kvm2"].guests.clear()
    site.remembered["kvm2"] = [{**one, "ledger_id": str(uuid.uuid4())} for one in site.recollection()]
    run = site.evacuate()
    assert [(job.error, job.record.status, job.record.generation) for job in run.jobs if job.record] == [(None, s.DONE, 2)]


def test_a_domain_that_another_run_has_evacuated_meanwhile_is_not_started_although_its_generation_is_below_those_of_a_lost_ledger(site: Restored) -> None:
    """Its owner has shut it down since, so that no host has it active."""
    site.back_up()
    site.evacuate()
    site.restore()
    site.hosts["kvm2"].guests.clear()
    site.remembered["kvm2"] = [{**one, "generation": 5, "ledger_id": str(uuid.uuid4())} for one in site.recollection()]
    run = site.evacuation(force_down=WORD)
    probed = run.probe_fleet()
    site.evacuate("kvm3")
    site.hosts["kvm3"].guests.clear()
    run.probe_fleet = lambda: probed  # type: ignore[method-assign]
    run.evacuate_domains()
    assert isinstance(run.jobs[0].error, Conflict)
    assert sorted(line[1:] for line in site.record_summaries()) == [("conflict", "kvm2"), ("done", "kvm3")]


def test_an_evacuation_that_did_not_start_is_not_remembered(site: Restored) -> None:
    site.back_up()
    site.hosts["kvm2"].refuses.add("web")
    site.evacuate()
    site.restore()
    assert site.recollection() == []


def test_a_remembered_evacuation_is_reported_and_its_domain_not_started_again(site: Restored) -> None:
    """The domain was shut down meanwhile, so that nothing else would speak against its start."""
    site.back_up()
    site.evacuate()
    (record,) = site.ledger.list_records()
    site.restore()
    (missing,) = site.missing()
    assert (missing.id, missing.ledger_status) == (record.id, None)
    for words in (
        record.record_id,
        "the evacuation of domain web from kvm1 to kvm2",
        "does not have",
        "done} (or failed, where it is not on kvm2)",
        "removed from kvm1",
    ):
        assert words in missing_text(missing)
    site.hosts["kvm2"].guests[record.domain.uuid]["state"] = "shut off"
    run = site.evacuate("kvm3")
    (job,) = run.jobs
    assert isinstance(job.error, Conflict)
    assert record.record_id in str(job.error)
    assert (site.running(), site.record_summaries()) == ({}, [])


def test_a_remembered_evacuation_is_settled_as_done_and_its_source_can_be_cleaned(site: Restored) -> None:
    site.back_up()
    site.evacuate()
    (before,) = site.ledger.list_records()
    site.restore()
    after = site.settle(s.DONE)
    assert (lines(after), after.evidence) == (["accepted", "pre-migrating", "restored", "done"], before.evidence)
    assert (after.generation, after.before, after.wanted_state) == (before.generation, before.before, before.wanted_state)
    assert (site.possible("web"), site.missing(), site.ledger.verify_audit()) == (["kvm2"], [], [])
    (tombstone,) = find_tombstones(site.ledger, host_id("kvm1"))
    assert tombstone.record == after


def test_a_remembered_evacuation_can_be_settled_as_failed(site: Restored) -> None:
    site.back_up()
    site.evacuate()
    site.restore()
    assert site.settle(s.FAILED).status == s.FAILED
    assert (site.possible("web"), site.missing()) == (["kvm1"], [])


def test_a_record_older_than_any_crash_leaves_it_is_reported_as_missing(site: Restored) -> None:
    site.evacuate()
    (record,) = site.ledger.list_records()
    site.back_up()
    shutil.rmtree(site.folder / "ledger")
    site.ledger = FileLedger(str(site.folder / "ledger"))
    early = dataclasses.replace(record, status=s.ACCEPTED, generation=0, history=record.history[:1], ledger_id=site.ledger.ledger_id)
    stored = site.ledger.open_record(early)
    told = {**site.recollection()[0], "ledger_id": site.ledger.ledger_id}
    (missing,) = find_missing_records(site.ledger, [("kvm2", [told])])
    assert missing.ledger_status == s.ACCEPTED
    assert lines(site.settle(s.DONE, stored)) == ["accepted", "pre-migrating", "restored", "done"]


def test_a_remembered_evacuation_in_progress_or_with_a_status_of_moves_is_refused(site: Restored) -> None:
    site.back_up()
    site.evacuate()
    site.restore()
    told = site.recalled()
    with pytest.raises(InvalidState, match="Wait for its end"):
        restore_record({**told, "watched": True}, s.DONE, "kvm2", "seen", "x")
    with pytest.raises(InvalidArgument, match="cannot become 'cancelled'"):
        restore_record(told, s.CANCELLED, "kvm2", "seen", "x")


def test_a_remembered_evacuation_older_than_a_later_move_is_not_restored(site: Restored) -> None:
    site.back_up()
    site.evacuate()
    site.restore()
    told = site.recollection()[0]["domain"]
    domain = DomainRef(told["uuid"], told["name"])
    site.ledger.open_record(new_record(s.LIVE_MIGRATION, domain, site.place("kvm2"), site.place("kvm3"), {}, "x"))
    assert site.missing() == []
    with pytest.raises(Conflict, match="kvm1 may have a copy"):
        site.settle(s.DONE)


def test_what_was_begun_is_not_settled_by_a_ledger_that_was_set_back(site: Restored) -> None:
    """The evacuation has ended, and the guest was moved on. The ledger has neither, and its new survivor has restarted since."""
    web = DomainRef(site.ledger.find_domains("web")[0].domain.uuid, "web")
    begun = site.ledger.open_record(new_record(s.EVACUATION, web, site.place("kvm1"), site.place("kvm2"), {}, "a test"))
    site.ledger.update_record(begun, begun.record.advance(s.PRE_MIGRATING, "a test"))
    moved = dataclasses.replace(new_record(s.LIVE_MIGRATION, web, site.place("kvm2"), site.place("kvm3"), {}, "a test"), generation=2)
    site.remembered["kvm3"] = [encode(dataclasses.replace(moved, ledger_id=site.ledger.ledger_id))]
    site.hosts["kvm3"].add(web.uuid, "web", "running")
    site.told_facts.add("kvm3")
    site.silent.clear()
    (job,) = site.evacuation().settle_begun()
    assert "kvm3 remembers the move of domain web" in str(job.error)
    assert site.record_summaries() == [("web", "pre-migrating", "kvm2")]
    assert [one.id for one in find_missing_records(site.ledger, [("kvm3", site.remembered["kvm3"])])] == [moved.id]
