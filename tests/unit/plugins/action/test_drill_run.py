# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module drill_run with maintenance_run, over one ledger and an agent that is a program: from the check to the verdict, and after kills."""

from __future__ import annotations

import pathlib
import types
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import drill_run
from ansible_collections.kvmfleet.migration.plugins.action.drill_run import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.action.test_maintenance_run import Node
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import GOOD, Agent
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry

HOSTS = ["kvm1", "kvm2", "kvm3"]
HOST_IDS = {name: f"11111111-0000-4000-8000-00000000000{number}" for number, name in enumerate(HOSTS, 1)}
GUARD = {"installed": True, "systemd": True, "held_at_boot": True, "held": False, "note": ""}
# A host with its power in a file, which can be switched on as well.
AGENT = GOOD.replace("*) exit 1;;", 'on) echo on > "$0.power";;\n*) exit 1;;')
BOOT = {"boot_id": "boot-1"}


def fleet_check(**keys: t.Any) -> dict[str, t.Any]:
    """What fleet_check returns now for a fleet that can lose kvm3."""
    return {"at": utc_now(), "lost": ["kvm3"], "losses": [], "findings": [], **keys}


class Drills(Node):
    """A control node whose fleet could lose kvm3, which has two guests."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.agent = Agent(folder, AGENT)
        self.ledger = FileLedger(str(self.path))
        for name in HOSTS:
            self.put_host(name)
        fencing = {"agent": str(self.agent.path), "options": {"plug": "kvm3"}, "timeout_seconds": 10}
        self.variables = {
            "kvmfleet_fencing": fencing,
            "ansible_facts": {"kvmfleet_host": with_receipt(f.host("kvm3", domains=[f.domain("web"), f.domain("app")]))},
        }

    def put_host(self, name: str, **keys: t.Any) -> None:
        body = {"name": name, "host_id": HOST_IDS[name], "host_key": HOST_IDS[name], "protected": {"at": utc_now(), "guard": GUARD}, **keys}
        before = self.ledger.find_host(name=name)
        self.ledger.put_host(host_entry(body), before.version if before else None)

    def drill(self, step: str, **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        given = {"step": step, "host": "kvm3", **args}
        action._task = types.SimpleNamespace(args=given, async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None)
        return action.run_with_options(task_vars("kvm3", {"kvmfleet_ledger": str(self.path), **self.variables}))

    def check(self, accept_unguarded: bool = False, **loss: t.Any) -> dict[str, t.Any]:
        return self.drill("check", fleet=HOSTS, accept_unguarded=accept_unguarded, _work={"check": fleet_check(**loss)})

    def cut(self, boot_id: str = "boot-1", **check: t.Any) -> dict[str, t.Any]:
        return self.drill("cut", fleet=HOSTS, _work={"boot_id": boot_id, "check": fleet_check(**check)})

    def begin(self, step: str = "cut") -> None:
        self.task("started", hosts=["kvm3"], drill={"guests": self.check()["guests"]})
        self.task("next", hosts=["kvm3"])
        for one in ("check", "cut", "evacuate", "switch_on", "recover"):
            self.task("step", host="kvm3", step=one, **(BOOT if one == "cut" else {}))
            if one == step:
                return
            if one == "cut":
                self.cut()

    def judge(self, **running: list[str]) -> dict[str, t.Any]:
        """Write the verdict after these hosts have reported these guests."""
        asked = {host: f.host(host, domains=[f.domain(name) for name in names]) for host, names in running.items()}
        return self.drill("judge", _work={"asked": [{"item": host, "ansible_facts": {"kvmfleet_host": facts}} for host, facts in asked.items()]})

    def die_and_continue(self) -> None:
        self.kill_process()
        self.begin_process()
        assert self.task("started", hosts=["kvm3"], drill={})["run"]["term"] == 2

    def evacuate(self, name: str) -> None:
        ends = [HostRef(host, HOST_IDS[host], None) for host in ("kvm3", "kvm1")]
        stored = self.ledger.open_record(new_record(s.EVACUATION, DomainRef(f.uuid_of(name), name), ends[0], ends[1], {}, "ann"))
        for status in (s.PRE_MIGRATING, s.DONE):
            stored = self.ledger.update_record(stored, stored.record.advance(status, "ann"))


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Drills]:
    node = Drills(tmp_path, monkeypatch)
    yield node
    node.close()


def test_a_drill_from_its_check_to_its_verdict(node: Drills) -> None:
    checked = node.check()
    assert (sorted(checked["guests"].values()), node.documents()) == (["app", "web"], [])
    assert checked["lines"][1] == "2 guests have to run elsewhere then: app, web."
    node.begin()
    cut = node.cut()
    assert (cut["is_cut"], node.agent.asked()[-2:]) == (True, ["off", "status"])
    node.task("step", host="kvm3", step="evacuate")
    assert node.drill("watch")["waits_for"] == "app, web to run elsewhere"
    node.evacuate("web")
    assert node.drill("watch")["waiting"] == ["app"]
    node.evacuate("app")
    assert node.drill("watch")["waits_for"] is None
    node.task("step", host="kvm3", step="switch_on")
    assert (node.drill("switch_on")["changed"], node.agent.asked()[-2:]) == (True, ["on", "status"])
    assert node.drill("switch_on")["changed"] is False
    node.task("step", host="kvm3", step="recover")
    judged = node.judge(kvm1=[], kvm2=[], kvm3=["app", "web"])
    assert (judged["verdict"]["passed"], judged["verdict"]["reasons"]) == (True, [])
    assert "passed: 2 of 2 guests ran elsewhere, median" in judged["text"]
    node.task("done", host="kvm3")
    left = node.task("left")
    assert (left["is_whole"], left["run"]["drill"]) == (True, judged["verdict"])
    events = [line["event"] for line in node.documents()[0]["history"]]
    assert events == ["started", "host_started", "power_cut", "drill_passed", "host_done", "finished"]


def test_all_that_is_missing_is_named_at_once_and_nothing_is_written(node: Drills) -> None:
    node.put_host("kvm2", state="maintenance")
    node.variables["kvmfleet_fencing"] = None
    guest = {
        "name": "web",
        "uuid": f.uuid_of("web"),
        "host": "kvm3",
        "memory_mib": 64,
        "refused": [{"hosts": ["kvm1"], "filters": ["memory"], "reason": "No room."}],
    }
    with pytest.raises(Unsafe) as refused:
        node.check(losses=[{"hosts": ["kvm3"], "verdict": "cannot", "missing_mib": 64, "reason": "", "guests": [guest]}])
    for text in ("kvm2 is in the state 'maintenance'", "kvm3 has no fence agent", "as web could not be started elsewhere (kvm1: No room)"):
        assert text in str(refused.value)
    assert (node.documents(), node.agent.asked()) == ([], [])


def test_no_power_is_cut_while_the_state_of_another_host_is_not_known(node: Drills) -> None:
    (node.path / "hosts" / f"{HOST_IDS['kvm2']}.json").write_bytes(b"torn")
    with pytest.raises(Unsafe, match=f"{HOST_IDS['kvm2']} is in the state 'unknown', and a drill needs every host in service"):
        node.check()


def test_no_power_is_cut_while_a_host_that_was_not_asked_would_hold_up_the_evacuation(node: Drills) -> None:
    findings = [
        {"kind": "silent", "hosts": ["kvm9"], "msg": "kvm9 is in the ledger, but not in the inventory: it was not asked."},
        {"kind": "silent", "hosts": ["kvm2"], "msg": "kvm2 did not answer: timed out."},
    ]
    with pytest.raises(Unsafe, match=r"kvm2 did not answer\. .*whether the fleet can lose kvm3: kvm9 is in the ledger, but not in the inventory"):
        node.check(findings=findings)
    assert node.agent.asked() == ["status"]


def test_a_drill_needs_a_ledger_one_host_and_no_other_run(node: Drills) -> None:
    with pytest.raises(InvalidArgument, match="A drill has one host"):
        node.task("started", hosts=HOSTS, drill={})
    node.task("started", hosts=["kvm1"])
    with pytest.raises(Unsafe, match=r"The maintenance run .* over kvm1 is open"):
        node.check()
    with pytest.raises(Conflict, match=r"kvm3 cannot be taken out of service now: the maintenance run .* over kvm1 is open"):
        node.task("started", hosts=["kvm3"], drill={})
    with pytest.raises(NotFound, match="No drill of kvm3 is open"):
        node.drill("watch")


def test_no_other_run_begins_beside_a_drill_and_each_playbook_continues_its_own(node: Drills) -> None:
    node.begin()
    node.begin_process()
    for hosts in (["kvm1"], ["kvm3"]):
        with pytest.raises(Conflict, match=rf"{hosts[0]} cannot be taken out of service now: the drill .* over kvm3 is open"):
            node.task("checked", hosts=hosts)
    with pytest.raises(Conflict, match="kvm1 cannot be taken out of service now"):
        node.task("checked", hosts=["kvm1"], drill={})


def test_a_drill_that_was_begun_without_its_check_cuts_no_power(node: Drills) -> None:
    node.task("started", hosts=["kvm3"], drill={"guests": {}})
    node.task("next", hosts=["kvm3"])
    node.task("step", host="kvm3", step="cut", **BOOT)
    with pytest.raises(InvalidState, match="names no guest, so that it was begun without its check"):
        node.cut()
    assert "off" not in node.agent.asked()
    assert node.documents()[0]["drill"]["cut_at"] is None


def test_a_process_whose_drill_was_taken_over_before_the_cut_does_not_cut(node: Drills, monkeypatch: pytest.MonkeyPatch) -> None:
    node.begin()

    def take_over(ledger: FileLedger) -> t.Any:
        with monkeypatch.context() as patch:
            patch.setattr(drill_run, "read_hosts", real)
            node.die_and_continue()
        return real(ledger)

    real = drill_run.read_hosts
    monkeypatch.setattr(drill_run, "read_hosts", take_over)
    with pytest.raises(Conflict, match="This process does not hold the drill"):
        node.cut()
    assert "off" not in node.agent.asked()
    assert node.documents()[0]["drill"]["cut_at"] is None


def test_a_worker_of_a_drill_that_is_killed_before_the_cut_does_not_cut(node: Drills, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process would have the guests run elsewhere."""
    node.begin()

    def query(config: t.Any) -> t.Any:
        node.kill_process()
        return real(config)

    real = drill_run.query_host
    monkeypatch.setattr(drill_run, "query_host", query)
    with pytest.raises(Conflict, match=r"The process that carries out the drill \S+ has ended"):
        node.cut()
    assert "off" not in node.agent.asked()
    assert node.documents()[0]["drill"]["cut_at"] is None


def test_guests_that_start_with_an_unguarded_host_refuse_its_drill(node: Drills) -> None:
    node.put_host("kvm3", protected={"at": utc_now(), "guard": {**GUARD, "held_at_boot": False}})
    domains = [f.domain("web", autostart=False), f.domain("app", autostart=True)]
    node.variables["ansible_facts"] = {"kvmfleet_host": with_receipt(f.host("kvm3", domains=domains))}
    with pytest.raises(Unsafe, match="it would start app then"):
        node.check(accept_unguarded=True)


def test_a_guest_whose_home_is_another_host_refuses_a_drill_that_brings_all_back(node: Drills) -> None:
    documents = (_document("web", "kvm1"), _document("app", "kvm3"), _document("db", "kvm2"))
    for one in documents:
        node.ledger.put_domain(one, None)
    with pytest.raises(Unsafe, match=r"not cut\. web would not be brought back to kvm3, because .* set drill_bring_home to false\. Nothing was changed\."):
        node.check()
    assert node.drill("check", fleet=HOSTS, bring_home=False, _work={"check": fleet_check()})["guests"]


def _document(name: str, origin: str) -> DomainEntry:
    return domain_entry({"uuid": f.uuid_of(name), "name": name, "possible_hosts": [], "protected": {"origin": origin}})


GUEST = {"name": "web", "uuid": f.uuid_of("web"), "host": "kvm3", "memory_mib": 64, "refused": []}
LOST_WEB = {"hosts": ["kvm3"], "verdict": "cannot", "missing_mib": 64, "reason": "", "guests": [GUEST]}


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize(
    ("check", "state", "guests", "said"),
    [
        ({"lost": ["kvm1"]}, "enabled", ["app", "web"], "It is not known whether the fleet can lose kvm3: the fleet was not checked"),
        (
            {"at": "2026-01-01T00:00:00.000Z"},
            "enabled",
            ["app", "web"],
            "the fleet was checked at 2026-01-01T00:00:00.000Z, and the drill has waited since then",
        ),
        ({"losses": [LOST_WEB]}, "enabled", ["app", "web"], "as web could not be started elsewhere"),
        ({}, "maintenance", ["app", "web"], "kvm2 is in the state 'maintenance'"),
        ({}, "enabled", ["app", "db", "web"], "Other guests run on kvm3 than were checked: db came or left since then."),
    ],
)
def test_the_power_is_cut_only_by_a_check_of_the_fleet_as_it_is(
    node: Drills, monkeypatch: pytest.MonkeyPatch, is_repeated: bool, check: dict[str, t.Any], state: str, guests: list[str], said: str
) -> None:
    node.begin()
    if is_repeated:
        with monkeypatch.context() as patch:
            patch.setattr(drill_run, "fence_host", lambda *_args: None)
            node.cut()
        node.die_and_continue()
        node.task("step", host="kvm3", step="cut", **BOOT)
    node.put_host("kvm2", state=state)
    node.variables["ansible_facts"] = {"kvmfleet_host": with_receipt(f.host("kvm3", domains=[f.domain(name) for name in guests]))}
    assert node.cut(**check)["is_cut"] is False
    assert "off" not in node.agent.asked()
    (problem,) = node.documents()[0]["drill"]["problems"]
    assert problem.startswith("The power of kvm3 was not cut.")
    assert said in problem


def test_facts_of_guests_before_a_wait_do_not_count_for_the_cut(node: Drills) -> None:
    node.begin()
    node.variables["ansible_facts"] = {"kvmfleet_host": f.host("kvm3", domains=[f.domain("web"), f.domain("app")])}
    assert node.cut()["is_cut"] is False
    assert "kvm3 did not report its guests now." in node.documents()[0]["drill"]["problems"][0]


def test_a_host_whose_libvirt_is_silent_did_not_report_its_guests(node: Drills) -> None:
    node.begin()
    facts = f.host("kvm3")
    del facts["domains"]
    node.variables["ansible_facts"] = {"kvmfleet_host": with_receipt(facts)}
    assert node.cut()["is_cut"] is False
    assert "kvm3 did not report its guests now." in node.documents()[0]["drill"]["problems"][0]


def test_a_process_that_is_killed_before_the_agent_was_called_cuts_the_power_again(node: Drills, monkeypatch: pytest.MonkeyPatch) -> None:
    node.begin()

    def die(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(drill_run, "fence_host", die)
        with pytest.raises(KeyboardInterrupt):
            node.cut()
    assert node.documents()[0]["drill"]["cut_at"] is not None
    node.die_and_continue()
    assert node.task("next", hosts=["kvm3"])["admitted"] == {"kvm3": {"step": "cut", "is_repeated": True}}
    node.task("step", host="kvm3", step="cut", **BOOT)
    assert node.cut()["is_cut"]
    assert node.agent.asked().count("off") == 1


def test_a_process_that_is_killed_after_the_cut_does_not_repeat_it(node: Drills) -> None:
    node.begin()
    before = node.cut()["cut_at"]
    node.die_and_continue()
    assert node.task("checked", hosts=["kvm3"], drill={})["unchecked"] == []
    again = node.cut("")
    assert (again["changed"], again["is_cut"], again["cut_at"]) == (False, True, before)
    assert node.agent.asked().count("off") == 1


def test_a_host_that_somebody_switched_on_is_not_cut_again(node: Drills) -> None:
    node.begin()
    node.cut()
    node.agent.switch("on")
    node.die_and_continue()
    again = node.cut("boot-2")
    assert (again["is_cut"], node.agent.asked().count("off")) == (False, 1)
    assert node.documents()[0]["drill"]["problems"] == ["kvm3 was switched on again before the drill continued."]


def test_a_host_whose_power_this_drill_did_not_cut_is_not_switched_on(node: Drills) -> None:
    node.task("started", hosts=["kvm3"], drill={"guests": node.check()["guests"]})
    node.agent.switch("off")
    assert node.drill("switch_on")["changed"] is False
    assert "on" not in node.agent.asked()


def test_a_guest_that_runs_twice_after_a_drill_fails_it(node: Drills) -> None:
    node.begin("recover")
    for name in ("app", "web"):
        node.evacuate(name)
    judged = node.judge(kvm1=["web"], kvm2=[], kvm3=["app", "web"])["verdict"]
    assert (judged["passed"], judged["reasons"]) == (False, ["web: it runs on kvm1 and kvm3 at the same time"])
    unknown = node.drill("judge", _work={"asked": [{"item": "kvm3", "unreachable": True, "msg": "No route"}]})["verdict"]
    assert unknown["reasons"] == ["kvm3 did not report its guests after its return."]


def test_a_problem_fails_the_drill_and_check_mode_does_nothing(node: Drills) -> None:
    node.begin("recover")
    node.drill("problem", problem="The evacuation failed: no survivor answers.")
    node.check_mode = True
    for step in ("cut", "problem", "watch", "switch_on", "judge"):
        assert node.drill(step) == {"changed": False}
    node.check_mode = False
    judged = node.drill("judge")["verdict"]
    assert judged["passed"] is False
    assert judged["reasons"][0] == "The evacuation failed: no survivor answers."
    assert "web: it was not started elsewhere" in judged["reasons"]
