# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module evacuate_plan: each of its steps, on three hosts of which the first one is dead."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import socket
import threading
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import evacuate_plan
from ansible_collections.kvmfleet.migration.plugins.action.evacuate_plan import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotSupported, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseFleet
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import action as common
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import evacuation
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evacuation import Evacuation
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evidence import SILENCE_FRESH_SECONDS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fleet_answers import SourceAnswers
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.plan import RECENT_SECONDS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import LeaseReading, SeenLease
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Site, host_id

Body = dict[str, t.Any]
TASKS = {"host": "kvm1", "action": "off", "status": "off"}
PLAY = ["kvm2", "kvm3"]


class FakeProbe:
    """The attempt to connect to the dead host as Ansible does."""

    def __init__(self, site: Site, host: str) -> None:
        self._site = site
        site.connected.append(host)

    def __enter__(self) -> FakeProbe:
        return self

    def __exit__(self, *dummy: object) -> None:
        pass

    def require_silence(self) -> None:
        if self._site.answers_ansible:
            raise Unsafe("It answers Ansible.")


class Node:
    """The control node of a site; its tasks run on kvm2."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.check_mode = False
        self.strategy = "linear"
        self.no_log = False

    def task(self, step: str, work: Body | None = None, **args: t.Any) -> Body:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        play = types.SimpleNamespace(strategy=self.strategy)
        action._task = types.SimpleNamespace(async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None, no_log=self.no_log, get_play=lambda: play)
        given = {"fence_tasks": "", "play": PLAY, **(work or {})}
        action._task.args = {"source": "kvm1", "step": step, "lock_wait_seconds": 0, "_work": given, **args}
        action._execute_module = self._run  # type: ignore[method-assign]
        hosts = {name: dict(self.site.settings()._hostvars[name]) for name in self.site.listed}
        done: Body = action.run_with_options(task_vars("kvm2", {**hosts.pop("kvm2"), "kvmfleet_ledger": str(self.site.ledger.name)}, hosts))
        if "domains" in done:
            check_document("evacuation-plan.json", done, is_strict=False)
        return done

    def _run(self, module_name: str, module_args: Body, task_vars: Body) -> Body:
        work = module_args["_work"]
        return self.site.phase("kvm2", work["phase"], work)


def power(site: Site) -> str:
    return site.agents["kvm1"].file("power").read_text().strip()


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def node(site: Site, monkeypatch: pytest.MonkeyPatch) -> Node:
    return make_node(site, monkeypatch)


def make_node(site: Site, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Return a control node whose knocks the site answers, and whose text is printed."""

    def evacuation(*args: t.Any) -> Evacuation:
        run = Evacuation(*args)
        run.proofs.try_connection = site.knock
        return run

    monkeypatch.setattr(common, "Evacuation", evacuation)
    facts = {"changed": False, "ansible_facts": {"kvmfleet_host": site.facts("kvm2")}}
    monkeypatch.setattr(evacuate_plan.FleetAction, "_execute_module", lambda action, module_name, **given: facts)
    monkeypatch.setattr(ActionModule, "make_probe", lambda action, host, variables: FakeProbe(site, host))
    monkeypatch.setattr(evacuate_plan, "Display", lambda: types.SimpleNamespace(display=print))
    return Node(site)


def test_the_check_step_asks_no_host(node: Node, site: Site) -> None:
    assert node.task("check") == {"changed": False, "assess_first": False, "_check_mode": False}
    assert node.task("check", {"fence_tasks": "fence.yml"})["assess_first"]
    with pytest.raises(InvalidArgument, match="one of the hosts of the play"):
        node.task("check", source="kvm3")
    assert site.phases == []


@pytest.mark.parametrize("strategy", ["free", "ansible.builtin.free", "host_pinned", "mitogen_free"])
def test_strategies_that_do_not_keep_hosts_together_are_refused(node: Node, strategy: str) -> None:
    node.strategy = strategy
    for step in ("check", "survivors", "assess", "prove", "plan"):
        with pytest.raises(NotSupported, match="Nothing was started"):
            node.task(step)


def test_survivors_are_those_that_answered(node: Node) -> None:
    answered = {"ansible_facts": {"kvmfleet_host": {}}}
    assert node.task("survivors", {"asked": {"kvm2": answered, "kvm3": {"unreachable": True}}})["survivors"] == ["kvm2"]


def test_a_survivor_without_root_is_warned_of_and_stands_in_the_plan(node: Node, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.agent()
    web = site.save("web")
    site.without_root = {"kvm3"}
    found = node.task("survivors", {"asked": {name: {"ansible_facts": {"kvmfleet_host": {}}} for name in PLAY}})
    assert (found["survivors"], found["excluded"]) == (["kvm2"], {"kvm3": "the user is not root there, and only root can start domains"})
    assert found["warnings"] == [
        (
            "kvm3 starts no domain of kvm1: the user is not root there, and only root can start domains. "
            "Set become: true for kvm3, or connect to it as root, and run this again."
        )
    ]
    proved = node.task("prove")
    given: Body = {"fencing": proved["evidence"], "since": proved["since"], "survivors": found["survivors"]}
    done = node.task("plan", {"excluded": found["excluded"]}, **given)
    assert (done["shares"], done["excluded"]) == ({"kvm2": [web]}, found["excluded"])
    assert "kvm3 starts no domain: the user is not root there, and only root can start domains" in capsys.readouterr().out
    assert "excluded" not in node.task("plan", **given)


def test_a_destination_without_root_is_refused_before_the_host_is_fenced(node: Node, site: Site) -> None:
    site.agent(power="on")
    site.save("web")
    done = node.task("prove", {"excluded": {"kvm3": "the user is not root there"}}, destination="kvm3", survivors=["kvm2"])
    assert ([one["reason"] for one in done["refused"]], done["domains"], power(site)) == (
        ["The destination kvm3 cannot start domains: the user is not root there. Domain web was not started. Set become: true for kvm3, or name another host."],
        [],
        "on",
    )


def test_the_assess_step_fences_no_host(node: Node, site: Site) -> None:
    site.agent()
    site.save("web")
    done = node.task("assess")
    assert ([one["name"] for one in done["domains"]], done["changed"]) == (["web"], False)
    assert done["source"]["host"] == "kvm1"
    assert site.agents["kvm1"].asked() == []
    assert "evidence" not in done


def test_a_detection_that_cannot_be_true_is_a_warning_and_does_not_stop_the_evacuation(node: Node, site: Site) -> None:
    site.save("web")
    later = {"silent_since": "2999-11-21T03:00:00Z", "detected_at": "2999-11-21T03:00:20Z", "by": "event source"}
    assert node.task("check", detection=later)["assess_first"] is False
    (warning,) = node.task("assess", detection=later)["warnings"]
    assert "silent_since (2999-11-21T03:00:00.000Z) is in the future" in warning
    with pytest.raises(InvalidArgument, match="not a time with a time zone"):
        node.task("check", detection={**later, "detected_at": "yesterday"})


def test_the_fence_agent_proves_and_the_plan_distributes_the_domains(node: Node, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.agent(power="on")
    uuids = [site.save(f"web{number}") for number in range(4)]
    proved = node.task("prove")
    assert (proved["changed"], [one["kind"] for one in proved["evidence"]], len(proved["domains"])) == (True, ["fence_agent"], 4)
    assert power(site) == "off"
    done = node.task("plan", fencing=proved["evidence"], survivors=PLAY, since=proved["since"])
    assert sorted([*done["shares"]["kvm2"], *done["shares"]["kvm3"]]) == sorted(uuids)
    assert (done["uncovered"], done["changed"]) == ([], False)
    assert "kvm2: web" in capsys.readouterr().out
    node.no_log = True
    assert list(node.task("plan", fencing=proved["evidence"], since=proved["since"])["shares"]) == ["kvm2"]
    assert capsys.readouterr().out == ""


def test_an_error_after_the_fencing_says_that_something_was_changed(node: Node, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(on: str, phase: str, work: Body) -> Body:
        if phase == "locks":
            raise Unreachable("kvm2 cannot be reached.")
        return answer(on, phase, work)

    site.agent(power="on")
    site.save("web")
    answer = site.phase
    monkeypatch.setattr(site, "phase", fail)
    with pytest.raises(Unreachable) as caught:
        node.task("prove")
    assert (power(site), caught.value.result["changed"]) == ("off", True)


def test_the_proof_has_the_plan_if_the_facts_are_recent(node: Node, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Facts of half a minute ago are asked again by the role, which is no reason to end."""
    agent = site.agent(power="on")
    web = site.save("web")
    done = node.task("prove", survivors=PLAY)
    assert (done["shares"], done["uncovered"], done["changed"]) == ({"kvm2": [web], "kvm3": []}, [], True)
    assert [one["action"] for one in done["evidence"]] == ["off"]
    assert agent.asked() == ["status", "off", "status"]
    assert "kvm2: web" in capsys.readouterr().out
    site.received_ago = RECENT_SECONDS + 5
    asked_again = node.task("prove", survivors=PLAY)
    assert ("shares" in asked_again, [one["name"] for one in asked_again["domains"]]) == (False, ["web"])
    site.received_ago = 0.0
    planned = node.task("plan", fencing=asked_again["evidence"], survivors=PLAY, since=asked_again["since"])
    assert planned["shares"] == done["shares"]


def test_what_is_asked_while_facts_are_gathered_is_judged_by_the_proof(node: Node, site: Site) -> None:
    agent = site.agent(power="on")
    web = site.save("web")
    found = node.task("query")
    assert (found["ansible_facts"]["kvmfleet_host"]["host_id"], site.phases, site.connected) == (host_id("kvm2"), [("kvm2", "look")], ["kvm1"])
    assert "received" in found["ansible_facts"]["kvmfleet_host"]
    assert (agent.asked(), power(site)) == (["status"], "on")
    round_one = json.loads(json.dumps(found["first_round"]))
    done = node.task("prove", {"first_round": round_one}, survivors=PLAY)
    assert (done["shares"], site.phases, site.connected) == ({"kvm2": [web], "kvm3": []}, [("kvm2", "look"), ("kvm2", "locks")], ["kvm1"])
    assert agent.asked() == ["status", "off", "status"]


@pytest.mark.parametrize("change", ["another question", "another host", "too old", "another boot", "tasks have fenced"])
def test_answers_to_another_question_are_not_used(node: Node, site: Site, change: str) -> None:
    site.agent()
    site.save("web")
    round_one = json.loads(json.dumps(node.task("query")["first_round"]))
    work: Body = {}
    if change == "another question":
        site.save("db")
    elif change == "another host":
        round_one["host"] = "kvm3"
    elif change == "too old":
        round_one["moment"]["seconds"] -= SILENCE_FRESH_SECONDS + 1
    elif change == "another boot":
        round_one["moment"]["boot_id"] = "00000000-0000-4000-8000-000000000000"
    else:
        work = {"fence_tasks": "fence.yml", "evidence": {**TASKS, "at": site.gathered_at}}
    site.phases.clear()
    node.task("prove", {"first_round": round_one, **work}, survivors=PLAY)
    assert ("kvm2", "look") in site.phases


def test_a_source_that_was_repaired_while_the_query_was_suspended_is_not_fenced(node: Node, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control node was suspended between its own question and the answer of the survivor."""
    agent = site.agent(power="on")
    site.save("web")
    slept, found_silent, look = [0.0], threading.Event(), site._look

    def moment() -> BootMoment:
        now = boot_moment()
        now = dataclasses.replace(now, seconds=now.seconds + slept[0])
        if threading.current_thread() is not threading.main_thread():
            found_silent.set()
        return now

    def look_and_sleep(on: str, work: Body) -> Body:
        answer = look(on, work)
        found_silent.wait(10)
        slept[0] = 300.0
        return answer

    monkeypatch.setattr(evacuation, "boot_moment", moment)
    monkeypatch.setattr(site, "_look", look_and_sleep)
    asked = json.loads(json.dumps(node.task("query")["first_round"]))
    site.refuses = True
    with pytest.raises(SourceAnswers, match="A host that answers is never evacuated"):
        node.task("prove", {"first_round": asked}, survivors=PLAY)
    assert (power(site), "off" in agent.asked()) == ("on", False)


def test_a_source_that_answers_is_reported_by_the_proof_and_not_by_the_query(node: Node, site: Site) -> None:
    agent = site.agent(power="on")
    site.save("web")
    site.answers_ansible = True
    found = node.task("query")
    assert "first_round" not in found
    assert found["ansible_facts"]["kvmfleet_host"]["host_id"] == host_id("kvm2")
    with pytest.raises(Unsafe, match="answers Ansible"):
        node.task("prove", survivors=PLAY)
    assert (power(site), "off" in agent.asked()) == ("on", False)


def test_a_source_that_is_back_names_the_evacuations_that_were_begun(node: Node, site: Site) -> None:
    uuid = site.save("web")
    site.save("app")
    stored = site.ledger.open_record(new_record(s.EVACUATION, DomainRef(uuid, "web"), site.place("kvm1"), site.place("kvm2"), {}, "a test"))
    site.ledger.update_record(stored, stored.record.advance(s.PRE_MIGRATING, "a test"))
    site.silent.clear()
    with pytest.raises(Unsafe, match=r"are not settled: web to kvm2.*Nothing was started.*Once kvm1 is back, recover it \(kvmfleet.migration.recover\)"):
        node.task("prove", survivors=PLAY)


def test_only_the_first_host_of_the_play_asks_the_fleet(node: Node, site: Site) -> None:
    site.save("web")
    for play in (["kvm3", "kvm2"], []):
        found = node.task("query", {"play": play})
        assert ("first_round" in found, site.phases, site.connected) == (False, [], [])
        assert "received" in found["ansible_facts"]["kvmfleet_host"]


def test_a_host_that_answers_ansible_is_not_fenced(node: Node, site: Site) -> None:
    agent = site.agent(power="on")
    site.save("web")
    site.answers_ansible = True
    with pytest.raises(Unsafe, match="answers Ansible"):
        node.task("prove", survivors=PLAY)
    with pytest.raises(Unsafe, match="answers Ansible"):
        node.task("assess")
    with pytest.raises(Unsafe, match="answers Ansible"):
        node.task("probe")
    assert (power(site), set(agent.asked())) == ("on", {"status"})
    assert list(site.ledger.list_records()) == []


def test_ansible_connects_to_hosts_of_the_inventory_alone_and_before_the_plan(node: Node, site: Site) -> None:
    site.agent()
    site.save("web")
    proved = node.task("prove")
    assert site.connected == ["kvm1"]
    node.task("plan", fencing=proved["evidence"], since=proved["since"])
    site.listed.remove("kvm1")
    node.task("prove", force_down={"reason": "pulled"})
    assert site.connected == ["kvm1"]


def test_a_host_without_domains_is_not_fenced(node: Node, site: Site) -> None:
    site.agent(power="on")
    assert node.task("prove")["domains"] == []
    assert power(site) == "on"
    assert (node.task("plan")["shares"], node.task("plan")["evidence"]) == ({}, [])


def test_check_mode_fences_no_host(node: Node, site: Site) -> None:
    site.agent(power="on")
    site.save("web")
    node.check_mode = True
    proved = node.task("prove")
    assert (proved["changed"], proved["evidence"], power(site)) == (False, [], "on")
    assert node.task("plan", survivors=PLAY, since=proved["since"])["uncovered"] == []


def test_evidence_of_tasks_is_accepted_and_missing_evidence_is_refused(node: Node, site: Site) -> None:
    site.save("web")
    at = site.gathered_at
    proved = node.task("prove", {"fence_tasks": "fence.yml", "evidence": {**TASKS, "at": at}})
    assert [(one["kind"], one["status"]) for one in proved["evidence"]] == [("tasks", "off")]
    with pytest.raises(Unsafe, match="has set no fact evacuate_host_evidence"):
        node.task("prove", {"fence_tasks": "fence.yml", "evidence": ""})


def test_a_person_who_confirms_in_tasks_is_not_believed_either_while_the_second_network_answers(node: Node, site: Site) -> None:
    """Otherwise the ledger says that the host is fenced before the starts are refused."""
    site.variables["kvm1"] = {"kvmfleet_second_address": "127.0.0.2"}
    evidence = {**TASKS, "kind": "person", "reason": "pulled", "at": site.gathered_at}
    with socket.create_server(("127.0.0.2", site.port)), pytest.raises(Unsafe, match="never evacuated"):
        node.task("prove", {"fence_tasks": "fence.yml", "evidence": evidence})


def test_force_down_is_accepted_as_evidence(node: Node, site: Site) -> None:
    site.save("web")
    assert [one["kind"] for one in node.task("prove", force_down={"reason": "pulled"})["evidence"]] == ["person"]


def test_domains_with_disks_of_the_dead_host_alone_are_lost_until_return(node: Node, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.agent()
    site.save("web")
    site.save("local", seen_by=["kvm1"])
    done = node.task("plan", fencing=node.task("prove")["evidence"], survivors=PLAY)
    assert [one["name"] for one in done["lost_until_return"]] == ["local"]
    assert "local is lost until kvm1 returns: no other host was proved to see disk vda" in capsys.readouterr().out


class RenewingLeases:
    """An etcd in which the dead host renews its lease at each reading, if it C(renews)."""

    def __init__(self, renews: bool) -> None:
        self.renews = renews
        self.revision = 7

    def read_leases(self) -> LeaseReading:
        self.revision += self.renews
        told = (host_id("kvm1"), "kvm1", "boot 1", 1, 1, 15, 0, LeaseFleet("f", 3), "direct", "2026-11-26T20:00:00.000Z", self.revision - 1)
        return LeaseReading(self.revision, {host_id("kvm1"): SeenLease(self.revision, HostLease(*told))})


@pytest.mark.parametrize("renews", [True, False])
def test_a_reaction_refuses_a_host_that_renews_its_lease(node: Node, monkeypatch: pytest.MonkeyPatch, renews: bool) -> None:
    leases = RenewingLeases(renews)
    monkeypatch.setattr(FileLedger, "open_leases", lambda ledger: leases)
    if renews:
        with pytest.raises(Unsafe, match="kvm1 renews its lease in etcd"):
            node.task("probe")
    else:
        assert node.task("probe") == {"changed": False}


def test_a_renewal_after_the_first_round_is_seen_before_the_plan(node: Node, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = RenewingLeases(renews=False)
    monkeypatch.setattr(FileLedger, "open_leases", lambda ledger: leases)
    site.save("web")
    asked = node.task("query", force_down={"reason": "pulled"})["first_round"]
    assert asked["lease_revision"] == 7
    leases.renews = True
    with pytest.raises(Unsafe, match="kvm1 is on, although a test confirmed that it is off"):
        node.task("prove", {"first_round": asked}, force_down={"reason": "pulled", "by": "a test"})


def test_a_host_that_the_ledger_does_not_know_has_no_lease(node: Node, site: Site) -> None:
    site.listed.append("kvm8")
    assert node.task("probe", source="kvm8") == {"changed": False}
