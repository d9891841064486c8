# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that was set back to before an evacuation: what the survivor remembers of it, and how a person puts it back."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.remembered import recalled, remembered
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.cleanup_tombstones import tombstones
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.missing import missing_records, sentence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.restored import restored, write
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuation.fleet import Site, host_id

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
        return remembered(*self._folders()) or []

    def missing(self) -> list[Body]:
        return missing_records(self.ledger, [("kvm2", self.recollection())])

    def recalled(self) -> Body:
        (told,) = self.recollection()
        found = recalled(told["id"], *self._folders())
        assert found is not None
        return found

    def settle(self, status: str, stored: t.Any = None) -> Body:
        return write(self.ledger, stored, *restored(self.recalled(), status, "kvm2", "seen there", "a person"))

    def _folders(self) -> tuple[str, str]:
        return str(self.folder / "run-kvm2"), str(self.folder / "notes-kvm2")


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Restored:
    site = Restored(tmp_path)
    site.save("web")
    return site


def lines(record: Body) -> list[str]:
    return [line["status"] for line in record["history"]]


def test_a_ledger_that_was_not_set_back_misses_nothing(site: Restored) -> None:
    site.evacuate()
    assert [one["type"] for one in site.recollection()] == [s.EVACUATION]
    assert site.missing() == []


def test_one_that_did_not_start_is_not_remembered(site: Restored) -> None:
    site.back_up()
    site.hosts["kvm2"].refuses.add("web")
    site.evacuate()
    site.restore()
    assert site.recollection() == []


def test_what_the_survivor_remembers_is_reported_and_its_domain_not_started_again(site: Restored) -> None:
    """The domain was shut down meanwhile, so that nothing else would speak against its start."""
    site.back_up()
    site.evacuate()
    (record,) = site.ledger.records()
    site.restore()
    (missing,) = site.missing()
    assert (missing["id"], missing["ledger_status"]) == (record["id"], None)
    for words in (
        record["id"],
        "the evacuation of domain web from kvm1 to kvm2",
        "does not have",
        "done} (or failed, where it is not on kvm2)",
        "removed from kvm1",
    ):
        assert words in sentence(missing)
    site.hosts["kvm2"].guests[record["domain"]["uuid"]]["state"] = "shut off"
    run = site.evacuate("kvm3")
    (job,) = run.jobs
    assert isinstance(job.error, Conflict)
    assert record["id"] in str(job.error)
    assert (site.running(), site.told()) == ({}, [])


def test_a_person_settles_it_and_its_source_can_be_cleaned_again(site: Restored) -> None:
    site.back_up()
    site.evacuate()
    (before,) = site.ledger.records()
    site.restore()
    after = site.settle(s.DONE)
    assert (lines(after), after["evidence"]) == (["accepted", "pre-migrating", "restored", "done"], before["evidence"])
    assert (after["generation"], after["before"], after["wanted_state"]) == (before["generation"], before["before"], before["wanted_state"])
    assert (site.possible("web"), site.missing(), site.ledger.verify_audit()) == (["kvm2"], [], [])
    (tombstone,) = tombstones(site.ledger, host_id("kvm1"))
    assert tombstone.record == after


def test_one_that_is_not_there_any_more_is_settled_as_failed(site: Restored) -> None:
    site.back_up()
    site.evacuate()
    site.restore()
    assert site.settle(s.FAILED)["status"] == s.FAILED
    assert (site.possible("web"), site.missing()) == (["kvm1"], [])


def test_a_ledger_that_knows_less_than_a_crash_can_leave_is_behind_too(site: Restored) -> None:
    site.evacuate()
    (record,) = site.ledger.records()
    site.back_up()
    shutil.rmtree(site.folder / "ledger")
    site.ledger = FileLedger(str(site.folder / "ledger"))
    early = {**record, "status": s.ACCEPTED, "history": record["history"][:1], "ledger_id": site.ledger.ledger_id}
    stored = site.ledger.open_record(early)
    told = {**site.recollection()[0], "ledger_id": site.ledger.ledger_id}
    (missing,) = missing_records(site.ledger, [("kvm2", [told])])
    assert missing["ledger_status"] == s.ACCEPTED
    assert lines(site.settle(s.DONE, stored)) == ["accepted", "pre-migrating", "restored", "done"]


def test_it_is_neither_settled_while_it_is_being_started_nor_as_what_only_moves_end(site: Restored) -> None:
    site.back_up()
    site.evacuate()
    site.restore()
    told = site.recalled()
    with pytest.raises(InvalidState, match="Wait for its end"):
        restored({**told, "watched": True}, s.DONE, "kvm2", "seen", "x")
    with pytest.raises(InvalidArgument, match="cannot become 'cancelled'"):
        restored(told, s.CANCELLED, "kvm2", "seen", "x")


def test_one_that_the_ledger_knows_a_later_move_of_is_not_put_back(site: Restored) -> None:
    site.back_up()
    site.evacuate()
    site.restore()
    domain = site.recollection()[0]["domain"]
    site.ledger.open_record(schema.new_record(s.LIVE_MIGRATION, domain, site.place("kvm2"), site.place("kvm3"), {}, "x"))
    assert site.missing() == []
    with pytest.raises(Conflict, match="kvm1 may have a copy"):
        site.settle(s.DONE)
