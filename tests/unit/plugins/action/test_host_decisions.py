# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, InvalidState, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance, new_record, place
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.action.test_host import ID, UUID, Fleet, Host

OTHER = place("kvm2", str(uuid.UUID(int=5)), str(uuid.UUID(int=6)))
HERE = place("kvm1", ID, UUID)
WEB = str(uuid.UUID(int=64))


class Deciding(Fleet):
    """A fleet with an entry for kvm1, and records."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.task(state="maintenance", reason="disk")
        self.host.phases.clear()

    @property
    def ledger(self) -> FileLedger:
        return FileLedger(str(self.folder))

    def record(self, *statuses: str, kind: str = s.EVACUATION, **more: t.Any) -> str:
        ends = (more.pop("source", HERE), more.pop("destination", OTHER))
        record = new_record(kind, {"uuid": more.pop("domain", WEB), "name": "web"}, *ends, {}, "me")
        stored = self.ledger.open_record({**record, **more})
        for status in statuses:
            changed = copy.deepcopy(stored.record)
            advance(changed, status, "me")
            stored = self.ledger.update(stored, changed)
        return str(stored.record["id"])

    def status(self, record: str) -> tuple[str, str | None]:
        now = self.ledger.get(record).record
        return now["status"], now["reason"]

    def put(self, **changes: t.Any) -> None:
        (document,) = self.ledger.hosts()
        self.ledger.put_host({**document.body, **changes}, document.version)


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Deciding:
    return Deciding(tmp_path)


@pytest.mark.parametrize(
    "args",
    [
        {"adopt_identity": True},
        {"source_discarded": True, "reason": "  "},
        {"revoke_token": True, "reason": ""},
        {"settle": {"id": WEB, "status": "failed"}},
        {"revoke_token": True, "adopt_identity": True, "reason": "both"},
        {"revoke_token": True, "state": "enabled", "reason": "both"},
        {"settle": {"id": WEB}, "reason": "no status"},
        {"settle": {"id": WEB, "status": "running"}, "reason": "no end"},
        {"settle": {"id": "x", "status": "failed"}, "reason": "no id"},
    ],
)
def test_a_decision_without_reason_two_at_once_and_bad_ones_are_refused(fleet: Deciding, args: dict[str, t.Any]) -> None:
    before = fleet.entries()
    with pytest.raises(InvalidArgument):
        fleet.task(**args)
    assert fleet.entries() == before


def test_a_record_in_error_is_settled_once_with_the_reason_and_a_line_of_audit(fleet: Deciding) -> None:
    record = fleet.record(s.RUNNING, s.ERROR, kind=s.LIVE_MIGRATION)
    wanted = {"settle": {"id": record, "status": "failed"}, "reason": "seen on its console"}
    fleet.check_mode = True
    assert fleet.task(**wanted)["changed"]
    assert fleet.status(record) == ("error", None)
    fleet.check_mode = False
    first = fleet.task(**wanted)
    assert (first["changed"], first["records"][0]["status"]) == (True, "failed")
    assert "seen on its console" in first["records"][0]["history"][-1]["detail"]
    second = fleet.task(**wanted)
    assert (second["changed"], second["records"][0]["status"]) == (False, "failed")
    assert fleet.ledger.verify_audit() == []
    document = fleet.ledger.domain(WEB)
    assert document
    assert [place["host"] for place in document.body["possible_hosts"]] == ["kvm1"]
    assert fleet.host.phases == []


@pytest.mark.parametrize("statuses", [(), (s.PRE_MIGRATING,), (s.PRE_MIGRATING, s.DONE), (s.PRE_MIGRATING, s.FAILED)])
def test_what_can_still_be_asked_and_what_is_closed_is_not_settled(fleet: Deciding, statuses: tuple[str, ...]) -> None:
    record = fleet.record(*statuses)
    before = fleet.status(record)
    status = "failed" if s.DONE in statuses else "done" if s.FAILED not in statuses else "completed"
    with pytest.raises((InvalidState, InvalidArgument)):
        fleet.task(settle={"id": record, "status": status}, reason="because")
    assert fleet.status(record) == before


def test_a_status_that_the_kind_of_record_has_not_is_refused(fleet: Deciding) -> None:
    record = fleet.record(s.PRE_MIGRATING, s.ERROR)
    with pytest.raises(InvalidArgument, match="cannot become 'cancelled'"):
        fleet.task(settle={"id": record, "status": "cancelled"}, reason="because")
    assert fleet.status(record) == ("error", None)


def test_one_tombstone_is_settled_as_that_of_a_source_that_is_gone(fleet: Deciding) -> None:
    record = fleet.record(s.PRE_MIGRATING, s.DONE)
    fleet.task(settle={"id": record, "status": "completed"}, reason="wiped")
    assert fleet.status(record) == ("completed", "source_discarded")


def test_an_unknown_record_and_a_fleet_without_ledger_are_not_found(fleet: Deciding, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFound, match="no record"):
        fleet.task(settle={"id": WEB, "status": "failed"}, reason="because")
    with pytest.raises(NotFound, match="no ledger"):
        fleet.task(settle={"id": WEB, "status": "failed"}, reason="because", ledger=str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_a_scrapped_host_s_tombstones_are_over_and_it_is_marked(fleet: Deciding) -> None:
    done = fleet.record(s.PRE_MIGRATING, s.DONE)
    domains = [str(uuid.UUID(int=number)) for number in (65, 66, 67)]
    other = fleet.record(s.PRE_MIGRATING, s.DONE, source=OTHER, destination=HERE, domain=domains[0])
    given_up = fleet.record(s.PRE_MIGRATING, source=OTHER, destination=HERE, domain=domains[1], superseded_by=WEB)
    open_one = fleet.record(s.PRE_MIGRATING, domain=domains[2])
    wanted = {"here": "localhost", "name": "kvm1", "source_discarded": True, "reason": "burnt"}
    fleet.check_mode = True
    assert len(fleet.task(**wanted)["records"]) == 2
    assert fleet.status(done) == ("done", None)
    fleet.check_mode = False
    result = fleet.task(**wanted)
    assert result["changed"]
    assert fleet.status(done) == ("completed", "source_discarded")
    assert fleet.status(given_up) == ("failed", "source_discarded")
    assert (fleet.status(other)[0], fleet.status(open_one)[0]) == ("done", "pre-migrating")
    (entry,) = fleet.entries()
    assert (entry["state"], entry["discarded"]["reason"], entry["decisions"][0]["decision"]) == ("fenced", "burnt", "source_discarded")
    assert not fleet.task(**wanted)["changed"]
    assert fleet.host.phases == []


def test_a_scrapped_host_that_is_back_takes_domains_only_by_a_person_s_word(fleet: Deciding) -> None:
    fleet.task(here="localhost", name="kvm1", source_discarded=True, reason="burnt")
    with pytest.raises(Unsafe, match="burnt"):
        fleet.task(state="enabled")
    assert not fleet.task(state="fenced")["changed"]
    assert fleet.task(adopt_identity=True, reason="it was another machine that burnt")["changed"]
    (entry,) = fleet.entries()
    assert (entry["state"], "discarded" in entry, entry["adopted"][0]["reason"]) == ("fenced", False, "it was another machine that burnt")
    assert not fleet.task(adopt_identity=True, reason="again")["changed"]
    assert fleet.task(state="enabled")["changed"]


def test_a_host_that_answers_is_not_scrapped(fleet: Deciding) -> None:
    record = fleet.record(s.PRE_MIGRATING, s.DONE)
    with pytest.raises(InvalidState, match="answers"):
        fleet.task(source_discarded=True, reason="burnt")
    assert fleet.status(record) == ("done", None)


FOLDERS = {"/images": WEB, "/iso": WEB}
REVOCATION = {"here": "kvm2", "name": "kvm1", "revoke_token": True, "reason": "it burns"}


class Storage:
    """The host that the task runs on, and which folders of another host it sees."""

    def __init__(self, fleet: Deciding, *sees: str) -> None:
        self.asked: list[dict[str, t.Any]] = []
        self.fleet, self.sees = fleet, sees
        fleet.host.run = self.run  # type: ignore[method-assign]

    def run(self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        work = module_args["_work"]
        assert work["phase"] == "revoke_elsewhere"
        # The tombstone comes first: a task that dies after it is run again.
        assert self.fleet.entries()[0]["protected"]["token_id"] == WEB
        self.asked.append(work)
        return {"changed": bool(self.sees), "folders": list(self.sees), "problems": {folder: "no such file" for folder in FOLDERS if folder not in self.sees}}


def test_a_token_of_a_host_that_is_off_is_revoked_on_the_storage_that_the_host_will_ask(fleet: Deciding) -> None:
    fleet.put(protected={"at": "then", "token_id": WEB, "token_folders": FOLDERS})
    storage = Storage(fleet, "/iso")
    fleet.check_mode = True
    assert fleet.task(**REVOCATION)["changed"]
    assert fleet.entries()[0]["protected"]["token_id"] == WEB
    fleet.check_mode = False
    assert "warnings" not in fleet.task(**REVOCATION)
    assert [work["check"] for work in storage.asked] == [True, False]
    assert storage.asked[-1]["grant"] == {"grant": WEB, "host_id": ID, "folders": FOLDERS}
    (entry,) = fleet.entries()
    assert entry["protected"] == {"at": "then", "token_id": None, "token_folders": None}
    decision = entry["decisions"][0]
    assert (decision["token_id"], decision["reason"], decision["folders"]) == (WEB, "it burns", ["/iso"])
    assert not fleet.task(**REVOCATION)["changed"]


def test_where_no_storage_could_tell_the_host_its_token_is_not_revoked(fleet: Deciding) -> None:
    fleet.put(protected={"token_id": WEB, "token_folders": FOLDERS})
    Storage(fleet)
    with pytest.raises(Unsafe, match="/images: no such file"):
        fleet.task(**REVOCATION)
    assert fleet.entries()[0]["protected"]["token_id"] == WEB


def test_a_token_of_an_earlier_version_cannot_be_revoked_elsewhere(fleet: Deciding) -> None:
    fleet.put(protected={"token_id": WEB})
    storage = Storage(fleet, "/images")
    with pytest.raises(Unsafe, match="earlier version"):
        fleet.task(**REVOCATION)
    assert (storage.asked, fleet.entries()[0]["protected"]["token_id"]) == ([], WEB)


def test_a_token_is_taken_from_the_host_itself_first(fleet: Deciding) -> None:
    fleet.put(protected={"token_id": WEB})
    run = fleet.host.run

    def revoking(module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        if module_args["_work"]["phase"] != "revoke":
            return run(module_name, module_args, task_vars)
        assert fleet.entries()[0]["protected"]["token_id"] == WEB
        assert module_args["_work"]["grant"] == WEB
        return {"changed": not module_args["_work"]["check"]}

    fleet.host.run = revoking  # type: ignore[method-assign]
    assert fleet.task(revoke_token=True, reason="no more")["changed"]
    assert fleet.entries()[0]["protected"]["token_id"] is None


class Changed(Host):
    """The host with another name's machine and libvirt UUID; it takes the ID that it is given."""

    def __init__(self, host_id: str | None, host_uuid: str, machine_id: str) -> None:
        super().__init__(host_id)
        self.host_uuid, self.machine_id = host_uuid, machine_id

    def run(self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        work = module_args["_work"]
        self.phases.append(work["phase"])
        if work["phase"] == "adopt":
            self.host_id = work["host_id"]
            return {"changed": True, "host_id": self.host_id}
        return {"identity": {"host_id": self.host_id, "machine_id": self.machine_id, "host_uuid": self.host_uuid}, "libvirt_error": None}


def test_a_host_of_which_all_has_changed_is_the_same_by_a_person_s_word(fleet: Deciding) -> None:
    new = str(uuid.UUID(int=7))
    fleet.host = Changed(ID, new, "m2")
    with pytest.raises(Conflict, match="adopt_identity"):
        fleet.task(here="renamed", state="enabled")
    wanted = {"here": "renamed", "adopt_identity": True, "reason": "new board"}
    fleet.check_mode = True
    assert fleet.task(**wanted)["changed"]
    assert fleet.entries()[0]["name"] == "kvm1"
    fleet.check_mode = False
    assert fleet.task(**wanted)["changed"]
    (entry,) = fleet.entries()
    assert (entry["name"], entry["host_id"], entry["host_uuid"], entry["machine_id"], entry["state"]) == ("renamed", ID, new, "m2", "maintenance")
    (adopted,) = entry["adopted"]
    assert (adopted["reason"], adopted["before"]["name"], adopted["after"]["name"]) == ("new board", "kvm1", "renamed")
    assert not fleet.task(**wanted)["changed"]
    assert fleet.task(here="renamed", state="enabled")["changed"]


def test_a_lost_identity_is_written_again(fleet: Deciding) -> None:
    fleet.host = Changed(None, UUID, "m1")
    with pytest.raises(Conflict, match="lost its identity"):
        fleet.task(state="enabled")
    assert fleet.task(adopt_identity=True, reason="disk replaced")["changed"]
    assert (fleet.host.host_id, fleet.host.phases[-1]) == (ID, "adopt")
    assert not fleet.task(adopt_identity=True, reason="disk replaced")["changed"]


def test_a_host_with_an_id_of_its_own_keeps_it(fleet: Deciding) -> None:
    fleet.host = Changed(str(uuid.UUID(int=9)), UUID, "m1")
    before = fleet.entries()
    with pytest.raises(Conflict, match="says it is"):
        fleet.task(adopt_identity=True, reason="mine")
    assert fleet.entries() == before
    assert fleet.host.phases == ["read"]


def test_another_entry_of_the_name_gives_way(fleet: Deciding) -> None:
    fleet.ledger.put_host({**fleet.entries()[0], "name": "kvm1", "host_id": OTHER["host_id"], "host_uuid": OTHER["host_uuid"]}, None)
    fleet.host = Changed(OTHER["host_id"], OTHER["host_uuid"], "m3")
    with pytest.raises(Conflict, match="another host of the name"):
        fleet.task(state="enabled")
    assert fleet.task(adopt_identity=True, reason="the old one is gone")["changed"]
    names = {entry["host_id"]: entry["name"] for entry in fleet.entries()}
    assert names[OTHER["host_id"]] == "kvm1"
    assert names[ID].startswith("kvm1 (until ")
    assert not fleet.task(adopt_identity=True, reason="the old one is gone")["changed"]


def test_a_host_that_nothing_ties_to_the_ledger_is_not_adopted(fleet: Deciding) -> None:
    fleet.host = Changed(str(uuid.UUID(int=9)), str(uuid.UUID(int=10)), "m9")
    with pytest.raises(NotFound):
        fleet.task(here="stranger", adopt_identity=True, reason="mine")
    with pytest.raises(InvalidArgument, match="another host"):
        fleet.task(here="localhost", name="kvm1", adopt_identity=True, reason="mine")


class Remembering(Host):
    """The host kvm1, which remembers a move."""

    def __init__(self, told: dict[str, t.Any] | None) -> None:
        super().__init__(ID)
        self.told = told

    def run(self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        work = module_args["_work"]
        if work["phase"] != "recall":
            return super().run(module_name, module_args, task_vars)
        self.phases.append("recall")
        asked = self.told is not None and self.told["record"]["id"] == work["id"]
        return {"told": copy.deepcopy(self.told) if asked else None}


def moved(status: str = s.COMPLETED) -> dict[str, t.Any]:
    record = new_record(s.LIVE_MIGRATION, {"uuid": WEB, "name": "web"}, HERE, OTHER, {}, "me")
    advance(record, status, "the watcher")
    return {"record": {**record, "generation": 3}, "watched": False}


def test_a_record_that_only_the_host_remembers_is_settled_from_there(fleet: Deciding) -> None:
    told = moved()
    fleet.host = Remembering(told)
    wanted = {"id": told["record"]["id"], "status": "completed"}
    fleet.check_mode = True
    assert fleet.task(settle=wanted, reason="seen")["changed"]
    assert list(fleet.ledger.records()) == []
    fleet.check_mode = False
    result = fleet.task(settle=wanted, reason="seen")
    assert (result["changed"], result["diff"]["before"]) == (True, {"status": None})
    (record,) = fleet.ledger.records()
    assert result["records"] == [record]
    assert (record["status"], record["generation"]) == (s.COMPLETED, 3)
    assert "seen" in record["history"][-1]["detail"]


def test_a_record_that_the_ledger_knows_too_little_of_is_settled_from_there(fleet: Deciding) -> None:
    told = moved()
    record = fleet.record(kind=s.LIVE_MIGRATION, id=told["record"]["id"])
    told["record"]["generation"] = 1
    fleet.host = Remembering(told)
    assert fleet.task(settle={"id": record, "status": "completed"}, reason="seen")["changed"]
    assert fleet.status(record) == (s.COMPLETED, None)


def test_a_record_that_nobody_knows_is_not_found(fleet: Deciding) -> None:
    fleet.host = Remembering(None)
    for options in ({}, {"name": "kvm2"}):
        with pytest.raises(NotFound):
            fleet.task(settle={"id": str(uuid.uuid4()), "status": "completed"}, reason="seen", **options)
    assert fleet.host.phases == ["recall"]
