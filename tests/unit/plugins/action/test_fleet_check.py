# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module fleet_check: what hosts are asked, the verdict on the whole fleet, and what the control node keeps of it."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.action.fleet_check import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, TimedOut
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.checked_fleet import read_check
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import Agent
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

Result = dict[str, t.Any]
UNPROTECTED = ["protection"]


class Desk:
    """A control node that knows the facts of three hosts."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.ledger = FileLedger(str(folder / "ledger"))
        self.facts: dict[str, Result] = {name: f.host(name, 8192) for name in ("kvm1", "kvm2", "kvm3")}
        self.answers: dict[str, Result] = {}
        self.silence: dict[str, str] = {}
        self.scheduler: Result = {}
        self.fencing: Result | None = None
        self.failed_peers: dict[str, str] = {}
        self.try_error: KvmfleetError | None = None
        self.uris: dict[str, str] = {}
        self.check_mode = False
        self.phases: list[Result] = []

    def task(self, **args: t.Any) -> Result:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None)
        work = {"answers": self.answers, "silence": self.silence, **args.pop("work", {})}
        action._task.args = {"fleet": list(self.facts), "ignore": UNPROTECTED, "_work": work, **args}
        action.run_phase = self.answer  # type: ignore[method-assign]
        hosts = {
            name: {"inventory_hostname": name, "ansible_facts": {"kvmfleet_host": with_receipt(known)}, "kvmfleet_scheduler": self.scheduler}
            for name, known in self.facts.items()
        }
        for name, uri in self.uris.items():
            hosts[name]["kvmfleet_libvirt_uri"] = uri
        own = {**hosts.pop("kvm1"), "kvmfleet_ledger": self.ledger.name, "kvmfleet_fencing": self.fencing}
        return t.cast(Result, action.run_with_options(task_vars("kvm1", own, hosts)))

    def answer(self, phase: str, work: Result, uri: str, variables: Result) -> Result:
        self.phases.append({"phase": phase, **work})
        if phase == "try" and self.try_error:
            raise self.try_error
        return {"asked": list(work["peers"]), "silent": self.failed_peers} if phase == "try" else {"answers": {"seconds": 1.0, "verdicts": [], "baselines": []}}


@pytest.fixture
def desk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Desk(tmp_path)


def kinds(result: Result) -> list[str]:
    return [finding["kind"] for finding in result["findings"]]


def test_a_fleet_that_can_lose_any_host_is_as_it_should_be(desk: Desk) -> None:
    desk.facts["kvm1"]["domains"] = [f.domain("web1")]
    found = desk.task()
    assert (found["met"], found["changed"], found["sets"]) == (True, False, {"can": 3, "unknown": 0, "cannot": 0})
    assert found["hosts"]["kvm1"] == {"alone": "can", "with_others": "can"}
    assert kinds(found) == ["protection"]
    assert found["lines"][0] == "The fleet can lose any host. 1 finding for a person."
    assert desk.task(ignore=[])["met"] is False
    (guests,) = found["guests"]
    assert (guests["guests"], guests["on"], guests["hosts"], guests["of"]) == (["web1"], ["kvm1"], ["kvm1", "kvm2", "kvm3"], 3)


def test_hosts_of_another_ledger_are_named_with_it(desk: Desk) -> None:
    """Under the wrong ledger, all hosts seem to have never been protected."""
    former = str(uuid.uuid4())
    for name in ("kvm1", "kvm3"):
        desk.facts[name]["ledger_id"] = former
    desk.facts["kvm2"]["ledger_id"] = desk.ledger.ledger_id
    first = desk.task()["findings"][0]
    assert (first["kind"], first["hosts"]) == ("protection", ["kvm1", "kvm3"])
    assert first["msg"].startswith(f"kvm1, kvm3: protected under the ledger {former}, and this task uses {desk.ledger.name} ({desk.ledger.ledger_id}).")


def test_hosts_that_can_be_lost_alone_and_not_together_are_named_with_their_guests(desk: Desk) -> None:
    for name in ("kvm1", "kvm2"):
        desk.facts[name]["domains"] = [f.domain(f"web-{name}", 6000)]
    assert desk.task()["met"]
    found = desk.task(hosts_lost=2)
    assert not found["met"]
    assert found["hosts"] == {
        "kvm1": {"alone": "can", "with_others": "cannot"},
        "kvm2": {"alone": "can", "with_others": "cannot"},
        "kvm3": {"alone": "can", "with_others": "cannot"},
    }
    assert found["losses"][0]["hosts"] == ["kvm1", "kvm2"]
    assert found["losses"][0]["guests"][0]["refused"][0]["filters"] == ["memory"]
    assert any("MiB are needed" in line for line in found["lines"])
    assert "capacity" in kinds(found)
    assert desk.task(hosts_lost=2, ignore=["protection", "capacity", "reach"])["met"]


def test_a_guest_that_only_its_own_host_can_run_is_found(desk: Desk) -> None:
    desk.facts["kvm1"]["domains"] = [f.domain("db1", networks=[{"type": "bridge", "source": "br20"}])]
    desk.facts["kvm1"]["bridges"] = ["br0", "br20"]
    found = desk.task()
    assert {"reach", "capacity", "network"} <= set(kinds(found))
    (guests,) = found["guests"]
    assert guests["hosts"] == ["kvm1"]
    assert (guests["refused"][0]["hosts"], guests["refused"][0]["filters"]) == (["kvm2", "kvm3"], ["networks"])


def test_a_silent_host_is_unknown_and_one_that_is_empty_in_maintenance_is_not(desk: Desk) -> None:
    desk.silence["kvm3"] = "Connection refused."
    found = desk.task()
    assert (found["met"], found["hosts"]["kvm3"]["alone"], found["hosts"]["kvm1"]["alone"]) == (False, "unknown", "can")
    assert "silent" in kinds(found)
    desk.ledger.put_host(host_entry({"name": "kvm3", "host_key": f.uuid_of("ID"), "host_id": f.uuid_of("ID"), "state": "maintenance"}), None)
    found = desk.task()
    assert (found["met"], found["hosts"]["kvm3"]["alone"]) == (True, "can")


def test_a_host_with_two_names_is_one_host(desk: Desk) -> None:
    desk.facts = {"kvm1": desk.facts["kvm1"], "alias": dict(desk.facts["kvm1"])}
    desk.facts["kvm1"]["domains"] = desk.facts["alias"]["domains"] = [f.domain("web1")]
    desk.ledger.put_host(host_entry({"name": "kvm1", "host_key": f.uuid_of("ID"), "host_id": f.uuid_of("ID"), "state": "enabled"}), None)
    for fleet in (["kvm1", "alias"], ["alias", "kvm1"]):
        found = desk.task(fleet=fleet)
        assert (found["met"], found["hosts"]["kvm1"]["alone"], found["hosts"]["alias"]["alone"]) == (False, "cannot", "unknown")
        (guests,) = found["guests"]
        assert (guests["guests"], guests["of"]) == (["web1"], 1)
        assert any("alias did not answer: The host at its address is kvm1, by its ID or libvirt's UUID" in finding["msg"] for finding in found["findings"])


def test_two_hosts_whose_boards_have_one_uuid_are_two_hosts(desk: Desk) -> None:
    for name in ("kvm1", "kvm2"):
        desk.facts[name] |= {"host_uuid": f.uuid_of("board"), "host_id": f.uuid_of(f"ID {name}")}
    assert [finding["msg"] for finding in desk.task()["findings"] if finding["kind"] == "silent"] == []


def test_a_host_that_only_the_ledger_has_is_found_because_it_holds_up_every_evacuation(desk: Desk) -> None:
    body = {"name": "kvm9", "host_key": f.uuid_of("kvm9"), "host_id": f.uuid_of("kvm9"), "state": "fenced"}
    kvm9 = desk.ledger.put_host(host_entry(body), None)
    for args in ({}, {"lost": ["kvm1"]}):
        found = desk.task(**args)
        (finding,) = [one for one in found["findings"] if one["kind"] == "silent"]
        assert (found["met"], finding["hosts"]) == (False, ["kvm9"])
        assert finding["msg"].startswith(
            "kvm9 is in the ledger, but not in the inventory: no guest of another host is started elsewhere before it has answered"
        )
    discarded = {"at": "2026-11-23T18:00:00.000Z", "by": "ann@control", "reason": "Burnt out"}
    desk.ledger.put_host(host_entry({**kvm9.body, "discarded": discarded}), kvm9.version)
    assert "silent" not in kinds(desk.task())


def test_a_host_whose_document_is_damaged_holds_up_every_evacuation_unless_it_answers(desk: Desk) -> None:
    keys = {name: f.uuid_of(name) for name in ("kvm1", "other")}
    desk.facts["kvm1"]["host_id"], other = keys["kvm1"], keys["other"]
    for name, key in keys.items():
        desk.ledger.put_host(host_entry({"name": name, "host_key": key, "host_id": key, "state": "enabled"}), None)
    for key in keys.values():
        pathlib.Path(desk.ledger.path, "hosts", f"{key}.json").write_text("torn")
    (finding,) = [one for one in desk.task()["findings"] if one["kind"] == "silent"]
    assert finding["hosts"] == [other]
    assert "No host that answers has this ID" in finding["msg"]


def test_a_guest_without_readable_requirements_makes_its_host_unknown(desk: Desk) -> None:
    desk.facts["kvm1"]["domains"] = [{**f.domain("web1"), "request": {"memory_mib": 0}}]
    found = desk.task()
    assert found["hosts"]["kvm1"]["alone"] == "unknown"
    assert "what web1 needs is not known" in found["losses"][0]["reason"]


def test_hosts_are_asked_about_the_cpus_of_all_guests_and_one_about_all_hosts(desk: Desk) -> None:
    for name in desk.facts:
        desk.facts[name]["domains"] = [f.domain(f"web-{name}")]
        desk.facts[name]["platforms"][0]["cpu"]["description"] = f"<cpu>{name}</cpu>"
    desk.facts["kvm2"]["versions"]["libvirt"] = 8000000
    asked = desk.task(work={"step": "ask"})
    (cpu,) = asked["cpus"]
    assert (cpu["arch"], cpu["virt_type"], cpu["machine"]) == ("x86_64", "kvm", f.MACHINE)
    ((host, (question,)),) = asked["baselines"].items()
    assert (host, question["cpus"], question["guests"]) == ("kvm2", [f"<cpu>kvm{number}</cpu>" for number in (1, 2, 3)], [cpu["xml"]])


def test_what_libvirt_says_of_cpus_counts(desk: Desk) -> None:
    desk.facts["kvm1"]["domains"] = [f.domain("web1")]
    for facts in desk.facts.values():
        facts["platforms"][0]["cpu"]["description"] = "<cpu/>"
    refused = {"passed": False, "reason": "its CPU lacks avx2"}
    common = {"model": "IvyBridge", "xml": "<cpu>IvyBridge</cpu>", "features": ["aes"], "disabled": []}
    baseline = {"arch": "x86_64", "virt_type": "kvm", "common": common, "problem": None, "guests": [["aes", "avx2"]]}
    for name in desk.facts:
        verdict = None if name == "kvm1" else refused
        answers = {"seconds": 1.0, "verdicts": [verdict], "baselines": [baseline] if name == "kvm1" else []}
        desk.answers[name] = {"answers": answers, "clock": {"least": 0.0, "most": 1.0}}
    found = desk.task()
    assert found["hosts"]["kvm1"]["alone"] == "cannot"
    assert found["guests"][0]["refused"][0]["filters"] == ["cpu_model"]
    (cpu,) = found["cpus"]
    assert (cpu["model"], cpu["hosts"], cpu["computed_by"]) == ("IvyBridge", ["kvm1", "kvm2", "kvm3"], "kvm1")
    assert cpu["exceeded_by"] == [{"guests": ["web1"], "features": ["avx2"]}]
    assert "cpu" in kinds(found)


def test_a_clock_that_is_wrong_is_found(desk: Desk) -> None:
    for name, offset in {"kvm1": 0.0, "kvm2": 30.0}.items():
        desk.answers[name] = {"answers": {"seconds": 1.0, "verdicts": [], "baselines": []}, "clock": {"least": offset, "most": offset + 1}}
    assert "clock" in kinds(desk.task())
    assert "clock" not in kinds(desk.task(max_clock_skew_seconds=60))


def test_one_host_answers_with_its_clock(desk: Desk) -> None:
    seen = desk.task(work={"step": "answer", "questions": {"cpus": [], "baselines": []}})
    assert desk.phases == [{"phase": "answer", "questions": {"cpus": [], "baselines": []}}]
    assert seen["clock"]["least"] <= seen["clock"]["most"] < 0
    assert seen["fencing"] == []


def test_a_host_that_others_cannot_ask_is_found_before_an_evacuation_needs_its_answer(desk: Desk) -> None:
    """Its certificate has expired, or it was installed anew and its SSH host key is not that which the others know. The control node is not concerned."""
    peers = desk.task(work={"step": "ask"})["peers"]
    assert {host: list(uris) for host, uris in peers.items()} == {"kvm1": ["kvm2", "kvm3"], "kvm2": ["kvm3", "kvm1"], "kvm3": ["kvm1", "kvm2"]}
    desk.failed_peers = {"kvm3": "The certificate has expired."}
    seen = desk.task(work={"step": "answer", "questions": {"cpus": [], "baselines": []}, "peers": peers["kvm1"]})
    assert desk.phases[-1] == {"phase": "try", "peers": {name: f"qemu+ssh://{name}/system?no_tty=1" for name in ("kvm2", "kvm3")}}
    desk.answers = {"kvm1": seen, "kvm2": {**seen, "failed_peers": {"kvm3": "Login refused."}}, "kvm3": {**seen, "failed_peers": {}}}
    found = desk.task()
    (finding,) = [one for one in found["findings"] if one["kind"] == "silent"]
    assert (found["met"], finding["hosts"]) == (False, ["kvm3", "kvm1", "kvm2"])
    assert finding["msg"].startswith("kvm1, kvm2 cannot ask libvirt on kvm3. kvm1: The certificate has expired. Moves between them fail,")


def test_a_host_that_can_ask_no_other_one_is_one_finding(desk: Desk) -> None:
    """Its own certificate is wrong. The hosts that it tries are not: others can ask them."""
    seen: Result = {"answers": {"seconds": 1.0, "verdicts": [], "baselines": []}, "failed_peers": {}}
    broken = dict.fromkeys(("kvm2", "kvm3"), "Its certificate has expired.")
    desk.answers = {
        "kvm1": {**seen, "asked_peers": ["kvm2", "kvm3"], "failed_peers": broken},
        "kvm2": {**seen, "asked_peers": ["kvm3", "kvm1"]},
        "kvm3": {**seen, "asked_peers": ["kvm1", "kvm2"]},
    }
    (finding,) = [one for one in desk.task()["findings"] if one["kind"] == "silent"]
    assert finding["hosts"] == ["kvm1"]
    assert finding["msg"].startswith("kvm1 cannot ask libvirt on any host that it has tried (kvm2, kvm3), and others can. kvm2: Its certificate has expired.")
    # Two hosts that nobody can ask are wrong themselves.
    desk.answers["kvm2"] |= {"failed_peers": {"kvm3": "Login refused."}}
    desk.answers["kvm3"] |= {"failed_peers": {"kvm2": "Login refused."}}
    assert [one["hosts"] for one in desk.task()["findings"] if one["kind"] == "silent"] == [["kvm2", "kvm1", "kvm3"], ["kvm3", "kvm1", "kvm2"]]


def test_a_host_that_fails_to_ask_others_keeps_its_other_answers(desk: Desk) -> None:
    peers = desk.task(work={"step": "ask"})["peers"]
    desk.try_error = TimedOut("The module did not end within 60 s.")
    seen = desk.task(work={"step": "answer", "questions": {"cpus": [], "baselines": []}, "peers": peers["kvm1"]})
    assert (seen["answers"]["seconds"], seen["fencing"]) == (1.0, [])
    others = {"answers": seen["answers"], "failed_peers": {}}
    desk.answers = {"kvm1": seen, "kvm2": {**others, "asked_peers": ["kvm3", "kvm1"]}, "kvm3": {**others, "asked_peers": ["kvm1", "kvm2"]}}
    (finding,) = [one for one in desk.task()["findings"] if one["kind"] == "silent"]
    assert finding["msg"].startswith("kvm1 cannot ask libvirt on any host that it has tried (kvm2, kvm3), and others can. kvm2: The module did not end")


def test_an_invalid_uri_of_one_host_is_a_finding_about_it(desk: Desk) -> None:
    desk.uris = {"kvm3": "kvm3.example.org"}
    asked = desk.task(work={"step": "ask"})
    assert {host: list(uris) for host, uris in asked["peers"].items()} == {"kvm1": ["kvm2"], "kvm2": ["kvm1"], "kvm3": ["kvm1", "kvm2"]}
    for host in desk.facts:
        known = {name: asked[name][host] for name in ("peers", "peers_without_uri")}
        desk.answers[host] = desk.task(work={"step": "answer", "questions": {"cpus": [], "baselines": []}, **known})
    (finding,) = [one for one in desk.task()["findings"] if one["kind"] == "silent"]
    assert finding["hosts"] == ["kvm3", "kvm1", "kvm2"]
    assert finding["msg"].startswith("kvm1, kvm2 cannot ask libvirt on kvm3. kvm1: kvmfleet_libvirt_uri of kvm3")


def test_each_host_of_a_large_fleet_tries_some_others_and_is_tried_by_as_many(desk: Desk) -> None:
    names = [f"kvm{number:02}" for number in range(1, 21)]
    desk.facts = {"kvm1": desk.facts["kvm1"], **{name: f.host(name, 8192) for name in names}}
    peers = desk.task(work={"step": "ask"})["peers"]
    assert {len(uris) for uris in peers.values()} == {16}
    assert {sum(name in uris for uris in peers.values()) for name in desk.facts} == {16}


def test_a_host_that_reports_its_facts_and_does_not_answer_then_is_found(desk: Desk) -> None:
    answer = {"answers": {"seconds": 1.0, "verdicts": [], "baselines": []}, "clock": {"least": 0.0, "most": 1.0}}
    desk.answers = {"kvm1": answer, "kvm2": {"failed": False, "msg": "Timed out after 300 seconds."}, "kvm3": {"skipped": True}}
    desk.silence["kvm3"] = "Connection refused."
    for args in ({}, {"lost": ["kvm1"]}):
        found = desk.task(**args)
        said = {host: one["msg"] for one in found["findings"] if one["kind"] == "silent" for host in one["hosts"]}
        assert (found["met"], sorted(said)) == (False, ["kvm2", "kvm3"])
        assert said["kvm2"].startswith("kvm2 has reported its facts, and did not answer then: Timed out after 300 seconds. Its clock,")


def test_fence_devices_are_asked_on_the_control_node_and_what_is_wrong_with_them_counts(desk: Desk, tmp_path: pathlib.Path) -> None:
    desk.fencing = Agent(tmp_path, power="off").entry()
    desk.answers["kvm1"] = desk.task(work={"step": "answer", "questions": {"cpus": [], "baselines": []}})
    found = desk.task()
    assert (found["met"], kinds(found)) == (False, ["protection", "fencing"])
    assert desk.task(ignore=["protection", "fencing"])["met"]


def test_protected_images_count_and_so_does_the_age_of_the_protection(desk: Desk) -> None:
    ids = {name: f.uuid_of(f"ID {name}") for name in desk.facts}
    for name, facts in desk.facts.items():
        facts["host_id"] = ids[name]
        entry = {"name": name, "host_key": ids[name], "host_id": ids[name], "host_uuid": facts["host_uuid"], "state": "enabled"}
        desk.ledger.put_host(host_entry({**entry, "protected": {"at": "2020-01-01T00:00:00Z"}}), None)
    disk = f.disk("vda", shared=False)
    desk.facts["kvm1"]["domains"] = [f.domain("web1", disks=[disk])]
    assert desk.task()["hosts"]["kvm1"]["alone"] == "cannot"
    seen = {"target": "vda", "kind": "file", "path": disk["source"], "readonly": False, "optional": False, "folders": [], "seen_by": [ids["kvm1"], ids["kvm2"]]}
    protected = {"at": "2020-01-01T00:00:00Z", "host": {"host": "kvm1", "host_id": ids["kvm1"]}, "disks": [seen], "files": [], "definition": "<domain/>"}
    desk.ledger.put_domain(domain_entry({"uuid": f.uuid_of("web1"), "name": "web1", "possible_hosts": [], "protected": protected}), None)
    found = desk.task(ignore=[])
    assert found["hosts"]["kvm1"]["alone"] == "can"
    assert (found["met"], kinds(found)) == (False, ["protection"])


def protect_without_variables(desk: Desk) -> str:
    """Protect a guest whose image every host sees, and whose firmware variables only its own; return their path."""
    ids = {name: f.uuid_of(f"ID {name}") for name in desk.facts}
    for name, facts in desk.facts.items():
        facts["host_id"] = ids[name]
    path, disk = "/var/lib/libvirt/qemu/nvram/web1_VARS.fd", f.disk("vda")
    desk.facts["kvm1"]["domains"] = [f.domain("web1", disks=[disk], nvram=path)]
    seen = {"target": "vda", "kind": "file", "path": disk["source"], "readonly": False, "optional": False, "folders": [], "seen_by": list(ids.values())}
    variables = {"what": "nvram", "kind": "file", "path": path, "folders": ["/var/lib/libvirt/qemu/nvram"], "seen_by": [ids["kvm1"]]}
    protected = {
        "at": "2020-01-01T00:00:00Z",
        "host": {"host": "kvm1", "host_id": ids["kvm1"]},
        "disks": [seen],
        "files": [variables],
        "definition": "<domain/>",
    }
    desk.ledger.put_domain(domain_entry({"uuid": f.uuid_of("web1"), "name": "web1", "possible_hosts": [], "protected": protected}), None)
    return path


def test_a_guest_that_may_start_with_fresh_firmware_variables_is_not_lost_with_its_host(desk: Desk) -> None:
    path = protect_without_variables(desk)
    lost = desk.task()
    assert lost["hosts"]["kvm1"]["alone"] == "cannot"
    assert (
        f"Its access to firmware variables {path} of web1 was not proved by protect: "
        "keep them on shared storage, or let the guest start with fresh ones (evacuate_host_accept_fresh)"
    ) in "".join(lost["lines"])
    assert desk.task(accept_fresh=["tpm"])["hosts"]["kvm1"]["alone"] == "cannot"
    assert desk.task(accept_fresh=["nvram"])["hosts"]["kvm1"]["alone"] == "can"


def test_where_a_guest_on_storage_of_its_host_can_run_does_not_contradict_that_it_is_lost_with_it(desk: Desk) -> None:
    desk.facts["kvm1"]["domains"] = [f.domain("big", disks=[f.disk("vda", shared=False)])]
    found = desk.task()
    assert found["hosts"]["kvm1"]["alone"] == "cannot"
    image = "/var/lib/libvirt/images/vda.qcow2 of disk vda"
    why = f"The image {image} is on storage of kvm1 alone, and moves only with copy_storage or unsafe"
    assert f"  big: 3 of 3 hosts. Not certain on kvm2, kvm3: {why}" in found["lines"]


def test_the_result_is_kept_for_this_ledger_unless_in_check_mode(desk: Desk) -> None:
    desk.check_mode = True
    desk.task()
    assert read_check(desk.ledger.ledger_id) is None
    desk.check_mode = False
    found = desk.task()
    kept = read_check(desk.ledger.ledger_id)
    assert kept is not None
    assert (kept.at, kept.met, kept.sets, kept.findings) == (found["at"], True, {"can": 3, "unknown": 0, "cannot": 0}, {"protection": 1})
    assert read_check("another") is None


def test_a_check_of_a_part_of_the_fleet_does_not_replace_that_of_the_whole(desk: Desk) -> None:
    whole = desk.task()
    part = desk.task(fleet=["kvm1", "kvm2"])
    assert list(part["hosts"]) == ["kvm1", "kvm2"]
    kept = read_check(desk.ledger.ledger_id)
    assert kept is not None
    assert (kept.at, list(kept.hosts)) == (whole["at"], ["kvm1", "kvm2", "kvm3"])


def test_a_check_that_cannot_be_kept_is_a_warning(desk: Desk, tmp_path: pathlib.Path) -> None:
    (tmp_path / "state").write_text("in the way", encoding="utf-8")
    assert "Status, report and metrics do not show it." in desk.task()["warnings"][0]


@pytest.mark.parametrize("text", ["", "{}", "[]", json.dumps({"schema": 99})])
def test_a_damaged_check_is_none(desk: Desk, tmp_path: pathlib.Path, text: str) -> None:
    desk.task()
    (file,) = (tmp_path / "state/kvmfleet/fleet-check").iterdir()
    file.write_text(text, encoding="utf-8")
    assert read_check(desk.ledger.ledger_id) is None


def test_only_sets_with_certain_hosts_are_judged_and_their_guests_are_named(desk: Desk) -> None:
    for name in ("kvm1", "kvm2"):
        desk.facts[name]["domains"] = [f.domain(f"web-{name}", 6000)]
    desk.facts["kvm2"] = f.host("kvm2", 16384, domains=desk.facts["kvm2"]["domains"])
    desk.facts["kvm3"]["bridges"] = ["br0", "br20"]
    alone = desk.task(lost=["kvm1"], ignore=[])
    assert (alone["met"], alone["lost"], alone["sets"], alone["guests"]) == (True, ["kvm1"], {"can": 1, "unknown": 0, "cannot": 0}, [])
    assert alone["lines"][0] == "The fleet can lose kvm1. Nothing needs a person."
    found = desk.task(lost=["kvm1"], hosts_lost=2, ignore=[])
    assert (found["met"], kinds(found), found["sets"]) == (False, ["capacity"], {"can": 1, "unknown": 0, "cannot": 1})
    (loss,) = found["losses"]
    (guest,) = loss["guests"]
    assert (loss["hosts"], loss["verdict"], guest["name"] in ("web-kvm1", "web-kvm2")) == (["kvm1", "kvm2"], "cannot", True)
    assert found["lines"][0].startswith("Not every other host can be lost together with kvm1.")
    assert found["findings"][0]["msg"].startswith("1 of 2 sets of 2 hosts cannot be lost. The worst is kvm1 and kvm2:")
    assert any(f"{guest['name']} of {guest['host']}, 6000 MiB: kvm3:" in line for line in found["lines"])
    # It is not a check of the fleet.
    assert read_check(desk.ledger.ledger_id) is None


def test_a_fleet_that_cannot_lose_every_host_is_not_said_to_lose_none(desk: Desk) -> None:
    hosts = sorted(desk.facts)
    desk.facts["kvm1"]["domains"] = [f.domain("web1", 10**6)]
    (first, finding) = (desk.task(ignore=[])["lines"][0], desk.task(ignore=[])["findings"][0]["msg"])
    assert first.startswith("Not every host can be lost.")
    assert finding.startswith(f"1 of {len(hosts)} hosts cannot be lost. The worst is kvm1:")
    for host in hosts:
        desk.facts[host]["domains"] = [f.domain(f"web-{host}", 10**6)]
    none = desk.task(ignore=[])
    assert none["findings"][0]["msg"].startswith(f"None of {len(hosts)} hosts can be lost.")
    assert desk.task(hosts_lost=2, ignore=[])["lines"][0].startswith("Not every set of 2 hosts can be lost.")
    assert desk.task(lost=["kvm1"], ignore=[])["lines"][0].startswith("kvm1 cannot be lost. ")
    assert desk.task(lost=["kvm1", "kvm2"], hosts_lost=2, ignore=[])["lines"][0].startswith("kvm1 and kvm2 cannot be lost together. ")


def test_every_guest_without_a_place_is_named_for_hosts_that_are_named(desk: Desk) -> None:
    desk.facts["kvm1"]["domains"] = [f.domain(f"web{number}", 64, disks=[f.disk("vda", shared=False)]) for number in range(60)]
    (loss,) = desk.task(lost=["kvm1"])["losses"]
    assert sorted(guest["name"] for guest in loss["guests"]) == sorted(f"web{number}" for number in range(60))
    assert len(desk.task()["losses"][0]["guests"]) == 50


def test_a_host_that_is_lost_and_did_not_answer_is_unknown(desk: Desk) -> None:
    desk.silence["kvm3"] = "Connection refused."
    assert desk.task(lost=["kvm1"])["sets"] == {"can": 1, "unknown": 0, "cannot": 0}
    found = desk.task(lost=["kvm1"], hosts_lost=2)
    assert found["sets"] == {"can": 1, "unknown": 1, "cannot": 0}
    assert "kvm3: it did not answer" in found["losses"][0]["reason"]


def test_the_reserve_for_failover_is_the_default_number_of_lost_hosts(desk: Desk) -> None:
    assert desk.task()["hosts_lost"] == 1
    desk.scheduler = {"failover_hosts": 2}
    assert desk.task()["hosts_lost"] == 2
    assert desk.task(hosts_lost=1)["hosts_lost"] == 1
    desk.scheduler = {"failover_hosts": 3}
    with pytest.raises(InvalidArgument, match="failover_hosts is 3, and the fleet has 3 hosts"):
        desk.task()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lost": ["kvm1", "kvm2"]}, "hosts_lost is 1"),
        ({"lost": ["kvm1"], "hosts_lost": 6}, "hosts_lost is 6"),
        ({"lost": ["kvm9"]}, "lost has kvm9"),
        ({"lost": ["kvm1"], "hosts_lost": 3}, "The fleet has 3 hosts"),
        ({"hosts_lost": 0}, "hosts_lost is 0"),
        ({"hosts_lost": 5}, "hosts_lost is 5"),
        ({"hosts_lost": 3}, "The fleet has 3 hosts"),
        ({"protect_max_hours": 0}, "protect_max_hours is 0"),
        ({"max_clock_skew_seconds": 0}, "max_clock_skew_seconds is 0"),
        ({"ignore": ["everything"]}, "everything"),
    ],
)
def test_invalid_options_are_refused(desk: Desk, options: Result, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        desk.task(**options)
