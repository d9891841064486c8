# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance, new_record, place
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.cleanup import Cleanup, Outcome
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored, Witness
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.missing import left_behind, missing_records

KVM1, KVM2, KVM3 = (place(f"kvm{number}", str(uuid.UUID(int=number)), str(uuid.UUID(int=number + 16))) for number in (1, 2, 3))
WEB = str(uuid.UUID(int=64))
BY = "me"
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
        self, domain: str = WEB, source: Body = KVM1, destination: Body = KVM2, to: t.Sequence[str] = (s.PRE_MIGRATING, s.DONE), **more: t.Any
    ) -> str:
        record = new_record(s.EVACUATION, {"uuid": domain, "name": f"web-{domain[-2:]}"}, source, destination, {}, BY)
        return str(self.lead(self.ledger.open_record({**record, **more}), *to).record["id"])

    def move(self, source: Body, destination: Body) -> None:
        record = new_record(s.LIVE_MIGRATION, {"uuid": WEB, "name": "web"}, source, destination, {}, BY)
        self.lead(self.ledger.open_record(record), s.RUNNING, s.COMPLETED)

    def lead(self, stored: Stored, *statuses: str, **more: t.Any) -> Stored:
        for status in statuses:
            record = {**copy.deepcopy(stored.record), **more}
            advance(record, status, BY)
            stored = self.ledger.update(stored, record)
        return stored

    def run(self, here: Body = KVM1, storage: str = "quarantine", check: bool = False, told: t.Sequence[Body] = (), days: int = 14) -> Outcome:
        """:arg told: what the second host remembers."""
        heard = [("kvm2", told)]
        memory = missing_records(self.ledger, heard), left_behind(self.ledger, heard, here["host_id"])
        return Cleanup(self.ledger, here, self.host.phase, {"kvm2": "qemu+ssh://kvm2/system"}, storage, days, BY, check, *memory).run()

    def lost(self, source: Body, destination: Body, generation: int, record_type: str = s.EVACUATION) -> Body:
        """Return what a host remembers of a record of the domain that the ledger does not have."""
        record = new_record(record_type, {"uuid": WEB, "name": "web"}, source, destination, {}, BY)
        return {**record, "generation": generation, "ledger_id": self.ledger.ledger_id}

    def status(self, record: str) -> tuple[str, str | None]:
        now = self.ledger.get(record).record
        return now["status"], now["reason"]

    def put_document(self, **changes: t.Any) -> None:
        document = self.ledger.domain(WEB)
        assert document
        self.ledger.put_domain({**document.body, **changes}, document.version)


@pytest.fixture
def scene(tmp_path: pathlib.Path) -> Scene:
    return Scene(tmp_path)


def test_a_record_is_completed_after_the_host_has_done_it(scene: Scene) -> None:
    record = scene.evacuation()
    outcome = scene.run()
    assert scene.host.phases == ["survey", "clean"]
    assert [entry["record"] for entry in outcome.cleaned] == [record]
    assert (outcome.cleaned[0]["where"], outcome.cleaned[0]["restore"]) == ("kvm2", "virsh define")
    assert scene.status(record) == ("completed", None)
    assert scene.ledger.verify_audit() == []
    assert scene.run().as_result() == {**Outcome().__dict__, "changed": False}


@pytest.mark.parametrize(
    "end", [KVM2, place("kvm1", None, KVM1["host_uuid"]), place("kvm1", str(uuid.UUID(int=99)), KVM1["host_uuid"]), place("kvm1", None, None)]
)
def test_a_record_of_another_host_id_does_nothing_whatever_its_name(scene: Scene, end: Body) -> None:
    record = scene.evacuation(source=end, destination=KVM3)
    assert not scene.run().as_result()["changed"]
    assert not scene.run(here=place("kvm1", None, KVM1["host_uuid"])).as_result()["changed"]
    assert (scene.host.phases, scene.status(record)) == ([], ("done", None))


@pytest.mark.parametrize("to", [(), (s.PRE_MIGRATING,), (s.PRE_MIGRATING, s.FAILED), (s.PRE_MIGRATING, s.ERROR), (s.CONFLICT,)])
def test_only_done_is_a_tombstone(scene: Scene, to: t.Sequence[str]) -> None:
    scene.evacuation(to=to)
    scene.run()
    assert scene.host.phases == []


@pytest.mark.parametrize("check", [False, True])
def test_an_evacuation_that_is_on_its_way_is_refused(scene: Scene, check: bool) -> None:
    record = scene.evacuation(to=(s.PRE_MIGRATING,))
    outcome = scene.run(check=check)
    assert [(entry["record"], entry["uuid"]) for entry in outcome.refused] == [(record, WEB)]
    assert "is not settled ('pre-migrating')" in outcome.refused[0]["reason"]
    assert (outcome.as_result()["changed"], scene.host.phases, scene.status(record)[0]) == (False, [], "pre-migrating")
    assert scene.run(here=KVM2).refused == []


def test_check_mode_says_it_and_writes_nothing(scene: Scene) -> None:
    record = scene.evacuation()
    disk = {"target": "vda", "path": "/a", "quarantine": True, "reason": "", "only_copy": False}
    kept = {"target": "vdb", "path": "/b", "quarantine": False, "reason": "why", "only_copy": True}
    scene.host.said[WEB] = {"disks": [disk, kept], "managed_save": "/save"}
    outcome = scene.run(check=True)
    assert [file["path"] for file in outcome.cleaned[0]["quarantined"]] == ["/a", "/save"]
    assert [(entry["path"], entry["only_copy"]) for entry in outcome.kept] == [("/b", True)]
    assert (scene.host.phases, scene.status(record)) == (["survey"], ("done", None))
    assert [entry["path"] for entry in scene.run(check=True, storage="keep").kept] == ["/a", "/b"]


def test_one_that_is_refused_keeps_its_record_and_stops_no_other(scene: Scene) -> None:
    other = str(uuid.UUID(int=65))
    records = [scene.evacuation(), scene.evacuation(other)]
    scene.host.said[WEB] = {"kind": "refuse", "reason": "it is nowhere"}
    outcome = scene.run()
    assert [entry["reason"] for entry in outcome.refused] == ["it is nowhere"]
    assert [scene.status(record)[0] for record in records] == ["done", "completed"]


def test_a_failure_on_the_host_keeps_the_record_and_stops_no_other(scene: Scene) -> None:
    other = str(uuid.UUID(int=65))
    records = [scene.evacuation(), scene.evacuation(other)]
    scene.host.cleans[WEB] = Internal("no room left")
    outcome = scene.run()
    assert [entry["reason"] for entry in outcome.refused] == ["no room left"]
    assert [scene.status(record)[0] for record in records] == ["done", "completed"]


def test_a_host_that_is_lost_ends_the_task_with_what_was_done(scene: Scene) -> None:
    other = str(uuid.UUID(int=65))
    records = [scene.evacuation(), scene.evacuation(other)]
    scene.host.cleans[other] = Unreachable("gone")
    with pytest.raises(Unreachable) as caught:
        scene.run()
    assert [entry["uuid"] for entry in caught.value.result["cleaned"]] == [WEB]
    assert [scene.status(record)[0] for record in records] == ["completed", "done"]


def test_an_alarm_stops_before_anything_is_touched(scene: Scene) -> None:
    records = [scene.evacuation(), scene.evacuation(str(uuid.UUID(int=65)))]
    scene.host.said[str(uuid.UUID(int=65))] = {"kind": "alarm", "reason": "it is active on this host"}
    with pytest.raises(Unsafe, match="active on this host"):
        scene.run(storage="delete")
    assert scene.host.phases == ["survey"]
    assert [scene.status(record)[0] for record in records] == ["done", "done"]


def test_one_that_starts_between_the_look_and_the_act_is_an_alarm_too(scene: Scene) -> None:
    record = scene.evacuation()
    scene.host.cleans[WEB] = {"kind": "alarm", "reason": "it is active on this host"}
    with pytest.raises(Unsafe) as caught:
        scene.run()
    assert not caught.value.result["changed"]
    assert scene.status(record)[0] == "done"


def test_a_domain_that_is_being_moved_is_left_alone(scene: Scene) -> None:
    record = scene.evacuation()
    scene.ledger.open_record(new_record(s.LIVE_MIGRATION, {"uuid": WEB, "name": "web"}, KVM2, KVM1, {}, BY))
    outcome = scene.run()
    assert "is not settled" in outcome.refused[0]["reason"]
    assert (scene.host.phases, scene.status(record)[0]) == ([], "done")


def test_of_several_tombstones_the_newest_acts_and_the_older_are_superseded(scene: Scene) -> None:
    old = scene.evacuation()
    scene.move(KVM2, KVM1)
    new = scene.evacuation(destination=KVM3)
    outcome = scene.run()
    assert [entry["record"] for entry in scene.host.asked] == [new]
    assert outcome.cleaned[0]["superseded"] == [old]
    assert (scene.status(new), scene.status(old)) == (("completed", None), ("completed", "superseded"))


def test_a_chain_of_evacuations_leaves_one_tombstone_for_each_source(scene: Scene) -> None:
    first = scene.evacuation()
    second = scene.evacuation(source=KVM2, destination=KVM3)
    scene.run()
    assert scene.host.asked[0]["expected"] == [KVM3]
    assert (scene.status(first)[0], scene.status(second)[0]) == ("completed", "done")
    scene.run(here=KVM2)
    assert scene.status(second)[0] == "completed"


@pytest.mark.parametrize("by", ["move", "evacuation"])
def test_the_host_is_told_that_a_domain_came_back(scene: Scene, by: str) -> None:
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
    assert ([entry["record"] for entry in outcome.superseded], outcome.cleaned) == ([record], [])
    assert scene.status(record) == ("completed", "superseded")


def test_a_document_alone_brings_nothing_back(scene: Scene) -> None:
    scene.evacuation()
    scene.put_document(possible_hosts=[KVM1])
    scene.run(check=True)
    assert not scene.host.asked[0]["came_back"]


def test_disks_count_only_as_they_were_saved_of_this_host(scene: Scene) -> None:
    scene.evacuation()
    disks = [{"target": "vda", "path": "/a"}]
    for host, expected in ((KVM1, disks), (KVM2, []), ({}, [])):
        scene.put_document(protected={"host": host, "disks": disks})
        scene.run(check=True)
        assert scene.host.asked[0]["saved"] == expected


def test_disks_that_the_record_keeps_outlast_a_later_protection_elsewhere(scene: Scene) -> None:
    disks = [{"target": "vda", "path": "/a"}]
    scene.evacuation(before={"disks": disks})
    scene.put_document(protected={"host": KVM2, "disks": []})
    scene.run(check=True)
    assert scene.host.asked[0]["saved"] == disks


@pytest.mark.parametrize(("wanted", "defined"), [("running", False), ("paused", False), ("shut off", True), (None, False)])
def test_only_an_evacuation_that_was_not_to_start_it_asks_for_a_definition(scene: Scene, wanted: str | None, defined: bool) -> None:
    scene.evacuation(wanted_state=wanted)
    scene.run(check=True)
    assert scene.host.asked[0]["defined"] is defined


def test_what_a_dead_destination_may_have_got_is_cleaned_and_its_record_failed(scene: Scene) -> None:
    record = scene.evacuation(to=(s.PRE_MIGRATING,))
    stored = scene.ledger.get(record)
    scene.ledger.update(stored, {**stored.record, "superseded_by": str(uuid.UUID(int=70))})
    newer = scene.evacuation(destination=KVM3)
    scene.run(here=KVM2)
    assert (scene.status(record)[0], scene.status(newer)[0]) == ("failed", "done")
    document = scene.ledger.domain(WEB)
    assert document
    assert document.body["possible_hosts"] == [KVM3]


@pytest.mark.parametrize(
    ("storage", "phases"),
    [("delete", ["survey", "quarantined", "expire", "clean"]), ("quarantine", ["survey", "clean"]), ("keep", ["survey", "clean"])],
)
def test_only_delete_deletes_what_is_old_and_before_anything_new_is_put_there(scene: Scene, storage: str, phases: list[str]) -> None:
    old = scene.evacuation(domain=str(uuid.UUID(int=65)), to=(s.PRE_MIGRATING, s.DONE, s.COMPLETED))
    scene.host.put_aside = [old]
    scene.evacuation()
    outcome = scene.run(storage=storage, days=0)
    assert scene.host.phases == phases
    assert [entry["record"] for entry in outcome.deleted] == ([old] if storage == "delete" else [])


def test_what_was_just_put_aside_is_not_deleted_before_its_time(scene: Scene) -> None:
    scene.host.put_aside = [scene.evacuation(to=(s.PRE_MIGRATING, s.DONE, s.COMPLETED))]
    outcome = scene.run(storage="delete")
    assert (scene.host.phases, outcome.deleted, outcome.kept) == (["quarantined"], [], [])


def test_what_no_record_tells_of_is_kept_and_named(scene: Scene) -> None:
    scene.evacuation()
    scene.host.put_aside = [str(uuid.UUID(int=90))]
    outcome = scene.run(storage="delete", days=0)
    assert "expire" not in scene.host.phases
    assert outcome.deleted == []
    assert "has no record" in outcome.kept[0]["reason"]


def test_nothing_is_removed_by_a_tombstone_when_a_host_knows_of_something_newer(scene: Scene) -> None:
    """Defined on kvm2 by the evacuation that the ledger has; the one that brought it back here was lost with an old backup."""
    record = scene.evacuation(wanted_state="shut off")
    newer = scene.lost(KVM2, KVM1, generation=2)
    outcome = scene.run(told=[newer])
    assert scene.host.phases == []
    assert [entry["record"] for entry in outcome.refused] == [record]
    assert "which the ledger does not have: the ledger was set back" in outcome.refused[0]["reason"]
    assert [entry["id"] for entry in outcome.missing_records] == [newer["id"]]
    assert scene.status(record) == ("done", None)


@pytest.mark.parametrize("present", [True, False])
def test_an_evacuation_that_the_ledger_has_lost_is_told_and_not_cleaned(scene: Scene, present: bool) -> None:
    lost = scene.lost(KVM1, KVM2, generation=1)
    scene.host.said[WEB] = {"kind": "alarm", "reason": "it is active on this host"} if present else {"present": False}
    outcome = scene.run(told=[lost])
    assert scene.host.phases == ["survey"]
    assert [(entry["uuid"], entry["record"]) for entry in outcome.refused] == [(WEB, lost["id"])]
    assert ("it is active on this host. kvm2 remembers" in outcome.refused[0]["reason"]) == present
    assert f"settle: {{id: {lost['id']}, status: done}}" in outcome.refused[0]["reason"]
    assert [entry["id"] for entry in outcome.missing_records] == [lost["id"]]
    assert not outcome.as_result()["changed"]
    assert scene.run(here=KVM3, told=[lost]).refused == []


def test_what_a_lost_evacuation_left_here_is_told_until_it_is_gone_whatever_came_after_it(scene: Scene) -> None:
    lost = scene.lost(KVM1, KVM2, generation=1)
    scene.move(KVM2, KVM3)
    outcome = scene.run(told=[lost])
    assert "virsh undefine web; its disks stay" in outcome.refused[0]["reason"]
    assert [entry["id"] for entry in outcome.missing_records] == [lost["id"]]
    scene.host.said[WEB] = {"present": False}
    assert scene.run(told=[lost]).as_result() == {**Outcome().__dict__, "changed": False}


def test_a_domain_that_came_home_after_an_evacuation_that_was_lost_is_no_leftover(scene: Scene) -> None:
    lost = scene.lost(KVM1, KVM2, generation=1)
    scene.move(KVM2, KVM1)
    assert scene.run(told=[lost]).as_result() == {**Outcome().__dict__, "changed": False}
    assert scene.host.phases == []


def test_a_second_run_that_was_faster_leaves_nothing_to_do(scene: Scene) -> None:
    record = scene.evacuation()
    ask = scene.host.phase

    def slow(name: str, work: Body) -> Body:
        answer = ask(name, work)
        if name == "survey":
            scene.lead(scene.ledger.get(record), s.COMPLETED)
        return answer

    scene.host.phase = slow  # type: ignore[method-assign]
    outcome = scene.run()
    assert (outcome.cleaned, outcome.refused) == ([], [])


class Ear(Witness):
    """Hears what is told beside the ledger's own changes."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []

    def tell(self, record: Body, event: str, by: str, detail: str = "") -> None:
        self.heard.append((record["domain"]["uuid"], event, detail))


def test_who_listens_hears_of_each_begin_and_of_each_that_did_not_end_well(scene: Scene) -> None:
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


def test_who_listens_hears_of_an_alarm(scene: Scene) -> None:
    scene.evacuation()
    scene.host.said[WEB] = {"kind": "alarm", "reason": "it is active on this host"}
    scene.ledger.witness = ear = Ear()
    with pytest.raises(Unsafe):
        scene.run()
    assert ear.heard == [(WEB, "cleanup.refused", "it is active on this host")]
