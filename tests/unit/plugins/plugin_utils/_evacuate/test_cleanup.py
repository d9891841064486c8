# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, TimedOut, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.cleanup import CleanupOutcome, HostCleanup
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Witness
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import find_left_behind, find_missing_records
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

KVM1, KVM2, KVM3 = (HostRef(f"kvm{number}", str(uuid.UUID(int=number)), str(uuid.UUID(int=number + 16))) for number in (1, 2, 3))
WEB = str(uuid.UUID(int=64))
BY = "me"
DISK = {"target": "vda", "kind": "file", "path": "/a", "readonly": False, "optional": False, "folders": []}
DONE = {"changed": True, "undefined": True, "quarantined": [], "kept": [], "restore": "virsh define"}

Body = dict[str, t.Any]


class Host:
    """The module's half: says what it is told to say of each domain, clean unless told otherwise."""

    def __init__(self) -> None:
        self.said: dict[str, Body] = {}
        self.cleans: dict[str, t.Any] = {}
        self.asked: list[Body] = []
        self.phases: list[str] = []
        self.done: Body = dict(DONE)
        self.put_aside: list[str] = []

    def phase(self, name: str, work: Body) -> Body:
        self.phases.append(name)
        if name == "quarantined":
            return {"changed": False, "quarantined": [{"record": one, "uuid": WEB, "name": "web", "paths": []} for one in self.put_aside], "kept": []}
        if name == "expire":
            return {"changed": True, "deleted": [{"record": one, "uuid": WEB, "name": "web", "paths": []} for one in work["due"]], "kept": []}
        self.asked = list(work["domains"])
        plans = [self._plan(domain) for domain in work["domains"]]
        if name == "survey":
            return {"changed": False, "plans": plans}
        said = self.cleans.get(plans[0]["uuid"])
        if isinstance(said, Exception):
            raise said
        return {"changed": True, "plan": {**plans[0], **(said or {})}, "done": self.done}

    def _plan(self, domain: Body) -> Body:
        named = {key: domain[key] for key in ("uuid", "name", "record")}
        about = {"where": "kvm2", "reason": "", "present": True, "managed_save": None, "nvram": None, "tpm": None, "disks": []}
        return {**named, "kind": "clean", **about, **self.said.get(domain["uuid"], {})}


class Scene:
    def __init__(self, folder: pathlib.Path) -> None:
        self.ledger = FileLedger(str(folder / "ledger"))
        self.host = Host()

    def evacuation(
        self, domain: str = WEB, source: HostRef = KVM1, destination: HostRef = KVM2, to: t.Sequence[str] = (s.PRE_MIGRATING, s.DONE), **more: t.Any
    ) -> str:
        record = new_record(s.EVACUATION, DomainRef(domain, f"web-{domain[-2:]}"), source, destination, {}, BY)
        return self.lead(self.ledger.open_record(dataclasses.replace(record, **more)), *to).record.record_id

    def move(self, source: HostRef, destination: HostRef) -> None:
        record = new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web"), source, destination, {}, BY)
        self.lead(self.ledger.open_record(record), s.RUNNING, s.COMPLETED)

    def lead(self, stored: Stored, *statuses: str) -> Stored:
        for status in statuses:
            stored = self.ledger.update_record(stored, stored.record.advance(status, BY))
        return stored

    def run(
        self, cleaned_host: HostRef = KVM1, storage: str = "quarantine", check: bool = False, told: t.Sequence[Body] = (), days: int = 14
    ) -> CleanupOutcome:
        """:arg told: what the second host remembers."""
        heard = [("kvm2", told)]
        memory = find_missing_records(self.ledger, heard), find_left_behind(self.ledger, heard, cleaned_host.host_id)
        return HostCleanup(self.ledger, cleaned_host, self.host.phase, {"kvm2": "qemu+ssh://kvm2/system"}, storage, days, BY, check, *memory).clean_host()

    def lost(self, source: HostRef, destination: HostRef, generation: int, record_type: str = s.EVACUATION) -> Body:
        """Return what a host remembers of a record of the domain that the ledger does not have."""
        record = new_record(record_type, DomainRef(WEB, "web"), source, destination, {}, BY)
        return {**encode(record), "generation": generation, "ledger_id": self.ledger.ledger_id}

    def status(self, record: str) -> tuple[str, str | None]:
        now = self.ledger.read_record(record).record
        return now.status, now.reason

    def put_document(self, **changes: t.Any) -> None:
        document = self.ledger.read_domain(WEB)
        assert document
        self.ledger.put_domain(domain_entry({**document.body, **changes}), document.version)


@pytest.fixture
def scene(tmp_path: pathlib.Path) -> Scene:
    return Scene(tmp_path)


def test_a_record_is_completed_after_the_host_was_cleaned(scene: Scene) -> None:
    record = scene.evacuation()
    outcome = scene.run()
    assert scene.host.phases == ["survey", "clean"]
    assert [entry.record for entry in outcome.cleaned] == [record]
    assert (outcome.cleaned[0].where, outcome.cleaned[0].restore) == ("kvm2", "virsh define")
    assert scene.status(record) == ("completed", None)
    assert scene.ledger.verify_audit() == []
    assert scene.run().as_result() == CleanupOutcome().as_result()


def test_the_host_gets_what_the_fleet_has_answered_last_and_about_what_to_ask_it_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    domains = [str(uuid.UUID(int=64 + place)) for place in range(3)]
    for domain in domains:
        scene.evacuation(domain)
    works, phase, again = list[Body](), scene.host.phase, iter([None, {"asked": "again"}, None])

    def answer(name: str, work: Body) -> Body:
        if name == "survey":
            return {**phase(name, work), "fleet": {"asked": "at first"}}
        works.append(work)
        return {**phase(name, work), "fleet": next(again)}

    monkeypatch.setattr(scene.host, "phase", answer)
    assert len(scene.run().cleaned) == 3
    assert [work["fleet"]["asked"] for work in works] == ["at first", "at first", "again"]
    left = [sorted(work["uuids"]) for work in works]
    cleaned = [work["domains"][0]["uuid"] for work in works]
    assert left == [sorted(domains), sorted(set(domains) - {cleaned[0]}), [cleaned[2]]]


@pytest.mark.parametrize(
    "end", [KVM2, HostRef("kvm1", None, KVM1.host_uuid), HostRef("kvm1", str(uuid.UUID(int=99)), KVM1.host_uuid), HostRef("kvm1", None, None)]
)
def test_a_record_of_another_host_id_is_not_cleaned_whatever_its_name(scene: Scene, end: HostRef) -> None:
    record = scene.evacuation(source=end, destination=KVM3)
    assert not scene.run().as_result()["changed"]
    assert not scene.run(cleaned_host=HostRef("kvm1", None, KVM1.host_uuid)).as_result()["changed"]
    assert (scene.host.phases, scene.status(record)) == ([], ("done", None))


@pytest.mark.parametrize("to", [(), (s.PRE_MIGRATING,), (s.PRE_MIGRATING, s.FAILED), (s.PRE_MIGRATING, s.ERROR), (s.CONFLICT,)])
def test_only_a_record_that_is_done_is_a_tombstone(scene: Scene, to: t.Sequence[str]) -> None:
    scene.evacuation(to=to)
    scene.run()
    assert scene.host.phases == []


@pytest.mark.parametrize("check", [False, True])
def test_an_evacuation_in_progress_is_refused(scene: Scene, check: bool) -> None:
    record = scene.evacuation(to=(s.PRE_MIGRATING,))
    outcome = scene.run(check=check)
    assert [(entry.record, entry.uuid) for entry in outcome.refused] == [(record, WEB)]
    assert "is not settled ('pre-migrating')" in outcome.refused[0].reason
    assert (outcome.as_result()["changed"], scene.host.phases, scene.status(record)[0]) == (False, [], "pre-migrating")
    assert scene.run(cleaned_host=KVM2).refused == []


def test_an_evacuation_without_an_order_is_closed_when_its_source_is_back(scene: Scene) -> None:
    record = scene.evacuation(to=())
    assert "If kvm1 is back, recover it while kvm2 answers" in scene.run(check=True).refused[0].reason
    assert scene.run(cleaned_host=KVM2).refused == []
    assert scene.status(record)[0] == "accepted"
    outcome = scene.run()
    assert (outcome.refused, outcome.as_result()["changed"]) == ([], True)
    assert (scene.status(record)[0], scene.host.phases) == ("failed", [])
    document = scene.ledger.read_domain(WEB)
    assert document
    assert document.body["possible_hosts"] == [encode(KVM1)]


def test_an_evacuation_that_its_destination_knows_is_not_closed_by_a_ledger_that_was_set_back(scene: Scene) -> None:
    record = scene.evacuation(to=())
    begun = scene.ledger.read_record(record).record.advance(s.PRE_MIGRATING, BY)
    told = [encode(dataclasses.replace(begun, ledger_id=scene.ledger.ledger_id))]
    for _run in range(2):
        outcome = scene.run(told=told)
        assert [move.id for move in outcome.missing_records] == [record]
        assert {entry.record for entry in outcome.refused} == {record}
        assert scene.status(record)[0] == "accepted"


def test_an_evacuation_whose_destination_is_ordering_starts_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    record = scene.evacuation(to=())

    def hold_lock(self: FileLedger, key: str, timeout_seconds: float = 30) -> t.NoReturn:
        assert key == f"host-{KVM2.host_id}"
        raise TimedOut("held")

    monkeypatch.setattr(FileLedger, "hold_lock", hold_lock)
    assert [entry.record for entry in scene.run().refused] == [record]
    assert scene.status(record)[0] == "accepted"


def test_check_mode_predicts_the_cleanup_and_writes_nothing(scene: Scene) -> None:
    record = scene.evacuation()
    disk = {"target": "vda", "path": "/a", "quarantine": True, "reason": "", "only_copy": False}
    kept = {"target": "vdb", "path": "/b", "quarantine": False, "reason": "why", "only_copy": True}
    scene.host.said[WEB] = {"disks": [disk, kept], "managed_save": "/save"}
    outcome = scene.run(check=True)
    assert [file.path for file in outcome.cleaned[0].quarantined] == ["/a", "/save"]
    assert [(entry.path, entry.only_copy) for entry in outcome.kept] == [("/b", True)]
    assert (scene.host.phases, scene.status(record)) == (["survey"], ("done", None))
    assert [entry.path for entry in scene.run(check=True, storage="keep").kept] == ["/a", "/b"]


def test_a_refused_domain_keeps_its_record_and_does_not_stop_the_others(scene: Scene) -> None:
    other = str(uuid.UUID(int=65))
    records = [scene.evacuation(), scene.evacuation(other)]
    scene.host.said[WEB] = {"kind": "refuse", "reason": "it is nowhere"}
    outcome = scene.run()
    assert [entry.reason for entry in outcome.refused] == ["it is nowhere"]
    assert [scene.status(record)[0] for record in records] == ["done", "completed"]


@pytest.mark.parametrize("changed", [False, True])
def test_a_failure_on_the_host_after_a_change_there_is_a_change(scene: Scene, changed: bool) -> None:
    scene.evacuation()
    scene.host.cleans[WEB] = Internal("interrupted", changed=changed)
    assert scene.run().as_result()["changed"] == changed


def test_a_failure_on_the_host_keeps_the_record_and_does_not_stop_the_others(scene: Scene) -> None:
    other = str(uuid.UUID(int=65))
    records = [scene.evacuation(), scene.evacuation(other)]
    scene.host.cleans[WEB] = Internal("no room left")
    outcome = scene.run()
    assert [entry.reason for entry in outcome.refused] == ["no room left"]
    assert [scene.status(record)[0] for record in records] == ["done", "completed"]


def test_a_cleanup_that_the_ledger_cannot_store_is_named_with_what_was_done(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: t.Any) -> t.Any:
        raise Internal("No space left on device.", "Free space.")

    record = scene.evacuation()
    with monkeypatch.context() as full:
        full.setattr(scene.ledger, "update_record", fail)
        outcome = scene.run()
    (refused,) = outcome.refused
    assert (refused.record, outcome.as_result()["changed"]) == (record, True)
    assert "Cleanup of its source: undefined here" in refused.reason
    assert "No space left on device. Free space. Then run the task again" in refused.reason
    assert scene.status(record)[0] == "done"
    assert [entry.record for entry in scene.run().cleaned] == [record]


def test_a_lost_host_ends_the_task_with_the_partial_result(scene: Scene) -> None:
    other = str(uuid.UUID(int=65))
    records = [scene.evacuation(), scene.evacuation(other)]
    scene.host.cleans[other] = Unreachable("gone")
    with pytest.raises(Unreachable) as caught:
        scene.run()
    assert [entry["uuid"] for entry in caught.value.result["cleaned"]] == [WEB]
    assert [scene.status(record)[0] for record in records] == ["completed", "done"]


def test_an_alarm_prevents_every_cleanup_of_the_host(scene: Scene) -> None:
    records = [scene.evacuation(), scene.evacuation(str(uuid.UUID(int=65)))]
    scene.host.said[str(uuid.UUID(int=65))] = {"kind": "alarm", "reason": "it is active on this host"}
    with pytest.raises(Unsafe, match="active on this host"):
        scene.run(storage="delete")
    assert scene.host.phases == ["survey"]
    assert [scene.status(record)[0] for record in records] == ["done", "done"]


def test_a_domain_that_starts_between_survey_and_cleanup_is_an_alarm(scene: Scene) -> None:
    record = scene.evacuation()
    scene.host.cleans[WEB] = {"kind": "alarm", "reason": "it is active on this host"}
    with pytest.raises(Unsafe) as caught:
        scene.run()
    assert not caught.value.result["changed"]
    assert scene.status(record)[0] == "done"


def test_a_domain_with_an_unsettled_record_is_refused(scene: Scene) -> None:
    record = scene.evacuation()
    scene.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web"), KVM2, KVM1, {}, BY))
    outcome = scene.run()
    assert "is not settled" in outcome.refused[0].reason
    assert (scene.host.phases, scene.status(record)[0]) == ([], "done")


@pytest.mark.parametrize(
    ("record_type", "ends", "is_refused"),
    [
        (s.EVACUATION, (KVM2, KVM3), False),
        (s.LIVE_MIGRATION, (KVM2, KVM3), False),
        (s.EVACUATION, (KVM2, KVM1), True),
        (s.EVACUATION, (KVM2, HostRef("kvm1", None, None)), True),
        (s.LIVE_MIGRATION, (KVM2, HostRef(None, None, None)), True),
    ],
)
def test_a_newer_record_between_other_hosts_does_not_hold_a_leftover(scene: Scene, record_type: str, ends: tuple[HostRef, HostRef], is_refused: bool) -> None:
    record = scene.evacuation()
    scene.ledger.open_record(new_record(record_type, DomainRef(WEB, "web"), *ends, {}, BY))
    outcome = scene.run()
    assert [entry.record for entry in outcome.refused] == ([record] if is_refused else [])
    assert scene.status(record)[0] == ("done" if is_refused else "completed")


def put_host(scene: Scene, host: HostRef, state: str) -> None:
    entry = {"name": host.host, "host_id": host.host_id, "host_uuid": host.host_uuid, "machine_id": host.host, "state": state, "reason": None}
    found = scene.ledger.read_host(str(host.host_id))
    scene.ledger.put_host(host_entry(entry), found.version if found else None)


def is_asked_as_fenced(scene: Scene) -> bool:
    scene.run(check=True)
    return scene.host.asked[0].get("fenced") is True


def test_a_domain_is_on_fenced_hosts_by_its_newest_record(scene: Scene) -> None:
    scene.evacuation()
    scene.put_document(protected={"host": encode(KVM1), "definition": "<domain/>"})
    assert not is_asked_as_fenced(scene)
    put_host(scene, KVM2, s.MAINTENANCE)
    assert not is_asked_as_fenced(scene)
    put_host(scene, KVM2, s.FENCED)
    assert is_asked_as_fenced(scene)
    # Its own evacuation has begun, and its destination may have the domain as well.
    stored = scene.ledger.open_record(new_record(s.EVACUATION, DomainRef(WEB, "web"), KVM2, KVM3, {}, BY))
    scene.lead(stored, s.PRE_MIGRATING)
    assert not is_asked_as_fenced(scene)
    put_host(scene, KVM3, s.FENCED)
    assert is_asked_as_fenced(scene)


@pytest.mark.parametrize("hosts", [[KVM1], [KVM1, KVM2], [KVM2, HostRef("kvm1", None, None)], []])
def test_a_domain_that_may_be_on_this_host_is_not_on_fenced_hosts(scene: Scene, hosts: list[HostRef]) -> None:
    scene.evacuation()
    put_host(scene, KVM2, s.FENCED)
    scene.put_document(protected={"host": encode(KVM1), "definition": "<domain/>"}, possible_hosts=encode(hosts))
    assert not is_asked_as_fenced(scene)


def test_a_domain_whose_definition_only_its_hosts_have_is_not_on_fenced_hosts(scene: Scene) -> None:
    scene.evacuation()
    put_host(scene, KVM2, s.FENCED)
    assert not is_asked_as_fenced(scene)


def test_an_evacuation_whose_result_is_not_known_took_its_domain_nowhere(scene: Scene) -> None:
    supersede_evacuation(scene)
    put_host(scene, KVM2, s.FENCED)
    scene.put_document(protected={"host": encode(KVM1), "definition": "<domain/>"}, possible_hosts=[encode(KVM2)])
    assert not is_asked_as_fenced(scene)


def test_a_job_of_another_tool_may_have_taken_a_domain_to_this_host(scene: Scene) -> None:
    scene.evacuation()
    scene.put_document(protected={"host": encode(KVM1), "definition": "<domain/>"})
    put_host(scene, KVM2, s.FENCED)
    scene.move(KVM2, HostRef(None, None, None))
    document = scene.ledger.read_domain(WEB)
    assert document
    assert document.domain.possible_hosts == (KVM2,)
    assert not is_asked_as_fenced(scene)


def test_a_record_names_no_host_while_those_that_have_the_domain_are_silent(scene: Scene) -> None:
    record = scene.evacuation()
    scene.host.said[WEB] = {"where": None, "reason": "the hosts that it may be on are fenced and did not answer"}
    (cleaned,) = scene.run().cleaned
    assert cleaned.where is None
    assert "active nowhere: the hosts that it may be on are fenced" in str(scene.ledger.read_record(record).record.history[-1].detail)


def test_the_newest_tombstone_is_cleaned_and_older_ones_are_superseded(scene: Scene) -> None:
    old = scene.evacuation()
    scene.move(KVM2, KVM1)
    new = scene.evacuation(destination=KVM3)
    outcome = scene.run()
    assert [entry["record"] for entry in scene.host.asked] == [new]
    assert outcome.cleaned[0].superseded == (old,)
    assert (scene.status(new), scene.status(old)) == (("completed", None), ("completed", "superseded"))


def test_a_chain_of_evacuations_leaves_one_tombstone_for_each_source(scene: Scene) -> None:
    first = scene.evacuation()
    second = scene.evacuation(source=KVM2, destination=KVM3)
    scene.run()
    assert scene.host.asked[0]["expected"] == [encode(KVM3)]
    assert (scene.status(first)[0], scene.status(second)[0]) == ("completed", "done")
    scene.run(cleaned_host=KVM2)
    assert scene.status(second)[0] == "completed"


@pytest.mark.parametrize("by", ["move", "evacuation"])
def test_a_domain_that_came_back_is_superseded(scene: Scene, by: str) -> None:
    record = scene.evacuation()
    scene.run(check=True)
    assert not scene.host.asked[0]["came_back"]
    if by == "move":
        scene.move(KVM2, KVM1)
    else:
        scene.evacuation(source=KVM2, destination=KVM1)
    scene.host.said[WEB] = {"kind": "superseded", "reason": "it has come back"}
    outcome = scene.run()
    assert scene.host.asked[0]["came_back"]
    assert ([entry.record for entry in outcome.superseded], outcome.cleaned) == ([record], [])
    assert scene.status(record) == ("completed", "superseded")


def test_a_document_without_a_record_does_not_count_as_a_return(scene: Scene) -> None:
    scene.evacuation()
    scene.put_document(possible_hosts=[encode(KVM1)])
    scene.run(check=True)
    assert not scene.host.asked[0]["came_back"]


def test_only_disks_saved_of_this_host_count(scene: Scene) -> None:
    scene.evacuation()
    disks = [DISK]
    for host, expected in ((encode(KVM1), disks), (encode(KVM2), []), ({}, [])):
        scene.put_document(protected={"host": host, "disks": disks})
        scene.run(check=True)
        assert scene.host.asked[0]["saved"] == expected


@pytest.mark.parametrize("damage", [{"path": 5}, {"seen_by": "kvm1"}, {"mount": "/srv"}])
def test_saved_disks_do_not_count_if_one_is_damaged(scene: Scene, damage: Body) -> None:
    scene.evacuation()
    scene.put_document(protected={"host": KVM1, "disks": [DISK, {**DISK, **damage}]})
    scene.run(check=True)
    assert scene.host.asked[0]["saved"] == []


def test_disks_of_the_record_are_used_after_a_later_protect_elsewhere(scene: Scene) -> None:
    disks = [DISK]
    scene.evacuation(before=Before(disks=tuple(disks)))
    scene.put_document(protected={"host": encode(KVM2), "disks": []})
    scene.run(check=True)
    assert scene.host.asked[0]["saved"] == disks


@pytest.mark.parametrize(("wanted", "defined"), [("running", False), ("paused", False), ("shut off", True), (None, False)])
def test_only_an_evacuation_to_shut_off_is_cleaned_with_a_definition_alone(scene: Scene, wanted: str | None, defined: bool) -> None:
    scene.evacuation(wanted_state=wanted)
    scene.run(check=True)
    assert scene.host.asked[0]["defined"] is defined


@pytest.mark.parametrize("host", [KVM2, KVM1])
def test_a_domain_that_was_deleted_after_its_evacuation_is_asked_as_missing(scene: Scene, host: HostRef) -> None:
    """C(protect) has noted on its new host that it is missing there; a note about another host is outdated."""
    scene.evacuation()
    scene.put_document(missing={"at": "2026-11-23T18:00:00.000Z", "by": BY, "host": encode(host)})
    scene.run(check=True)
    assert scene.host.asked[0].get("missing", False) is (host == KVM2)


def supersede_evacuation(scene: Scene) -> str:
    """Supersede an evacuation that was reserved, and whose result is not known."""
    stored = scene.ledger.read_record(scene.evacuation(to=(s.PRE_MIGRATING,)))
    scene.ledger.update_record(stored, stored.record.supersede(str(uuid.UUID(int=70))))
    return stored.record.record_id


@pytest.mark.parametrize("newer_source", [KVM1, KVM2])
@pytest.mark.parametrize("hosts", [(KVM1, KVM2), (KVM2, KVM1)])
def test_a_superseded_evacuation_is_failed_after_both_its_hosts_were_cleaned(scene: Scene, hosts: tuple[HostRef, HostRef], newer_source: HostRef) -> None:
    record = supersede_evacuation(scene)
    newer = scene.evacuation(source=newer_source, destination=KVM3)
    for cleaned_host, status in zip(hosts, ("pre-migrating", "failed"), strict=True):
        assert [entry.uuid for entry in scene.run(cleaned_host).cleaned] == [WEB]
        assert scene.status(record)[0] == status
        assert not scene.run(cleaned_host).as_result()["changed"]
    assert scene.status(newer)[0] == "completed"
    document = scene.ledger.read_domain(WEB)
    assert document
    assert document.body["possible_hosts"] == [encode(KVM3)]


def test_the_source_of_a_superseded_evacuation_keeps_its_copy_until_the_domain_is_elsewhere(scene: Scene) -> None:
    record = supersede_evacuation(scene)
    scene.host.said[WEB] = {"kind": "refuse", "reason": "it is active on no other host"}
    outcome = scene.run()
    assert ([entry.uuid for entry in outcome.refused], outcome.as_result()["changed"], scene.status(record)[0]) == ([WEB], False, "pre-migrating")


def supersede_move(scene: Scene, source: HostRef, destination: HostRef, *statuses: str) -> str:
    """Supersede a live migration by an evacuation of its destination."""
    opened = scene.ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(WEB, "web"), source, destination, {}, BY))
    stored = scene.lead(opened, *statuses)
    scene.ledger.update_record(stored, stored.record.supersede(str(uuid.UUID(int=70))))
    scene.evacuation(source=destination, destination=KVM3)
    return stored.record.record_id


@pytest.mark.parametrize("statuses", [(), (s.RUNNING,), (s.RUNNING, s.RUNNING_POST_COPY), (s.RUNNING, s.ERROR)])
@pytest.mark.parametrize("hosts", [(KVM1, KVM2), (KVM2, KVM1)])
def test_a_superseded_move_is_closed_after_both_its_hosts_were_cleaned(scene: Scene, hosts: tuple[HostRef, HostRef], statuses: tuple[str, ...]) -> None:
    record = supersede_move(scene, KVM1, KVM2, *statuses)
    before = scene.status(record)
    for cleaned_host, status in zip(hosts, (before, ("failed", None if hosts[1] == KVM1 else "superseded")), strict=True):
        assert [entry.uuid for entry in scene.run(cleaned_host).cleaned] == [WEB]
        assert scene.status(record) == status
        assert not scene.run(cleaned_host).as_result()["changed"]
    document = scene.ledger.read_domain(WEB)
    assert document
    assert document.body["possible_hosts"] == [encode(KVM3)]
    assert scene.ledger.verify_audit() == []


def test_an_alarm_says_how_the_record_of_a_domain_that_was_moved_back_by_hand_is_settled(scene: Scene) -> None:
    records = {scene.evacuation(str(uuid.UUID(int=65))): "completed", supersede_evacuation(scene): "failed"}
    scene.host.said = {domain: {"kind": "alarm", "reason": "it is active here", "where": None} for domain in (WEB, str(uuid.UUID(int=65)))}
    with pytest.raises(Unsafe) as alarm:
        scene.run()
    for record, status in records.items():
        assert f"If it was moved back by hand, settle the record {record} as '{status}' with kvmfleet.migration.host." in alarm.value.message
    scene.host.said = {domain: {"kind": "alarm", "reason": "it is active on kvm2 too", "where": "kvm2"} for domain in scene.host.said}
    with pytest.raises(Unsafe) as alarm:
        scene.run()
    assert "by hand" not in alarm.value.message


@pytest.mark.parametrize("record_type", [s.LIVE_MIGRATION, s.EVACUATION])
def test_a_superseded_record_withholds_no_host_to_which_the_domain_came_back(scene: Scene, record_type: str) -> None:
    if record_type == s.EVACUATION:
        stored = scene.ledger.read_record(scene.evacuation(source=KVM2, destination=KVM1, to=(s.PRE_MIGRATING,)))
        scene.ledger.update_record(stored, stored.record.supersede(str(uuid.UUID(int=70))))
        scene.evacuation(source=KVM2, destination=KVM3)
        record = stored.record.record_id
    else:
        record = supersede_move(scene, KVM1, KVM2)
    scene.move(KVM3, KVM1)
    scene.host.said[WEB] = {"kind": "superseded", "reason": "it has come back"}
    assert [entry.record for entry in scene.run().superseded] == [record]
    assert scene.host.asked[0]["came_back"]
    assert not scene.run().as_result()["changed"]
    document = scene.ledger.read_domain(WEB)
    assert document
    assert document.body["possible_hosts"] == [encode(KVM1)]


@pytest.mark.parametrize(
    ("storage", "phases"),
    [("delete", ["survey", "quarantined", "expire", "clean"]), ("quarantine", ["survey", "clean"]), ("keep", ["survey", "clean"])],
)
def test_only_storage_delete_deletes_old_files_before_new_ones_are_quarantined(scene: Scene, storage: str, phases: list[str]) -> None:
    old = scene.evacuation(domain=str(uuid.UUID(int=65)), to=(s.PRE_MIGRATING, s.DONE, s.COMPLETED))
    scene.host.put_aside = [old]
    scene.evacuation()
    outcome = scene.run(storage=storage, days=0)
    assert scene.host.phases == phases
    assert [entry.record for entry in outcome.deleted] == ([old] if storage == "delete" else [])


def test_recently_quarantined_files_are_not_deleted(scene: Scene) -> None:
    scene.host.put_aside = [scene.evacuation(to=(s.PRE_MIGRATING, s.DONE, s.COMPLETED))]
    outcome = scene.run(storage="delete")
    assert (scene.host.phases, outcome.deleted, outcome.kept) == (["quarantined"], [], [])


def test_quarantined_files_without_a_record_are_kept(scene: Scene) -> None:
    scene.evacuation()
    scene.host.put_aside = [str(uuid.UUID(int=90))]
    outcome = scene.run(storage="delete", days=0)
    assert "expire" not in scene.host.phases
    assert outcome.deleted == []
    assert "has no record" in outcome.kept[0].reason


def test_a_tombstone_is_refused_if_a_host_remembers_a_newer_record(scene: Scene) -> None:
    """Defined on kvm2 by the evacuation that the ledger has; the one that brought it back here was lost with an old backup."""
    record = scene.evacuation(wanted_state="shut off")
    newer = scene.lost(KVM2, KVM1, generation=2)
    outcome = scene.run(told=[newer])
    assert scene.host.phases == []
    assert [entry.record for entry in outcome.refused] == [record]
    assert "which the ledger does not have: the ledger was set back" in outcome.refused[0].reason
    assert [move.id for move in outcome.missing_records] == [newer["id"]]
    assert scene.status(record) == ("done", None)


@pytest.mark.parametrize("present", [True, False])
def test_an_evacuation_that_the_ledger_lost_is_refused(scene: Scene, present: bool) -> None:
    lost = scene.lost(KVM1, KVM2, generation=1)
    scene.host.said[WEB] = {"kind": "alarm", "reason": "it is active on this host"} if present else {"present": False}
    outcome = scene.run(told=[lost])
    assert scene.host.phases == ["survey"]
    assert [(entry.uuid, entry.record) for entry in outcome.refused] == [(WEB, lost["id"])]
    assert ("it is active on this host. kvm2 remembers" in outcome.refused[0].reason) == present
    assert f"settle: {{id: {lost['id']}, status: done}}" in outcome.refused[0].reason
    assert [move.id for move in outcome.missing_records] == [lost["id"]]
    assert not outcome.as_result()["changed"]
    assert scene.run(cleaned_host=KVM3, told=[lost]).refused == []


def test_a_copy_of_a_lost_evacuation_is_refused_until_it_is_undefined(scene: Scene) -> None:
    lost = scene.lost(KVM1, KVM2, generation=1)
    scene.move(KVM2, KVM3)
    outcome = scene.run(told=[lost])
    assert "virsh undefine --keep-nvram web, with --keep-tpm too if it has a TPM; its disks stay" in outcome.refused[0].reason
    assert [move.id for move in outcome.missing_records] == [lost["id"]]
    scene.host.said[WEB] = {"present": False}
    assert scene.run(told=[lost]).as_result() == CleanupOutcome().as_result()


def test_a_domain_that_came_back_after_a_lost_evacuation_is_not_refused(scene: Scene) -> None:
    lost = scene.lost(KVM1, KVM2, generation=1)
    scene.move(KVM2, KVM1)
    assert scene.run(told=[lost]).as_result() == CleanupOutcome().as_result()
    assert scene.host.phases == []


def test_a_record_completed_by_a_concurrent_run_is_skipped(scene: Scene) -> None:
    record = scene.evacuation()
    ask = scene.host.phase

    def slow(name: str, work: Body) -> Body:
        answer = ask(name, work)
        if name == "survey":
            scene.lead(scene.ledger.read_record(record), s.COMPLETED)
        return answer

    scene.host.phase = slow  # type: ignore[method-assign]
    outcome = scene.run()
    assert (outcome.cleaned, outcome.refused) == ([], [])


class Ear(Witness):
    """Hears what is told beside the ledger's own changes."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []

    def report_event(self, record: MoveRecord, event: str, by: str, detail: str = "") -> None:
        self.heard.append((record.domain.uuid, event, detail))


def test_listeners_get_the_start_and_the_failure_of_each_cleanup(scene: Scene) -> None:
    failing, refused, gone = (str(uuid.UUID(int=number)) for number in (65, 66, 67))
    for domain in (WEB, failing, refused, gone):
        scene.evacuation(domain)
    scene.host.said[refused] = {"kind": "refuse", "reason": "it is nowhere"}
    scene.host.cleans |= {failing: Internal("no room left"), gone: Unreachable("gone")}
    scene.ledger.witness = ear = Ear()
    scene.run(check=True)
    ear.heard.clear()
    with pytest.raises(Unreachable):
        scene.run()
    begun = "cleanup.started"
    of_each = [(WEB, begun, ""), (failing, begun, ""), (failing, "cleanup.failed", "no room left")]
    assert ear.heard == [*of_each, (refused, "cleanup.refused", "it is nowhere"), (gone, begun, ""), (gone, "cleanup.failed", "gone")]


def test_listeners_get_an_alarm_as_a_refusal(scene: Scene) -> None:
    scene.evacuation()
    scene.host.said[WEB] = {"kind": "alarm", "reason": "it is active on this host"}
    scene.ledger.witness = ear = Ear()
    with pytest.raises(Unsafe):
        scene.run()
    assert ear.heard == [(WEB, "cleanup.refused", "it is active on this host")]
