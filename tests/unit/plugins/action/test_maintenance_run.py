# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module maintenance_run as the role and people have it: several processes over one ledger."""

from __future__ import annotations

import os
import pathlib
import subprocess
import types
import typing as t
import uuid
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.action import maintenance_run
from ansible_collections.kvmfleet.migration.plugins.action.maintenance_run import ActionModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import records
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    NotFound,
    Unreachable,
    Unsafe,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import power_cycle
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import GOOD, Agent
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

HOSTS = ["kvm1", "kvm2", "kvm3"]


class Node:
    """A control node; C(pid) is its ansible-playbook."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = folder / "ledger"
        self.check_mode = False
        self.variables: dict[str, t.Any] = {}
        self.others: dict[str, t.Any] = {}
        self.pid = 0
        self._children: list[subprocess.Popen[bytes]] = []
        monkeypatch.setattr(os, "getppid", lambda: self.pid)
        self.begin_process()

    def begin_process(self) -> None:
        """Begin another ansible-playbook."""
        self._children.append(subprocess.Popen(["sleep", "600"]))
        self.pid = self._children[-1].pid

    def kill_process(self) -> None:
        """Kill the newest one, as SIGKILL does."""
        self._children[-1].kill()
        self._children[-1].wait()

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()

    def task(self, state: str = "shown", **args: t.Any) -> dict[str, t.Any]:
        action = ActionModule.__new__(ActionModule)
        action._loader = None
        action._task = types.SimpleNamespace(args={"state": state, **args}, async_val=0, check_mode=self.check_mode, diff=False, delegate_to=None)
        return action.run_with_options(task_vars("kvm1", {"kvmfleet_ledger": str(self.path), **self.variables}, self.others))

    def refused(self, kind: type[KvmfleetError], text: str, state: str, **args: t.Any) -> None:
        before = self.documents()
        with pytest.raises(kind, match=text):
            self.task(state, **args)
        assert self.documents() == before

    def documents(self) -> list[t.Any]:
        return [document.body for document in FileLedger(str(self.path)).list_maintenance_runs()] if self.path.exists() else []

    def take_steps(self, host: str, *steps: str) -> None:
        for step in steps or ("check", "before_drain", "drain", "maintain", "reboot", "verify", "recover"):
            assert self.task("step", host=host, step=step)["waits_for"] is None


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(tmp_path, monkeypatch)
    yield node
    node.close()


def test_a_whole_night(node: Node) -> None:
    checked = node.task("checked", hosts=HOSTS)
    assert (checked["is_continued"], checked["unchecked"], node.path.exists()) == (False, HOSTS, False)
    started = node.task("started", hosts=HOSTS, planned={"kvm2": {"has_work": False}})
    assert started["run"]["summary"] == {"kvm1": "not begun", "kvm2": "nothing to do", "kvm3": "not begun"}
    for host in HOSTS:
        admitted = node.task("next", hosts=[host])["admitted"]
        if host == "kvm2":
            assert admitted == {}
            continue
        assert admitted == {host: {"step": "check", "is_repeated": False}}
        node.take_steps(host)
        node.task("done", host=host)
    left = node.task("left")
    assert (left["is_whole"], left["summary"]) == (True, {"kvm1": "done", "kvm2": "nothing to do", "kvm3": "done"})
    assert "is finished." in left["text"]
    lines = node.task()["lines"]
    assert (len(lines), lines[0], lines[1].startswith(f"the last one: {started['run']['id']}  finished  begun ")) == (2, "no open maintenance run", True)


def test_a_night_of_a_host_that_belongs_to_another_ledger_creates_none(node: Node) -> None:
    """Its drain is refused. An empty ledger would hide that the right one was moved away, and be in its way when it is moved back."""
    node.others = {"kvm2": {"ansible_facts": {"kvmfleet_host": {**f.host("kvm2"), "ledger_id": HOST_ID}}}}
    node.refused(Conflict, "kvm2 was protected under the ledger .*, and there is no ledger where this task looks for it", "started", hosts=HOSTS, planned={})
    assert not node.path.exists()
    node.others = {"kvm2": {"ansible_facts": {"kvmfleet_host": {**f.host("kvm2"), "ledger_id": None}}}}
    assert node.task("started", hosts=HOSTS, planned={})["changed"]


def test_a_host_that_failed_in_an_open_night_is_not_checked_when_another_process_continues_it(node: Node) -> None:
    node.task("started", hosts=HOSTS, max_failures=1)
    node.task("next", hosts=["kvm1"])
    node.task("failed", host="kvm1", error="it does not answer")
    node.task("next", hosts=["kvm2"])
    node.kill_process()
    node.begin_process()
    checked = node.task("checked", hosts=HOSTS)
    assert checked["unchecked"] == ["kvm3"]
    node.task("started", hosts=HOSTS)
    assert list(node.task("next", hosts=HOSTS)["admitted"]) == ["kvm2"]
    node.task("done", host="kvm2")
    node.task("left")
    # It is tried again once the night is over.
    assert node.task("checked", hosts=HOSTS, run=checked["run"]["id"])["unchecked"] == ["kvm1", "kvm3"]


def test_the_same_command_continues_a_night_whose_process_was_killed(node: Node) -> None:
    node.task("started", hosts=HOSTS)
    node.task("next", hosts=["kvm1"])
    node.take_steps("kvm1", "check", "before_drain", "drain", "maintain")
    node.begin_process()
    node.refused(Conflict, "that process still runs", "checked", hosts=HOSTS)
    node._children[0].kill()
    node._children[0].wait()
    assert "The process of the maintenance run" in str(node.task()["lines"]) or node.task()["runs"][0]["state"] == "running"
    checked = node.task("checked", hosts=HOSTS)
    assert (checked["is_continued"], checked["unchecked"]) == (True, ["kvm2", "kvm3"])
    node.refused(Conflict, "does not hold", "step", run=checked["run"]["id"], host="kvm1", step="reboot")
    assert node.task("started", hosts=HOSTS)["run"]["term"] == 2
    assert node.task("next", hosts=["kvm1"])["admitted"] == {"kvm1": {"step": "maintain", "is_repeated": True}}


def test_two_nights_over_one_host_are_refused(node: Node) -> None:
    node.task("started", hosts=HOSTS)
    node.begin_process()
    node.refused(Conflict, "kvm3 cannot be maintained twice at the same time", "checked", hosts=["kvm3", "kvm4"])
    node.refused(Conflict, "kvm3 cannot be maintained twice at the same time", "started", hosts=["kvm3", "kvm4"])


def test_a_pause_holds_the_next_step_and_a_resume_lets_it_begin(node: Node) -> None:
    node.task("started", hosts=HOSTS)
    node.task("next", hosts=["kvm1"])
    node.take_steps("kvm1", "check")
    asked = node.task("paused", reason="alarm")
    assert (asked["changed"], node.task("paused")["changed"]) == (True, False)
    waits = node.task("step", host="kvm1", step="before_drain")
    assert ("(alarm)" in waits["waits_for"], waits["changed"]) == (True, False)
    assert node.documents()[0]["hosts"][0]["steps"][-1]["ended_at"] is not None
    assert node.task("next", hosts=["kvm2"])["waits_for"] == waits["waits_for"]
    node.task("resumed")
    assert node.task("step", host="kvm1", step="before_drain")["waits_for"] is None


def test_a_pause_does_not_end_the_step_that_records_its_boot(node: Node) -> None:
    node.task("started", hosts=HOSTS)
    node.task("next", hosts=["kvm1"])
    node.take_steps("kvm1", "check", "before_drain", "drain", "maintain", "reboot")
    node.task("paused")
    put_kvm1(node)
    recorded = record_boot(node)
    assert (recorded["waits_for"], recorded["boot_before"]) == (None, "boot-1")
    assert node.documents()[0]["hosts"][0]["steps"][-1]["ended_at"] is None
    assert "paused by" in node.task("step", host="kvm1", step="verify")["waits_for"]


def test_a_stop_finishes_what_is_begun(node: Node) -> None:
    node.task("started", hosts=HOSTS)
    node.task("next", hosts=["kvm1"])
    node.task("stopped", reason="enough")
    node.take_steps("kvm1")
    node.task("done", host="kvm1")
    assert "(enough)" in node.task("next", hosts=["kvm2"])["deferred"]["kvm2"]
    left = node.task("left")
    assert (left["is_whole"], left["summary"]["kvm2"]) == (False, "not begun")
    assert "(enough)" in left["text"]
    node.refused(InvalidState, "is stopped", "paused", run=left["run"]["id"])


def test_a_night_that_is_paused_after_a_stop_can_be_stopped_again(node: Node) -> None:
    node.task("started", hosts=HOSTS)
    node.task("next", hosts=["kvm1"])
    node.take_steps("kvm1", "check")
    node.task("stopped")
    node.take_steps("kvm1", "before_drain")
    node.task("paused")
    assert "paused by" in node.task("step", host="kvm1", step="drain")["waits_for"]
    assert (node.task("stopped", reason="enough")["changed"], node.task("stopped")["changed"]) == (True, False)
    node.take_steps("kvm1")
    node.task("done", host="kvm1")
    assert "(enough)" in node.task("left")["text"]


def test_a_stop_closes_a_night_whose_process_is_gone(node: Node) -> None:
    node.task("started", hosts=HOSTS)
    node.task("next", hosts=["kvm1"])
    node.take_steps("kvm1", "check", "before_drain", "drain")
    node.kill_process()
    node.begin_process()
    stopped = node.task("stopped")["run"]
    assert (stopped["state"], stopped["summary"]) == ("stopped", {"kvm1": "failed: drain", "kvm2": "not begun", "kvm3": "not begun"})
    assert node.task("stopped", run=stopped["id"])["changed"] is False
    again = node.task("started", hosts=HOSTS, run=stopped["id"])["run"]
    assert (again["state"], again["summary"]["kvm1"]) == ("running", "in progress: drain")


def test_a_night_that_is_paused_at_its_end_stays_open_without_a_process(node: Node) -> None:
    node.task("started", hosts=HOSTS)
    node.task("paused")
    left = node.task("left")
    assert (left["run"]["state"], left["run"]["holder"], left["is_whole"]) == ("paused", None, False)
    node.begin_process()
    node.task("resumed")
    assert node.task("started", hosts=HOSTS)["run"]["term"] == 2
    assert list(node.task("next", hosts=["kvm1"])["admitted"]) == ["kvm1"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"until": "2020-01-01T00:00:00Z"}, "in the past"),
        ({"until": "5 o'clock"}, "not a time with a time zone"),
        ({"until": "2026-11-21T05:00:00"}, "not a time with a time zone"),
        ({"max_unavailable": 4}, "max_unavailable is 4"),
        ({"max_unavailable": 0}, "max_unavailable is 0"),
        ({"max_failures": -1}, "max_failures is -1"),
        ({"canary_minutes": 5}, "canary is false"),
        ({"hosts": []}, "hosts is not given"),
        ({"hosts": [f"kvm{number}" for number in range(1001)]}, "1001 hosts, and a maintenance run has at most 1000"),
    ],
)
def test_bad_limits_are_refused_and_nothing_is_written(node: Node, given: dict[str, t.Any], text: str) -> None:
    for state in ("checked", "started"):
        with pytest.raises(InvalidArgument, match=text):
            node.task(state, **{"hosts": HOSTS, **given})
    assert node.documents() == []


def test_a_window_that_ended_does_not_keep_a_begun_host_from_being_finished(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.task("started", hosts=HOSTS, until="2100-01-01T00:00:00Z")
    node.task("next", hosts=["kvm1"])
    node.kill_process()
    node.begin_process()
    assert node.task("checked", hosts=HOSTS, until="2020-01-01T00:00:00Z")["is_continued"]
    node.task("started", hosts=HOSTS, until="2020-01-01T00:00:00Z")
    found = node.task("next", hosts=["kvm1", "kvm2"])
    assert (list(found["admitted"]), list(found["deferred"])) == (["kvm1"], ["kvm2"])


def test_the_alarm_command_of_the_canary_ends_the_night(node: Node) -> None:
    node.task("started", hosts=HOSTS, canary=True, canary_minutes=60)
    node.task("next", hosts=["kvm1"])
    node.take_steps("kvm1")
    node.task("done", host="kvm1")
    assert "60 more minutes" in node.task("next", hosts=["kvm2"], canary_alarm="true")["waits_for"]
    found = node.task("next", hosts=["kvm2"], canary_alarm="echo latency; exit 3")
    assert found["deferred"] == {"kvm2": "the alarm command ended with 3: latency"}


def test_hosts_that_ansible_has_ended_count_as_failed_when_others_ask_to_begin(node: Node) -> None:
    node.task("started", hosts=HOSTS, max_unavailable=2)
    assert list(node.task("next", hosts=["kvm1", "kvm2"])["admitted"]) == ["kvm1", "kvm2"]
    node.take_steps("kvm1", "check", "before_drain")
    node.take_steps("kvm2")
    node.task("done", host="kvm2")
    found = node.task("next", hosts=["kvm3"], lost_hosts=["kvm1", "kvm2"])
    assert (found["admitted"], found["deferred"]) == ({}, {"kvm3": "kvm1 failed, and max_failures is 0"})
    assert found["summary"] == {"kvm1": "failed: before_drain", "kvm2": "done", "kvm3": "not begun"}
    assert node.task("next", hosts=["kvm3"], lost_hosts=["kvm1"])["deferred"] == found["deferred"]


def test_check_mode_admits_every_host_and_writes_nothing(node: Node) -> None:
    node.check_mode = True
    assert node.task("started", hosts=HOSTS)["run"] is None
    assert list(node.task("next", hosts=HOSTS)["admitted"]) == HOSTS
    assert node.task("step", host="kvm1", step="drain")["waits_for"] is None
    assert node.task("left")["changed"] is False
    assert node.documents() == []


def test_there_is_nothing_to_pause(node: Node) -> None:
    node.refused(NotFound, "There is no ledger", "paused")
    FileLedger(str(node.path))
    node.refused(NotFound, "no open maintenance run", "paused")


REBOOT: dict[str, t.Any] = {"state": "step", "host": "kvm1", "step": "reboot", "boot_id": "boot-1"}


def test_a_host_is_rebooted_only_if_it_is_out_of_service_and_shows_no_guest(node: Node) -> None:
    node.task("started", hosts=HOSTS)
    node.task("next", hosts=["kvm1"])
    node.take_steps("kvm1", "check", "before_drain", "drain", "maintain", "reboot")
    node.refused(NotFound, "The ledger has no host 'kvm1'", **REBOOT)
    put_kvm1(node, "enabled")
    report_domains(node)
    node.refused(Unsafe, "kvm1 is not rebooted: it is enabled in the ledger, so that guests may have been placed there", **REBOOT)
    put_kvm1(node)
    report_domains(node, f.domain("web1"), f.domain("db1"), {**f.domain("old"), "active": False})
    node.refused(Unsafe, "kvm1 is not rebooted: db1, web1 run there", **REBOOT)
    for facts in ({}, {"kvmfleet_host": {}}):
        node.variables["ansible_facts"] = facts
        node.refused(Unsafe, "kvm1 is not rebooted: it has not reported its guests", **REBOOT)
    # The step itself begins before the host is drained once more.
    assert node.task("step", host="kvm1", step="reboot")["waits_for"] is None
    report_domains(node, {**f.domain("old"), "active": False})
    assert node.task(**REBOOT)["boot_before"] == "boot-1"
    assert node.task(**REBOOT)["fenced"] is None
    put_kvm1(node, "fenced")
    fenced = node.task(**REBOOT)
    assert (fenced["boot_before"], fenced["fenced"]) == ("boot-1", "kvm1 is fenced in the ledger (no reason given).")


# A host with its power in a file, as the agent of the other tests, which can be switched on as well.
AGENT = GOOD.replace("*) exit 1;;", 'on) echo on > "$0.power";;\n*) exit 1;;')


@pytest.fixture
def agent(node: Node, tmp_path: pathlib.Path) -> Agent:
    """The agent of kvm1, which is in the step in which it is rebooted."""
    agent = Agent(tmp_path, AGENT)
    node.variables = {"kvmfleet_fencing": {"agent": str(agent.path), "options": {"plug": "kvm1"}, "timeout_seconds": 10}}
    node.task("started", hosts=HOSTS)
    node.task("next", hosts=["kvm1"])
    node.take_steps("kvm1", "check", "before_drain", "drain", "maintain")
    put_kvm1(node)
    record_boot(node)
    return agent


def record_boot(node: Node, *domains: dict[str, t.Any]) -> dict[str, t.Any]:
    """Record the boot that the reboot ends, right after kvm1 reported these domains."""
    report_domains(node, *domains)
    return node.task("step", host="kvm1", step="reboot", boot_id="boot-1")


def report_domains(node: Node, *domains: dict[str, t.Any]) -> None:
    node.variables["ansible_facts"] = {"kvmfleet_host": with_receipt(f.host("kvm1", domains=domains))}


def put_kvm1(node: Node, state: str = "maintenance") -> None:
    ledger = FileLedger(str(node.path))
    before = ledger.find_host(name="kvm1")
    ledger.put_host(host_entry({"name": "kvm1", "host_key": HOST_ID, "host_id": HOST_ID, "state": state}), before.version if before else None)


HOST_ID = "11111111-0000-4000-8000-000000000001"
CYCLE = ["status", "off", "status", "on", "status"]


def steps_of_kvm1(node: Node) -> list[dict[str, t.Any]]:
    return t.cast("list[dict[str, t.Any]]", node.documents()[0]["hosts"][0]["steps"])


def test_a_host_that_does_not_come_back_is_switched_off_and_on_once(node: Node, agent: Agent) -> None:
    assert node.task("fenced", host="kvm1")["changed"] is True
    assert agent.asked() == CYCLE
    assert steps_of_kvm1(node)[-1]["fenced_at"]
    assert [line["event"] for line in node.documents()[0]["history"]][-1] == "host_fenced"
    assert node.task("fenced", host="kvm1")["changed"] is False
    assert agent.asked() == [*CYCLE, "status"]
    # It still runs the boot that the fence was to end.
    assert node.task("fenced", host="kvm1", boot_id="boot-1")["changed"] is True
    assert node.task("fenced", host="kvm1", boot_id="boot-2")["changed"] is False


@pytest.mark.parametrize(("killed_in", "asked"), [("fence_host", ["status"]), ("switch_on", ["status", "off", "status"])])
def test_a_process_that_is_killed_while_it_fences(node: Node, agent: Agent, monkeypatch: pytest.MonkeyPatch, killed_in: str, asked: list[str]) -> None:
    def die(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(maintenance_run, killed_in, die)
        with pytest.raises(KeyboardInterrupt):
            node.task("fenced", host="kvm1")
    assert (agent.asked(), bool(steps_of_kvm1(node)[-1]["fenced_at"])) == (asked, True)
    node.kill_process()
    node.begin_process()
    assert node.task("started", hosts=HOSTS)["run"]["term"] == 2
    # A host that is on is not fenced again, and one that was left off is switched on.
    assert node.task("fenced", host="kvm1")["changed"] is (killed_in == "switch_on")
    assert agent.asked()[len(asked) :] == (["status", "on", "status"] if killed_in == "switch_on" else ["status"])


def test_a_process_that_is_killed_between_two_supplies_switches_on_the_second_one_later(
    node: Node, agent: Agent, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host has come back on one supply, and is not fenced again."""
    other, call = Agent(tmp_path, AGENT, name="fence_other"), power_cycle.call_agent
    node.variables["kvmfleet_fencing"] = {"levels": [[{"agent": str(one.path), "options": {"plug": "kvm1"}} for one in (agent, other)]]}

    def call_or_die(*given: t.Any) -> object:
        if given[0].program == str(other.path):
            raise KeyboardInterrupt
        return call(*given)

    with monkeypatch.context() as patch:
        patch.setattr(power_cycle, "call_agent", call_or_die)
        with pytest.raises(KeyboardInterrupt):
            node.task("fenced", host="kvm1")
    node.kill_process()
    node.begin_process()
    node.task("started", hosts=HOSTS)
    assert node.task("fenced", host="kvm1", boot_id="boot-2")["changed"] is True
    assert (agent.asked().count("on"), other.asked().count("on")) == (1, 1)
    assert (agent.asked().count("off"), other.asked().count("off")) == (1, 1)
    assert node.task("fenced", host="kvm1", boot_id="boot-2")["changed"] is False


def test_a_person_who_continues_the_run_may_have_the_host_fenced_again(node: Node, agent: Agent) -> None:
    node.task("fenced", host="kvm1")
    node.task("failed", host="kvm1", error="It did not come back")
    run = node.task("left")["run"]
    node.task("started", hosts=HOSTS, run=run["id"])
    node.task("step", host="kvm1", step="reboot")
    assert node.task("fenced", host="kvm1")["changed"] is True
    assert agent.asked() == [*CYCLE, *CYCLE]


def test_a_host_that_may_run_a_guest_is_not_fenced(node: Node, agent: Agent) -> None:
    reported = with_receipt({**f.host("kvm1", 8192), "domains": [f.domain("web1"), {**f.domain("old"), "active": False}]})
    node.variables["ansible_facts"] = {"kvmfleet_host": reported}
    node.refused(Unsafe, "kvm1 is not fenced: web1 runs there", "fenced", host="kvm1")
    del node.variables["ansible_facts"]
    ends = (HostRef("kvm2", None, None), HostRef("kvm1", HOST_ID, None))
    FileLedger(str(node.path)).open_record(new_record(s.LIVE_MIGRATION, DomainRef(f.uuid_of("web1"), "web1"), *ends, {}, "ann@control pid 1"))
    node.refused(Unsafe, "kvm1 is not fenced: web1 may run there by the ledger", "fenced", host="kvm1")
    put_kvm1(node, "enabled")
    node.refused(Unsafe, "it is enabled in the ledger", "fenced", host="kvm1")
    assert set(agent.asked()) <= {"status"}


def test_a_host_with_guests_that_an_older_backup_of_the_ledger_does_not_know_is_not_fenced(node: Node, agent: Agent) -> None:
    """The night was over, and its guests were moved back. The hosts that have moved them remember that."""
    ends = (HostRef("kvm2", None, None), HostRef("kvm1", HOST_ID, None))
    record = encode(new_record(s.LIVE_MIGRATION, DomainRef(f.uuid_of("web1"), "web1"), *ends, {}, "ann@control pid 1"))
    told = {**record, "generation": 7, "status": s.COMPLETED, "ledger_id": FileLedger(str(node.path)).ledger_id}
    away = {**told, "id": str(uuid.uuid4()), "source": told["destination"], "destination": told["source"]}
    node.others = {"kvm2": {"ansible_facts": {"kvmfleet_host": {**f.host("kvm2", 8192), "remembered": [told]}}}}
    node.refused(Unsafe, "kvm1 is not fenced: web1 may run there. kvm2 remembers the move of domain web1 from kvm2 to kvm1", "fenced", host="kvm1")
    assert set(agent.asked()) <= {"status"}
    node.others["kvm2"]["ansible_facts"]["kvmfleet_host"]["remembered"] = [away]
    assert node.task("fenced", host="kvm1")["changed"] is True


def move_to_kvm1(node: Node, monkeypatch: pytest.MonkeyPatch, name: str, clock: str) -> None:
    """Move a domain to kvm1, by a control node with that clock."""
    with monkeypatch.context() as patch:
        patch.setattr(records, "utc_now", lambda: clock)
        ledger, ends = FileLedger(str(node.path)), (HostRef("kvm2", None, None), HostRef("kvm1", HOST_ID, None))
        stored = ledger.open_record(new_record(s.LIVE_MIGRATION, DomainRef(f.uuid_of(name), name), *ends, {}, "ann@control pid 1"))
        for status in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.COMPLETED):
            stored = ledger.update_record(stored, stored.record.advance(status, "ann@control pid 1"))


def test_a_host_that_got_a_guest_since_is_not_fenced_although_clocks_differ(node: Node, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago = "2000-01-01T00:00:00.000Z"
    move_to_kvm1(node, monkeypatch, "template", long_ago)
    record_boot(node, {**f.domain("template"), "active": False})
    # A process that continues the run, on a host that is off, reports no domains.
    node.task("step", host="kvm1", step="reboot")
    move_to_kvm1(node, monkeypatch, "web1", long_ago)
    node.refused(Unsafe, "kvm1 is not fenced: web1 may run there by the ledger", "fenced", host="kvm1")
    assert set(agent.asked()) <= {"status"}


def test_a_host_on_which_the_ledger_had_its_guests_before_is_fenced(node: Node, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    move_to_kvm1(node, monkeypatch, "template", "2000-01-01T00:00:00.000Z")
    record_boot(node, {**f.domain("template"), "active": False, "autostart": False})
    assert node.task("fenced", host="kvm1")["changed"] is True


def test_a_host_that_starts_guests_at_its_boot_is_fenced_only_if_it_still_runs_the_boot_before(node: Node, agent: Agent) -> None:
    record_boot(node, {**f.domain("db1"), "active": False, "autostart": True})
    assert steps_of_kvm1(node)[-1]["starts_guests"] is True
    node.refused(Unsafe, "it may have started guests when it booted", "fenced", host="kvm1")
    assert set(agent.asked()) == {"status"}
    assert node.task("fenced", host="kvm1", boot_id="boot-1")["changed"] is True
    # The agent has left it off, so that no guest runs there.
    agent.switch("off")
    assert node.task("fenced", host="kvm1")["changed"] is True
    assert agent.asked()[-3:] == ["status", "on", "status"]


def test_what_cannot_be_fenced_is_refused(node: Node, agent: Agent) -> None:
    node.refused(InvalidArgument, "it has no kvmfleet_fencing", "fenced", host="kvm2")
    node.task("step", host="kvm1", step="verify")
    node.refused(InvalidState, "has not recorded that it is safe to reboot", "fenced", host="kvm1")
    assert set(agent.asked()) <= {"status"}


def test_an_agent_that_cannot_switch_a_host_on_is_named(node: Node, agent: Agent) -> None:
    agent.write(GOOD)
    with pytest.raises(Unreachable, match=r"kvm1 was switched off, and .* does not report that it is on again"):
        node.task("fenced", host="kvm1")
