# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import dataclasses
import itertools
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.host import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import SSH_ANSWERS, SSH_SILENT, SSH_UNKNOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings
from ansible_collections.kvmfleet.migration.tests.unit.plugins.action.test_host import ID, UUID, Fleet, Host
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

OTHER = HostRef("kvm2", str(uuid.UUID(int=5)), str(uuid.UUID(int=6)))
HERE = HostRef("kvm1", ID, UUID)
WEB, DB = (str(uuid.UUID(int=number)) for number in (0xAB, 0xAC))


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
        record = new_record(kind, DomainRef(more.pop("domain", WEB), "web"), *ends, {}, "me")
        stored = self.ledger.open_record(dataclasses.replace(record, **more))
        for status in statuses:
            stored = self.ledger.update_record(stored, stored.record.advance(status, "me"))
        return stored.record.record_id

    def status(self, record: str) -> tuple[str, str | None]:
        now = self.ledger.read_record(record).record
        return now.status, now.reason

    def put(self, **changes: t.Any) -> None:
        (document,) = self.ledger.list_hosts()
        self.ledger.put_host(host_entry({**document.body, **changes}), document.version)


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
def test_decisions_without_a_reason_in_pairs_or_invalid_are_refused(fleet: Deciding, args: dict[str, t.Any]) -> None:
    before = fleet.entries()
    with pytest.raises(InvalidArgument):
        fleet.task(**args)
    assert fleet.entries() == before


def test_a_record_in_error_is_settled_once_with_its_reason(fleet: Deciding) -> None:
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
    document = fleet.ledger.read_domain(WEB)
    assert document
    assert [place["host"] for place in document.body["possible_hosts"]] == ["kvm1"]
    assert fleet.host.phases == []


@pytest.mark.parametrize("statuses", [(), (s.PRE_MIGRATING,), (s.PRE_MIGRATING, s.DONE), (s.PRE_MIGRATING, s.FAILED)])
def test_records_that_hosts_can_answer_for_or_that_are_closed_are_not_settled(fleet: Deciding, statuses: tuple[str, ...]) -> None:
    record = fleet.record(*statuses)
    before = fleet.status(record)
    status = "failed" if s.DONE in statuses else "done" if s.FAILED not in statuses else "completed"
    with pytest.raises((InvalidState, InvalidArgument)):
        fleet.task(settle={"id": record, "status": status}, reason="because")
    assert fleet.status(record) == before


@pytest.mark.parametrize("kind", [s.LIVE_MIGRATION, s.COLD_MIGRATION])
def test_a_move_whose_source_will_not_return_is_settled_by_a_person(fleet: Deciding, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task was killed before it could write anything, and only its source could be asked how it ended."""
    monkeypatch.setattr(Settings, "fleet", lambda _self: ["kvm1", "kvm2"])
    record = fleet.record(s.SCHEDULED, s.QUEUED, s.RUNNING, kind=kind)
    wanted = {"target_host": "localhost", "settle": {"id": record, "status": "completed"}, "reason": "runs on kvm2"}
    with pytest.raises(InvalidState, match=r"If it runs nowhere, evacuate kvm1, .* If it runs on kvm2, confirm by source_discarded"):
        fleet.task(**wanted)
    # A host that is none of the fleet has nothing to say about its moves, and perhaps no libvirt.
    assert (fleet.status(record), fleet.host.phases) == (("running", None), [])
    fleet.task(target_host="localhost", name="kvm1", source_discarded=True, reason="burnt")
    assert fleet.task(**wanted)["changed"]
    assert fleet.status(record) == ("completed", None)
    document = fleet.ledger.read_domain(WEB)
    assert document
    assert [place["host"] for place in document.body["possible_hosts"]] == ["kvm2"]


def test_an_evacuation_whose_source_will_not_return_is_not_settled_by_a_person(fleet: Deciding) -> None:
    record = fleet.record(s.PRE_MIGRATING)
    fleet.task(target_host="localhost", name="kvm1", source_discarded=True, reason="burnt")
    with pytest.raises(InvalidState):
        fleet.task(target_host="localhost", settle={"id": record, "status": "done"}, reason="because")
    assert fleet.status(record) == ("pre-migrating", None)


def test_a_status_that_the_type_of_record_does_not_have_is_refused(fleet: Deciding) -> None:
    record = fleet.record(s.PRE_MIGRATING, s.ERROR)
    with pytest.raises(InvalidArgument, match="cannot become 'cancelled'"):
        fleet.task(settle={"id": record, "status": "cancelled"}, reason="because")
    assert fleet.status(record) == ("error", None)


def test_a_tombstone_is_settled_as_source_discarded(fleet: Deciding) -> None:
    record = fleet.record(s.PRE_MIGRATING, s.DONE)
    fleet.task(settle={"id": record, "status": "completed"}, reason="wiped")
    assert fleet.status(record) == ("completed", "source_discarded")


def test_an_unknown_record_and_a_fleet_without_ledger_are_not_found(fleet: Deciding, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NotFound, match="no record"):
        fleet.task(settle={"id": WEB, "status": "failed"}, reason="because")
    with pytest.raises(NotFound, match="no ledger"):
        fleet.task(settle={"id": WEB, "status": "failed"}, reason="because", ledger=str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_source_discarded_closes_the_tombstones_and_marks_the_host(fleet: Deciding) -> None:
    done = fleet.record(s.PRE_MIGRATING, s.DONE)
    domains = [str(uuid.UUID(int=number)) for number in (65, 66, 67)]
    other = fleet.record(s.PRE_MIGRATING, s.DONE, source=OTHER, destination=HERE, domain=domains[0])
    given_up = fleet.record(s.PRE_MIGRATING, source=OTHER, destination=HERE, domain=domains[1], superseded_by=WEB)
    stored = fleet.ledger.read_record(given_up)
    fleet.ledger.update_record(stored, stored.record.note(s.SOURCE_CLEANED, "me", "kvm2 was cleaned"))
    open_one = fleet.record(s.PRE_MIGRATING, domain=domains[2])
    wanted = {"target_host": "localhost", "name": "kvm1", "source_discarded": True, "reason": "burnt"}
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


@pytest.mark.parametrize("statuses", [(), (s.PRE_MIGRATING,), (s.PRE_MIGRATING, s.ERROR)])
def test_source_discarded_closes_evacuations_to_the_host_that_were_never_settled(fleet: Deciding, statuses: tuple[str, ...]) -> None:
    begun = fleet.record(*statuses, source=OTHER, destination=HERE)
    move = fleet.record(source=OTHER, destination=HERE, kind=s.LIVE_MIGRATION, domain=str(uuid.UUID(int=65)))
    fleet.task(target_host="localhost", name="kvm1", source_discarded=True, reason="burnt")
    assert (fleet.status(begun), fleet.status(move)[0]) == (("failed", "source_discarded"), "accepted")
    document = fleet.ledger.read_domain(WEB)
    assert document
    assert [place["host"] for place in document.body["possible_hosts"]] == ["kvm2"]


def test_source_discarded_keeps_an_evacuation_to_the_host_that_is_done_meanwhile(fleet: Deciding, monkeypatch: pytest.MonkeyPatch) -> None:
    record, read = fleet.record(s.PRE_MIGRATING, source=OTHER, destination=HERE), fleet.ledger.list_records

    def list_and_end(**conditions: t.Any) -> t.Any:
        found = list(read(**conditions))
        if conditions.get("unsettled_only"):
            stored = fleet.ledger.read_record(record)
            fleet.ledger.update_record(stored, stored.record.advance(s.DONE, "another task"))
        return found

    monkeypatch.setattr(type(fleet.ledger), "list_records", lambda _ledger, **conditions: list_and_end(**conditions))
    fleet.task(target_host="localhost", name="kvm1", source_discarded=True, reason="burnt")
    assert fleet.status(record) == ("done", None)


def test_a_discarded_host_is_enabled_only_after_adopt_identity(fleet: Deciding) -> None:
    fleet.task(target_host="localhost", name="kvm1", source_discarded=True, reason="burnt")
    with pytest.raises(Unsafe, match="burnt"):
        fleet.task(state="enabled")
    assert not fleet.task(state="fenced")["changed"]
    assert fleet.task(adopt_identity=True, reason="it was another machine that burnt")["changed"]
    (entry,) = fleet.entries()
    assert (entry["state"], "discarded" in entry, entry["adopted"][0]["reason"]) == ("fenced", False, "it was another machine that burnt")
    assert not fleet.task(adopt_identity=True, reason="again")["changed"]
    assert fleet.task(state="enabled")["changed"]


LOST = {"target_host": "localhost", "name": "kvm1", "domains_lost": ["web"], "reason": "its disk was in kvm1"}


def lost_fleet(fleet: Deciding, *places: HostRef) -> None:
    """Discard kvm1, which alone had the domain web, unless other places are given."""
    body = {"uuid": WEB, "name": "web", "possible_hosts": [encode(place) for place in places or (HERE,)], "protected": {"state": "running"}}
    fleet.ledger.put_domain(domain_entry(body), None)
    fleet.task(target_host="localhost", name="kvm1", source_discarded=True, reason="burnt")


def is_missing(fleet: Deciding, domain: str = WEB) -> bool:
    found = fleet.ledger.read_domain(domain)
    assert found is not None
    return found.domain.is_missing


@pytest.mark.parametrize("named", ["web", WEB.upper()])
def test_domains_that_were_lost_with_a_discarded_host_are_given_up_once(fleet: Deciding, named: str) -> None:
    lost_fleet(fleet)
    fleet.check_mode = True
    assert fleet.task(**{**LOST, "domains_lost": [named]})["changed"]
    assert not is_missing(fleet)
    fleet.check_mode = False
    assert fleet.task(**LOST)["changed"]
    assert is_missing(fleet)
    (entry,) = fleet.entries()
    decision = entry["decisions"][-1]
    assert (decision["decision"], decision["reason"], decision["domains"]) == ("domains_lost", "its disk was in kvm1", [WEB])
    assert not fleet.task(**LOST)["changed"]
    assert len(fleet.entries()[0]["decisions"]) == 2


@pytest.mark.parametrize("given_up", [0, 1])
def test_a_task_that_is_killed_between_two_domains_gives_up_the_rest_when_it_is_run_again(
    fleet: Deciding, monkeypatch: pytest.MonkeyPatch, given_up: int
) -> None:
    lost_fleet(fleet)
    fleet.ledger.put_domain(domain_entry({"uuid": DB, "name": "db", "possible_hosts": [encode(HERE)], "protected": {"state": "running"}}), None)
    both = {**LOST, "domains_lost": ["web", "db"]}
    put_domain, written = FileLedger.put_domain, itertools.count()

    def put_or_die(ledger: FileLedger, *args: t.Any) -> t.Any:
        if next(written) == given_up:
            raise KeyboardInterrupt
        return put_domain(ledger, *args)

    with monkeypatch.context() as patch:
        patch.setattr(FileLedger, "put_domain", put_or_die)
        with pytest.raises(KeyboardInterrupt):
            fleet.task(**both)
    assert (is_missing(fleet), is_missing(fleet, DB)) == (given_up == 1, False)
    assert fleet.entries()[0]["decisions"][-1]["domains"] == [WEB, DB]
    assert fleet.task(**both)["changed"]
    assert is_missing(fleet)
    assert is_missing(fleet, DB)
    assert not fleet.task(**both)["changed"]


def test_a_lost_domain_that_has_the_name_of_a_deleted_one_is_given_up(fleet: Deciding) -> None:
    made_again = "3b1e7d52-6f0c-4a43-9a51-0c2d8e6f1a77"
    note = {"at": "2026-11-01T00:00:00.000Z", "by": "protect", "host": encode(HERE)}
    fleet.ledger.put_domain(domain_entry({"uuid": WEB, "name": "web", "possible_hosts": [encode(HERE)], "missing": note}), None)
    fleet.ledger.put_domain(domain_entry({"uuid": made_again, "name": "web", "possible_hosts": [encode(HERE)]}), None)
    fleet.task(target_host="localhost", name="kvm1", source_discarded=True, reason="burnt")
    assert fleet.task(**LOST)["changed"]
    assert fleet.entries()[0]["decisions"][-1]["domains"] == [made_again]
    # A killed task is run again.
    assert not fleet.task(**LOST)["changed"]


def test_a_domain_that_may_have_come_to_the_lost_host_is_named_with_its_record(fleet: Deciding) -> None:
    lost_fleet(fleet, OTHER)
    fleet.record()
    with pytest.raises(InvalidState, match="is not settled"):
        fleet.task(**LOST)


def test_domains_of_a_host_that_may_return_are_not_given_up(fleet: Deciding) -> None:
    fleet.ledger.put_domain(domain_entry({"uuid": WEB, "name": "web", "possible_hosts": [encode(HERE)]}), None)
    with pytest.raises(InvalidState, match="kvm1 was not discarded"):
        fleet.task(**LOST)
    assert not is_missing(fleet)


@pytest.mark.parametrize(
    ("places", "begun", "wanted", "error", "text"),
    [
        ((HERE, OTHER), False, ["web"], InvalidState, r"it may be on kvm2 too\. Protect kvm2"),
        ((OTHER,), False, ["web"], NotFound, "no domain 'web' may be on kvm1"),
        ((HERE,), True, ["web"], InvalidState, "is not settled"),
        ((HERE,), False, ["web", "typo"], NotFound, "no domain 'typo' may be on kvm1"),
        ((HERE,), False, [], InvalidArgument, "domains_lost is an empty list"),
    ],
)
def test_domains_that_may_be_elsewhere_or_are_misspelled_are_not_given_up(
    fleet: Deciding, places: tuple[HostRef, ...], begun: bool, wanted: list[str], error: type[Exception], text: str
) -> None:
    lost_fleet(fleet, *places)
    if begun:
        fleet.record()
    before = fleet.entries()
    with pytest.raises(error, match=text):
        fleet.task(**{**LOST, "domains_lost": wanted})
    assert (fleet.entries(), is_missing(fleet)) == (before, False)


def test_a_host_that_answers_cannot_be_discarded(fleet: Deciding) -> None:
    record = fleet.record(s.PRE_MIGRATING, s.DONE)
    with pytest.raises(InvalidState, match="answers"):
        fleet.task(source_discarded=True, reason="burnt")
    assert fleet.status(record) == ("done", None)


FOLDERS = {"/images": WEB, "/iso": WEB}
REVOCATION = {"target_host": "kvm2", "name": "kvm1", "revoke_token": True, "reason": "it burns"}


DISCARDED = {"target_host": "localhost", "name": "kvm1", "source_discarded": True, "reason": "burnt"}


def answer_ansible(fleet: Deciding, monkeypatch: pytest.MonkeyPatch, says: str, answer: str) -> None:
    """Let the inventory have kvm1, which answers Ansible in this way."""
    fleet.others = {"kvm1": {}}
    monkeypatch.setattr(ActionModule, "ask_host_id", lambda _action, _name, _variables: (says, answer))


def test_a_host_that_answers_ansible_is_not_discarded_from_elsewhere(fleet: Deciding, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_ansible(fleet, monkeypatch, SSH_ANSWERS, f"{ID}\n")
    for check in (True, False):
        fleet.check_mode = check
        with pytest.raises(InvalidState, match="kvm1 answers Ansible, and is the host that is to be discarded"):
            fleet.task(**DISCARDED)
    assert fleet.entries()[0]["state"] == "maintenance"


@pytest.mark.parametrize(
    ("says", "answer", "warnings"),
    [
        (SSH_SILENT, "", []),
        (SSH_ANSWERS, str(uuid.UUID(int=9)), ["A machine answers Ansible as kvm1, but with another host ID than the discarded host, or with none."]),
        (SSH_ANSWERS, "", ["A machine answers Ansible as kvm1, but with another host ID than the discarded host, or with none."]),
        (SSH_UNKNOWN, "it rejects the login", ["It is not known whether kvm1 answers Ansible: it rejects the login."]),
    ],
)
def test_a_host_that_is_not_proved_to_answer_is_discarded(
    fleet: Deciding, monkeypatch: pytest.MonkeyPatch, says: str, answer: str, warnings: list[str]
) -> None:
    answer_ansible(fleet, monkeypatch, says, answer)
    result = fleet.task(**DISCARDED)
    assert (result["changed"], result.get("warnings", [])) == (True, warnings)
    # It is asked once: a successor under its name may answer later.
    answer_ansible(fleet, monkeypatch, SSH_ANSWERS, ID)
    assert not fleet.task(**DISCARDED)["changed"]


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


def test_a_token_of_a_host_that_is_off_is_revoked_on_shared_storage(fleet: Deciding) -> None:
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


def test_a_token_is_revoked_where_the_other_host_has_the_folder(fleet: Deciding) -> None:
    fleet.put(protected={"at": "then", "token_id": WEB, "token_folders": FOLDERS})
    fleet.others["kvm1"] = {"kvmfleet_image_map": {"fast": "/iso"}}
    fleet.variables = {"kvmfleet_image_map": {"fast": "/data/iso", "slow": "/images"}}
    storage = Storage(fleet, "/data/iso")
    fleet.task(**REVOCATION)
    # What one host alone has in its map is something else on the other one.
    assert storage.asked[-1]["grant"] == {"grant": WEB, "host_id": ID, "folders": {"/data/iso": WEB}}
    assert fleet.entries()[0]["decisions"][0]["folders"] == ["/iso"]


def test_a_token_is_not_revoked_if_no_storage_could_be_written(fleet: Deciding) -> None:
    fleet.put(protected={"token_id": WEB, "token_folders": FOLDERS})
    Storage(fleet)
    with pytest.raises(Unsafe, match="/images: no such file"):
        fleet.task(**REVOCATION)
    assert fleet.entries()[0]["protected"]["token_id"] == WEB


def test_a_token_of_an_earlier_version_cannot_be_revoked_on_another_host(fleet: Deciding) -> None:
    fleet.put(protected={"token_id": WEB})
    storage = Storage(fleet, "/images")
    with pytest.raises(Unsafe, match="earlier version"):
        fleet.task(**REVOCATION)
    assert (storage.asked, fleet.entries()[0]["protected"]["token_id"]) == ([], WEB)


@pytest.mark.parametrize(("folders", "unrevoked"), [(None, ""), ({"/images": WEB}, "It was not revoked on shared storage.")])
def test_a_token_is_revoked_on_the_host_before_the_ledger(fleet: Deciding, folders: dict[str, str] | None, unrevoked: str) -> None:
    told: list[t.Any] = []
    fleet.put(protected={"token_id": WEB, "token_folders": folders})
    run = fleet.host.run

    def revoking(module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        if module_args["_work"]["phase"] != "revoke":
            return run(module_name, module_args, task_vars)
        assert fleet.entries()[0]["protected"]["token_id"] == WEB
        assert module_args["_work"]["grant"] == WEB
        told.append(module_args["_work"]["withdrawn"])
        return {"changed": not module_args["_work"]["check"], "unrevoked": unrevoked}

    fleet.host.run = revoking  # type: ignore[method-assign]
    done = fleet.task(revoke_token=True, reason="no more")
    assert (done["changed"], done.get("warnings", [])) == (True, [unrevoked] if unrevoked else [])
    assert told == [{"grant": WEB, "host_id": ID, "folders": folders} if folders else None]
    assert fleet.entries()[0]["protected"]["token_id"] is None


class Changed(Host):
    """The host with another name's machine and libvirt UUID; it takes the ID that it is given."""

    def __init__(self, host_id: str | None, host_uuid: str, machine_id: str | None) -> None:
        super().__init__(host_id)
        self.host_uuid, self.machine_id = host_uuid, machine_id

    def run(self, module_name: str, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        work = module_args["_work"]
        self.phases.append(work["phase"])
        if work["phase"] == "adopt":
            self.host_id = work["host_id"]
            return {"changed": True, "host_id": self.host_id}
        return {"identity": {"host_id": self.host_id, "machine_id": self.machine_id, "host_uuid": self.host_uuid}, "libvirt_error": None}


def test_a_host_with_new_name_machine_id_and_uuid_is_adopted(fleet: Deciding) -> None:
    new = str(uuid.UUID(int=7))
    fleet.host = Changed(ID, new, "m2")
    with pytest.raises(Conflict, match="adopt_identity"):
        fleet.task(target_host="renamed", state="enabled")
    wanted = {"target_host": "renamed", "adopt_identity": True, "reason": "new board"}
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
    assert fleet.task(target_host="renamed", state="enabled")["changed"]


def test_adopt_identity_gives_an_entry_the_name_that_its_host_has_now(fleet: Deciding) -> None:
    fleet.others = {"kvm1": {}}
    with pytest.raises(Conflict, match="lead to one host"):
        fleet.task("kvm2", state="maintenance")
    adopted = fleet.task("kvm2", adopt_identity=True, reason="kvm1 is another machine now")
    assert (adopted["changed"], adopted["host"]["name"]) == (True, "kvm2")
    assert fleet.task("kvm2", state="enabled")["changed"]


def test_adopt_identity_writes_a_lost_identity_again(fleet: Deciding) -> None:
    fleet.host = Changed(None, UUID, "m1")
    with pytest.raises(Conflict, match="lost its identity"):
        fleet.task(state="enabled")
    assert fleet.task(adopt_identity=True, reason="disk replaced")["changed"]
    assert (fleet.host.host_id, fleet.host.phases[-1]) == (ID, "adopt")
    assert not fleet.task(adopt_identity=True, reason="disk replaced")["changed"]


@pytest.mark.parametrize(
    ("host_id", "machine_id", "is_known"),
    [(None, "m2", False), (ID, "m2", False), (ID, "m1", True), (ID, None, True)],
    ids=["lost", "by hand", "same", "unread"],
)
def test_the_boot_guard_of_a_former_system_is_not_that_of_the_new_one(fleet: Deciding, host_id: str | None, machine_id: str | None, is_known: bool) -> None:
    """Nothing holds the next boot of a host that was installed anew, until it is protected again."""
    guard = {"installed": True, "systemd": True, "held_at_boot": True}
    fleet.put(protected={"at": "then", "guard": guard})
    fleet.host = Changed(host_id, UUID, machine_id)
    if host_id is None:
        fleet.task(adopt_identity=True, reason="installed anew")
    fleet.task(state="enabled")
    assert fleet.entries()[0]["protected"] == {"at": "then", **({"guard": guard} if is_known else {})}


def test_a_host_with_another_id_cannot_be_adopted(fleet: Deciding) -> None:
    fleet.host = Changed(str(uuid.UUID(int=9)), UUID, "m1")
    before = fleet.entries()
    with pytest.raises(Conflict, match="reports the host ID"):
        fleet.task(adopt_identity=True, reason="mine")
    assert fleet.entries() == before
    assert fleet.host.phases == ["read"]


def test_adopt_identity_renames_an_old_entry_with_the_same_name(fleet: Deciding) -> None:
    fleet.ledger.put_host(host_entry({**fleet.entries()[0], "name": "kvm1", "host_id": OTHER.host_id, "host_uuid": OTHER.host_uuid}), None)
    fleet.host = Changed(OTHER.host_id, OTHER.host_uuid, "m3")
    with pytest.raises(Conflict, match="another host with the name"):
        fleet.task(state="enabled")
    assert fleet.task(adopt_identity=True, reason="the old one is gone")["changed"]
    names = {entry["host_id"]: entry["name"] for entry in fleet.entries()}
    assert names[OTHER.host_id] == "kvm1"
    assert names[ID].startswith("kvm1 (until ")
    assert not fleet.task(adopt_identity=True, reason="the old one is gone")["changed"]


def test_a_host_unknown_to_the_ledger_is_not_adopted(fleet: Deciding) -> None:
    fleet.host = Changed(str(uuid.UUID(int=9)), str(uuid.UUID(int=10)), "m9")
    with pytest.raises(NotFound):
        fleet.task(target_host="stranger", adopt_identity=True, reason="mine")
    with pytest.raises(InvalidArgument, match="another host"):
        fleet.task(target_host="localhost", name="kvm1", adopt_identity=True, reason="mine")


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


def remembered_move(status: str = s.COMPLETED) -> dict[str, t.Any]:
    record = new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web"), HERE, OTHER, {}, "me")
    record = record.advance(status, "the watcher")
    return {"record": {**encode(record), "generation": 3}, "watched": False}


def test_a_remembered_move_that_the_ledger_lost_is_settled(fleet: Deciding) -> None:
    told = remembered_move()
    fleet.host = Remembering(told)
    wanted = {"id": told["record"]["id"], "status": "completed"}
    fleet.check_mode = True
    assert fleet.task(settle=wanted, reason="seen")["changed"]
    assert list(fleet.ledger.list_records()) == []
    fleet.check_mode = False
    result = fleet.task(settle=wanted, reason="seen")
    assert (result["changed"], result["diff"]["before"]) == (True, {"status": None})
    (record,) = fleet.ledger.list_records()
    assert result["records"] == [encode(record)]
    assert (record.status, record.generation) == (s.COMPLETED, 3)
    assert "seen" in record.last_detail


@pytest.mark.parametrize("check", [False, True])
def test_a_remembered_move_is_not_settled_if_a_newer_one_is_known(fleet: Deciding, check: bool) -> None:
    told = remembered_move()
    told["record"]["generation"] = 1
    fleet.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web"), HERE, OTHER, {}, "me"))
    fleet.host = Remembering(told)
    fleet.check_mode = check
    with pytest.raises(Conflict, match="a later move of domain web"):
        fleet.task(settle={"id": told["record"]["id"], "status": "completed"}, reason="seen")


@pytest.mark.parametrize(("kind", "wrong", "right"), [(s.EVACUATION, "failed", "done"), (s.LIVE_MIGRATION, "completed", "failed")])
def test_a_settlement_that_denies_a_running_domain_on_the_host_is_refused(fleet: Deciding, kind: str, wrong: str, right: str) -> None:
    """A survivor remembers its evacuations, and a source its moves. A typo would let the ledger lose the domain."""
    ends = (OTHER, HERE) if kind == s.EVACUATION else (HERE, OTHER)
    record = new_record(kind, DomainRef(WEB, "web"), *ends, {}, "me")
    record = record if kind == s.EVACUATION else record.advance(s.FAILED, "the watcher")
    told = {"record": {**encode(record), "generation": 3}, "watched": False, "running": True}
    fleet.host = Remembering(told)
    with pytest.raises(Conflict, match=rf"Domain web is running on kvm1.*'{wrong}'.*Settle it as '{right}'.*Nothing was changed"):
        fleet.task(settle={"id": record.id, "status": wrong}, reason="a typo")
    assert list(fleet.ledger.list_records()) == []
    assert fleet.task(settle={"id": record.id, "status": right}, reason="seen")["changed"]


def test_a_record_older_than_the_remembered_move_is_settled(fleet: Deciding) -> None:
    told = remembered_move()
    record = fleet.record(kind=s.LIVE_MIGRATION, id=told["record"]["id"])
    told["record"]["generation"] = 1
    fleet.host = Remembering(told)
    assert fleet.task(settle={"id": record, "status": "completed"}, reason="seen")["changed"]
    assert fleet.status(record) == (s.COMPLETED, None)


def test_a_record_that_neither_ledger_nor_host_knows_is_not_found(fleet: Deciding) -> None:
    fleet.host = Remembering(None)
    for options in ({}, {"name": "kvm2"}):
        with pytest.raises(NotFound):
            fleet.task(settle={"id": str(uuid.uuid4()), "status": "completed"}, reason="seen", **options)
    assert fleet.host.phases == ["recall"]
