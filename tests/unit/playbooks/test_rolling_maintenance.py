# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook rolling_maintenance with its real role, decisions and ledger, over hosts that only write down what is done to them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import COLLECTION, HOSTS, Outcome, Stage, build_collection
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

# The two roles that act on hosts, each as one line of the log; a host that is named in FAIL_<what> fails. Their defaults and variables are the real ones.
ROLE = """\
- name: Write down what is done
  kvmfleet.migration.write_down: {{path: "{{{{ stage_log }}}}", what: "{what} {{{{ inventory_hostname }}}}"}}
- name: Write down the options
  kvmfleet.migration.write_down: {{path: "{{{{ stage_log }}}}.options", what: "{{{{ ['{what}', inventory_hostname, {options}] }}}}"}}
- name: Fail where the test says so
  ansible.builtin.fail:
    msg: "{what} failed"
  when: inventory_hostname in stage_failures.get({key}) | default([], true)
- name: Return the result
  ansible.builtin.set_fact:
    __drain_host_result: "{{{{ dict(ansible_play_batch | product([{{'predicted_seconds': 30.5}}])) }}}}"
"""
# A process for each line, as of a shell, would be most of what these tests take.
WRITE_DOWN = """\
import json
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        what = self._task.args["what"]
        if not self._task.check_mode:
            with open(self._task.args["path"], "a") as stream:
                stream.write((what if isinstance(what, str) else json.dumps(what)) + "\\n")
        return {"changed": True}
"""
PAUSE = """
- name: Pause the run in its first drain where the test says so
  kvmfleet.migration.maintenance_run:
    state: paused
  run_once: true
  when: stage_pauses | default(false) and not __drain_host_plan_only | bool and 'drain' not in lookup('file', stage_log)
"""
LOSE = """
- name: Lose the connection where the test says so
  ansible.builtin.set_fact:
    ansible_connection: ssh
    ansible_host: 127.0.0.1
    ansible_port: 1
  when: stage_loses | default(false)
"""
KIND = "'plan' if __drain_host_plan_only | bool else 'drain'"
DRAIN_OPTIONS = (
    "{'reason': __drain_host_reason, 'apply': __drain_host_plan_apply, 'file': __drain_host_plan_file, 'n_plus_one': __drain_host_n_plus_one,"
    " 'options': __drain_host_options, 'own_reason': __drain_host_own_reason | default('')}"
)
RECOVER_OPTIONS = (
    "{'enable': __recover_host_enable | bool, 'bring_home': __recover_host_bring_home | bool, 'own_reason': __recover_host_own_reason | default('')}"
)
ROLES = {
    "drain_host": PAUSE + LOSE + ROLE.format(what="{{ " + KIND + " }}", key=KIND, options=DRAIN_OPTIONS).replace("['{{ " + KIND + " }}'", f"[{KIND}"),
    "recover_host": ROLE.format(what="recover", key="'recover'", options=RECOVER_OPTIONS),
}


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = build_collection(tmp_path_factory.mktemp("collections"), "host", "host_facts", "fleet_check")
    roles = folder / "ansible_collections/kvmfleet/migration/roles"
    roles.unlink()
    roles.mkdir()
    (roles / "rolling_maintenance").symlink_to(COLLECTION / "roles/rolling_maintenance")
    (folder / "ansible_collections/kvmfleet/migration/plugins/action/write_down.py").write_text(WRITE_DOWN)
    for name, tasks in ROLES.items():
        (roles / name / "tasks").mkdir(parents=True)
        (roles / name / "tasks/main.yml").write_text(tasks)
        for part in ("defaults", "vars"):
            (roles / name / part).symlink_to(COLLECTION / "roles" / name / part)
    return folder


class Desk(Stage):
    """An operator with tasks files of one line each."""

    def __init__(self, collections: pathlib.Path, folder: pathlib.Path) -> None:
        super().__init__(collections, folder)
        self.report_guests(*HOSTS)
        self.answers["fleet_check"] = {host: {"losses": [], "lines": ["The fleet can lose it."]} for host in HOSTS}
        self.answers["host"] = {host: {"changed": False, "host": {"state": "enabled", "reason": None}} for host in HOSTS}
        self.log = folder / "log"
        self.options_log = folder / "log.options"
        self.failures: dict[str, list[str]] = {}

    def report_guests(self, *hosts: str, domains: tuple[dict[str, t.Any], ...] = ()) -> None:
        """Let hosts answer that they have these domains."""
        facts = {host: {"changed": False, "ansible_facts": {"kvmfleet_host": f.host(host, domains=domains)}} for host in hosts}
        self.answers["host_facts"] = {**self.answers.get("host_facts", {}), **facts}

    def put_entry(self, host: str, state: str = "maintenance", reason: str = "") -> None:
        """Write what the drain of a host writes, which does nothing here, or a person."""
        host_id = f"11111111-0000-4000-8000-00000000000{host[-1]}"
        FileLedger(str(self.ledger)).put_host(host_entry({"name": host, "host_id": host_id, "state": state, "reason": reason}), None)

    def hook(self, what: str, *more: dict[str, t.Any]) -> str:
        """Return a tasks file that writes a word to the log, and then does more."""
        path = self.folder / f"{what}.yml"
        write = {"name": "Write", "kvmfleet.migration.write_down": {"path": str(self.log), "what": f"{what} {{{{ inventory_hostname }}}}"}}
        path.write_text(json.dumps([write, *more]))
        return str(path)

    def maintain(self, *options: str, playbook: str = "rolling_maintenance", **variables: t.Any) -> Outcome:
        given = {"target": "kvmfleet_hosts", "stage_log": str(self.log), "stage_failures": self.failures, "rolling_maintenance_tasks": self.hook("maintain")}
        given["ansible_python_interpreter"] = "/usr/bin/python3"
        self.log.write_text("")
        self.options_log.write_text("")
        return self.play(playbook, *options, **{**given, **variables})

    @property
    def lines(self) -> list[str]:
        """What was done, without the plans of the beginning."""
        return self.log.read_text().splitlines()

    def done_to(self, host: str) -> list[str]:
        return [line.split()[0] for line in self.lines if line.split()[1] == host]

    def options_of(self, what: str, host: str) -> list[dict[str, t.Any]]:
        """The options with which a role has acted on a host."""
        lines = [json.loads(line) for line in self.options_log.read_text().splitlines()]
        return [options for kind, name, options in lines if (kind, name) == (what, host)]

    @property
    def runs(self) -> list[dict[str, t.Any]]:
        return [document.body for document in FileLedger(str(self.ledger)).list_maintenance_runs()] if self.ledger.exists() else []


@pytest.fixture
def desk(collections: pathlib.Path, tmp_path: pathlib.Path) -> Desk:
    return Desk(collections, tmp_path)


WHOLE = ["plan", "plan", "before", "drain", "maintain", "verify", "recover"]


def test_each_host_takes_its_steps_after_the_one_before_is_back(desk: Desk) -> None:
    done = desk.maintain(rolling_maintenance_before_drain_tasks=desk.hook("before"), rolling_maintenance_verify_tasks=desk.hook("verify"))
    assert done.code == 0, done.text
    assert [desk.done_to(host) for host in HOSTS] == [WHOLE] * 3
    acts = [line for line in desk.lines if not line.startswith("plan")]
    assert [line.split()[1] for line in acts] == [host for host in HOSTS for _step in range(5)]
    (run,) = desk.runs
    assert (run["state"], [host["status"] for host in run["hosts"]]) == ("finished", ["done"] * 3)
    assert [host["predicted_seconds"] for host in run["hosts"]] == [31] * 3


@pytest.mark.long
@pytest.mark.parametrize(("step", "fenced", "done"), [("drain", "kvm3", ["drain", "maintain", "recover"]), ("recover", "kvm2", [])])
def test_a_host_that_was_fenced_since_the_run_began_is_not_returned_to_service(desk: Desk, step: str, fenced: str, done: list[str]) -> None:
    desk.failures = {step: ["kvm2"]}
    assert desk.maintain().code != 0
    (run,) = desk.runs
    # A person has decided so, or it was evacuated meanwhile, and answers again, without guests.
    desk.put_entry(fenced, "fenced", "its memory is broken")
    desk.failures = {}
    again = desk.maintain(rolling_maintenance_run=run["id"])
    assert f"{fenced} failed in the step {'check' if fenced == 'kvm3' else 'recover'}. {fenced} is fenced in the ledger (its memory is broken)." in again.text
    assert (desk.done_to("kvm2"), desk.done_to("kvm3")) == (done, [])


@pytest.mark.long
def test_hosts_of_a_batch_are_out_of_service_together(desk: Desk) -> None:
    done = desk.maintain(rolling_maintenance_max_unavailable=2, rolling_maintenance_canary=True, rolling_maintenance_canary_minutes="0")
    assert done.code == 0, done.text
    acts = [line for line in desk.lines if not line.startswith("plan")]
    assert acts[:3] == ["drain kvm1", "maintain kvm1", "recover kvm1"]
    assert sorted(acts[3:5]) == ["drain kvm2", "drain kvm3"]
    assert desk.runs[0]["state"] == "finished"


@pytest.mark.long
def test_extra_variables_of_other_roles_do_not_change_what_the_run_decides(desk: Desk) -> None:
    desk.answers["host"]["kvm1"] = {"changed": False, "host": {"state": "maintenance", "reason": "disk fails"}}
    given = {
        "drain_host_candidates": "kvm3, kvm1",
        "rolling_maintenance_max_failure": 1,
        "drain_host_plan_file": "/nowhere/plan.json",
        "drain_host_n_plus_one": False,
        "drain_host_options": {"timeout_seconds": 9},
        "drain_host_reason": "CHG1",
        "recover_host_enable": True,
        "recover_host_bring_home": False,
        # As a workflow passes it on from an earlier job.
        "drain_host_result": {"kvm9": {"predicted_seconds": 1}},
    }
    done = desk.maintain(target="kvm1,kvm2", rolling_maintenance_one_more=True, rolling_maintenance_home=True, **given)
    assert done.code == 0, done.text
    assert "rolling_maintenance_max_failure is not an option of the role rolling_maintenance and has no effect." in " ".join(done.text.split())
    assert [args["fleet"] for _host, args in done.calls_of("fleet_check")] == [["kvm1", "kvm3"], ["kvm2", "kvm3", "kvm1"]]
    drained = {"apply": False, "file": "", "n_plus_one": True, "options": {"one_way": False, "timeout_seconds": 9}}
    # What somebody writes while the run goes on stays, too.
    own = {"own_reason": "Rolling maintenance"}
    assert desk.options_of("drain", "kvm1") == [{**drained, **own, "reason": ""}]
    assert desk.options_of("drain", "kvm2") == [{**drained, **own, "reason": "Rolling maintenance"}]
    assert [{**one, "reason": ""} for one in desk.options_of("plan", "kvm2")] == [{**drained, "own_reason": "", "reason": ""}] * 2
    # The host that somebody else has put into maintenance stays there.
    assert desk.options_of("recover", "kvm1") == [{"enable": False, "bring_home": True, **own}]
    assert desk.options_of("recover", "kvm2") == [{"enable": True, "bring_home": True, **own}]
    assert [host["predicted_seconds"] for host in desk.runs[0]["hosts"]] == [61, 61]


@pytest.mark.long
def test_one_way_moves_that_an_extra_variable_permits_are_permitted(desk: Desk) -> None:
    done = desk.maintain(target="kvm1", drain_host_options={"one_way": True}, recover_host_enable=False)
    assert done.code == 0, done.text
    assert desk.options_of("drain", "kvm1")[0]["options"] == {"one_way": True}
    # A person may want a host to stay in maintenance.
    assert desk.options_of("recover", "kvm1")[0]["enable"] is False


LOSS = {
    "losses": [{"hosts": ["kvm2"]}],
    "lines": ["The fleet cannot lose it.", "LOSS OF HOSTS", "  kvm2: cannot", "    web1 of kvm2, 4096 MiB: no host is left"],
}


@pytest.mark.long
def test_a_host_without_which_the_fleet_could_not_lose_one_more_is_not_drained(desk: Desk) -> None:
    desk.answers["fleet_check"]["kvm2"] = LOSS
    done = desk.maintain(rolling_maintenance_one_more=True)
    assert done.code != 0
    assert [host["status"] for host in desk.runs[0]["hosts"]] == ["done", "failed", "waiting"]
    assert (desk.done_to("kvm2"), desk.runs[0]["hosts"][1]["steps"][-1]["step"]) == (["plan", "plan"], "check")
    assert "the fleet could not lose kvm2 and one more host" in done.text
    assert "web1 of kvm2, 4096 MiB: no host is left" in done.text
    asked = [(host, args["lost"], args["hosts_lost"]) for host, args in done.calls_of("fleet_check")]
    assert asked == [("kvm1", ["kvm1"], 2), ("kvm2", ["kvm2"], 2)]


@pytest.mark.long
def test_guests_without_a_place_are_named_and_do_not_hinder_a_run_that_moves_them(desk: Desk) -> None:
    desk.answers["fleet_check"] = dict.fromkeys(HOSTS, LOSS)
    done = desk.maintain(rolling_maintenance_max_unavailable=2)
    assert done.code == 0, done.text
    assert "web1 of kvm2, 4096 MiB: no host is left" in done.text
    assert [(args["lost"], args["hosts_lost"]) for _host, args in done.calls_of("fleet_check")] == [(["kvm1", "kvm2"], 2)] * 2 + [(["kvm3"], 1)]


def test_a_host_that_fails_ends_the_run_and_is_named(desk: Desk) -> None:
    desk.failures = {"recover": ["kvm2"]}
    done = desk.maintain()
    assert done.code != 0
    (run,) = desk.runs
    assert (run["state"], [host["status"] for host in run["hosts"]]) == ("stopped", ["done", "failed", "waiting"])
    assert "Failed: kvm2 (recover: recover failed)" in done.text
    assert "Out of service: kvm2" in done.text
    assert desk.done_to("kvm3") == ["plan"]
    desk.failures = {}
    again = desk.maintain(rolling_maintenance_run=run["id"])
    assert again.code == 0, again.text
    assert (desk.done_to("kvm1"), desk.done_to("kvm2"), desk.done_to("kvm3")) == ([], ["recover"], ["plan", "drain", "maintain", "recover"])


@pytest.mark.long
def test_no_host_is_maintained_after_a_failed_drain_in_a_play_that_ignores_errors(desk: Desk) -> None:
    playbook = yaml.safe_load((COLLECTION / "playbooks/rolling_maintenance.yml").read_text())
    (desk.folder / "tasks").symlink_to(COLLECTION / "playbooks/tasks")
    path = desk.folder / "careless.yml"
    path.write_text(json.dumps([{**play, "ignore_errors": True} for play in playbook]))
    desk.failures = {"drain": ["kvm1"]}
    done = desk.maintain(playbook=str(path))
    assert "Failed: kvm1 (drain: drain failed)" in done.text
    assert "drain" in desk.done_to("kvm1")
    assert not any("maintain" in desk.done_to(host) for host in HOSTS)


@pytest.mark.long
def test_a_host_that_fails_before_its_drain_is_passed_over_and_named(desk: Desk) -> None:
    fails = {"name": "Fail", "ansible.builtin.fail": {"msg": "a disk is being rebuilt"}, "when": "inventory_hostname == 'kvm1'"}
    done = desk.maintain(rolling_maintenance_max_failures=1, rolling_maintenance_before_drain_tasks=desk.hook("before", fails))
    assert done.code != 0
    assert [host["status"] for host in desk.runs[0]["hosts"]] == ["failed", "done", "done"]
    assert "kvm1 (before_drain: a disk is being rebuilt)" in done.text


@pytest.mark.long
@pytest.mark.parametrize("kind", ["maintain", "reboot"])
def test_a_failed_command_of_the_operator_is_named_with_its_last_line(desk: Desk, kind: str) -> None:
    commands = {
        "kvm1": "echo Upgrading; echo warning >&2; printf 'E: the disk is \\033[31mfull\\n\\n' >&2; exit 3",
        "kvm2": "echo secret >&2; exit 3",
        "kvm3": "seq -s '' 200; exit 3",
    }
    fails = {"name": "Run it", "ansible.builtin.shell": "{{ commands[inventory_hostname] }}", "no_log": "{{ inventory_hostname == 'kvm2' }}"}
    tasks = {"rolling_maintenance_tasks" if kind == "maintain" else "rolling_maintenance_reboot_tasks": desk.hook("own", fails)}
    for host in HOSTS:
        desk.put_entry(host)
    options = {"rolling_maintenance_max_unavailable": 3, "rolling_maintenance_max_failures": 3, "rolling_maintenance_reboot": kind == "reboot"}
    done = desk.maintain(commands=commands, **options, **tasks)
    reasons = ["non-zero return code: E: the disk is [31mfull", "non-zero return code", f"non-zero return code: {''.join(map(str, range(1, 201)))[:200]}"]
    assert [host["error"] for host in desk.runs[0]["hosts"]] == reasons, done.text
    assert f"kvm1 ({kind}: {reasons[0]})" in done.text


@pytest.mark.long
@pytest.mark.parametrize("silent", [False, True])
def test_a_host_that_fails_ends_no_other_of_its_batch(desk: Desk, monkeypatch: pytest.MonkeyPatch, silent: bool) -> None:
    """Also where the configuration ends every play at its first error."""
    monkeypatch.setenv("ANSIBLE_ANY_ERRORS_FATAL", "true")
    if silent:
        desk.silence("kvm1")
    asks = {"name": "Ask the host", "kvmfleet.migration.migration_info": {"name": "web1"}, "when": "inventory_hostname == 'kvm1'"}
    done = desk.maintain(rolling_maintenance_tasks=desk.hook("ask", asks), rolling_maintenance_max_unavailable=2)
    assert [host["status"] for host in desk.runs[0]["hosts"]] == ["failed", "done", "waiting"], done.text
    assert "Failed: kvm1 (maintain: " in done.text


@pytest.mark.long
def test_a_host_that_becomes_unreachable_counts_as_failed_before_the_next_batch(desk: Desk) -> None:
    desk.silence("kvm1")
    loses = {"name": "Lose the host", "kvmfleet.migration.migration_info": {"name": "web1"}, "when": "inventory_hostname == 'kvm1'"}
    done = desk.maintain(rolling_maintenance_tasks=desk.hook("lose", loses), rolling_maintenance_max_unavailable=2)
    assert done.code != 0
    (run,) = desk.runs
    assert (run["state"], [host["status"] for host in run["hosts"]]) == ("stopped", ["failed", "done", "waiting"])
    assert "Failed: kvm1 (maintain: Ansible ended it in the step maintain" in done.text
    assert desk.done_to("kvm3") == ["plan"]


@pytest.mark.long
def test_hosts_with_nothing_to_do_are_passed_over(desk: Desk) -> None:
    nothing = {"name": "Look", "ansible.builtin.set_fact": {"rolling_maintenance_nothing_to_do": True}, "when": "inventory_hostname != 'kvm3'"}
    # An earlier run has left kvm1 in maintenance.
    desk.answers["host"]["kvm1"] = {"changed": False, "host": {"state": "maintenance", "reason": "Rolling maintenance"}}
    done = desk.maintain(rolling_maintenance_check_tasks=desk.hook("look", nothing))
    assert done.code == 0, done.text
    assert [host["status"] for host in desk.runs[0]["hosts"]] == ["done", "nothing to do", "done"]
    assert (desk.done_to("kvm1"), desk.done_to("kvm2")) == (["look", "recover"], ["look"])


@pytest.mark.long
def test_a_host_takes_its_steps_in_order_beside_one_that_only_returns_to_service(desk: Desk) -> None:
    nothing = {"name": "Look", "ansible.builtin.set_fact": {"rolling_maintenance_nothing_to_do": True}, "when": "inventory_hostname == 'kvm1'"}
    desk.answers["host"]["kvm1"] = {"changed": False, "host": {"state": "maintenance", "reason": "Rolling maintenance"}}
    hooks = {"rolling_maintenance_check_tasks": desk.hook("look", nothing), "rolling_maintenance_verify_tasks": desk.hook("verify")}
    done = desk.maintain(rolling_maintenance_max_unavailable=3, **hooks)
    assert done.code == 0, done.text
    assert [host["status"] for host in desk.runs[0]["hosts"]] == ["done"] * 3
    assert desk.done_to("kvm1") == ["look", "verify", "recover"]
    assert [desk.done_to(host) for host in ("kvm2", "kvm3")] == [["look", "plan", "plan", "drain", "maintain", "verify", "recover"]] * 2


@pytest.mark.long
def test_no_host_is_begun_for_one_that_only_returns_to_service(desk: Desk) -> None:
    nothing = {"name": "Look", "ansible.builtin.set_fact": {"rolling_maintenance_nothing_to_do": True}, "when": "inventory_hostname == 'kvm1'"}
    desk.answers["host"]["kvm1"] = {"changed": False, "host": {"state": "maintenance", "reason": "Rolling maintenance"}}
    desk.failures = {"recover": ["kvm3"]}
    done = desk.maintain(rolling_maintenance_max_unavailable=2, rolling_maintenance_check_tasks=desk.hook("look", nothing))
    assert "kvm3 failed, and max_failures is 0" in done.text
    # The hosts that are drained go together with their batch. Of what was not begun, nothing is begun after the failure.
    assert [host["status"] for host in desk.runs[0]["hosts"]] == ["waiting", "done", "failed"]
    assert (desk.done_to("kvm1"), "drain" in desk.done_to("kvm2")) == (["look"], True)


@pytest.mark.long
def test_check_mode_shows_the_plans_and_writes_nothing(desk: Desk) -> None:
    done = desk.maintain("--check")
    assert (done.code, "failed in the step" in done.text) == (0, False), done.text
    assert (desk.lines, desk.runs) == ([], [])


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"rolling_maintenance_until": "2020-01-01T00:00:00Z"}, "in the past"),
        ({"rolling_maintenance_max_unavailable": 9}, "max_unavailable is 9"),
        ({"rolling_maintenance_verify_tasks": "/nowhere.yml"}, "/nowhere.yml does not exist"),
        ({"rolling_maintenance_before_drain_tasks": "/nowhere.yml"}, "/nowhere.yml does not exist"),
        ({"rolling_maintenance_fence": "sometimes"}, "rolling_maintenance_fence"),
        ({"stage_failures": {"plan": ["kvm3"]}}, "plan failed"),
        ({"drain_host_plan_only": True}, "drain_host_plan_only is true"),
        ({"drain_host_plan_apply": "yes"}, "drain_host_plan_apply is true"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_changed(desk: Desk, variables: dict[str, t.Any], text: str) -> None:
    done = desk.maintain(**variables)
    assert done.code != 0
    assert text in done.text
    assert (desk.runs, [line for line in desk.lines if not line.startswith("plan")]) == ([], [])


@pytest.mark.long
@pytest.mark.parametrize("how", ["failed", "unreachable"])
def test_a_host_that_cannot_be_checked_ends_the_check_of_all_hosts(desk: Desk, how: str) -> None:
    desk.answers["host_facts"]["kvm2"] = {how: True, "msg": "libvirt does not answer."}
    done = desk.maintain()
    assert done.code != 0
    assert "kvm2 cannot be checked, and no host was changed: " in done.text
    assert "PLAY [Begin the run]" not in done.text
    assert (desk.lines, desk.runs) == ([], [])


@pytest.mark.long
def test_a_paused_run_is_left_open_and_the_same_command_continues_it(desk: Desk) -> None:
    pause = {"name": "Pause", "kvmfleet.migration.maintenance_run": {"state": "paused", "reason": "alarm"}, "when": "inventory_hostname == 'kvm2'"}
    done = desk.maintain(rolling_maintenance_tasks=desk.hook("pause", pause), rolling_maintenance_pause_seconds=5)
    assert done.code != 0
    (run,) = desk.runs
    assert (run["state"], [host["status"] for host in run["hosts"]]) == ("paused", ["done", "in progress", "waiting"])
    assert run["hosts"][1]["steps"][-1]["step"] == "maintain"
    control = desk.play("maintenance", request="resume")
    assert control.code == 0, control.text
    again = desk.maintain()
    assert again.code == 0, again.text
    assert desk.done_to("kvm2") == ["recover"]
    assert (desk.runs[0]["state"], desk.runs[0]["term"]) == ("finished", 2)


@pytest.mark.long
def test_hosts_are_drained_again_after_a_pause_that_the_process_has_waited_for(desk: Desk) -> None:
    desk.resume_once_paused()
    done = desk.maintain(target="kvm1,kvm2", stage_pauses=True, rolling_maintenance_max_unavailable=2)
    assert done.code == 0, done.text
    acts = ["drain", "drain", "maintain", "recover"]
    assert [desk.done_to(host)[2:] for host in ("kvm1", "kvm2")] == [acts, acts]
    assert [line["event"] for line in desk.runs[0]["history"]].count("continued") == 1


# Kills the playbook and its worker, which are found among its own parents.
KILLER = """
import os, pathlib
pid, found = os.getpid(), []
while pid > 1:
    words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")
    if words[1:4] == [b"-m", b"ansible", b"playbook"] or any(word.endswith(b"/ansible-playbook") for word in words[:2]):
        found.insert(0, pid)
    pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
for pid in found:
    os.kill(pid, 9)
"""


@pytest.mark.long
def test_a_run_whose_playbook_was_killed_continues_in_its_step(desk: Desk) -> None:
    script = desk.folder / "killer.py"
    script.write_text(KILLER)
    kill = {"name": "Kill", "ansible.builtin.command": f"python3 {script}", "delegate_to": "localhost", "when": "inventory_hostname == 'kvm2'"}
    done = desk.maintain(rolling_maintenance_tasks=desk.hook("killed", kill))
    assert done.code == -9
    (run,) = desk.runs
    assert (run["state"], run["holder"]["pid"] > 0, [host["status"] for host in run["hosts"]]) == ("running", True, ["done", "in progress", "waiting"])
    again = desk.maintain()
    assert again.code == 0, again.text
    assert (desk.done_to("kvm1"), desk.done_to("kvm2")) == ([], ["drain", "maintain", "recover"])
    assert (desk.runs[0]["id"], desk.runs[0]["state"], desk.runs[0]["term"]) == (run["id"], "finished", 2)


@pytest.mark.long
def test_a_run_brings_its_host_back_although_the_next_one_is_off(desk: Desk) -> None:
    desk.failures = {"drain": ["kvm2"]}
    assert desk.maintain().code != 0
    (run,) = desk.runs
    assert [host["status"] for host in run["hosts"]] == ["done", "failed", "waiting"]
    # While kvm2 is out of service, kvm3 loses its power, and is evacuated.
    desk.answers["host_facts"]["kvm3"] = {"unreachable": True, "msg": "Failed to connect to kvm3"}
    desk.answers["host"]["kvm3"] = {"changed": False, "host": {"state": "fenced", "reason": "no power"}}
    desk.failures = {"plan": ["kvm3"]}
    again = desk.maintain(rolling_maintenance_run=run["id"], rolling_maintenance_check_tasks=desk.hook("check"))
    assert "Failed: kvm3 (check: plan failed)" in again.text
    assert (desk.done_to("kvm2"), desk.done_to("kvm3")) == (["drain", "maintain", "recover"], ["plan"])
    assert "kvm3 is not checked now: Task failed: Failed to connect to kvm3" in again.text


@pytest.mark.long
def test_a_host_that_was_not_rebooted_fails_and_one_that_was_is_not_rebooted_again(desk: Desk) -> None:
    reboot = {"rolling_maintenance_reboot": True, "rolling_maintenance_reboot_tasks": desk.hook("reboot")}
    for host in HOSTS:
        desk.put_entry(host)
    done = desk.maintain(**reboot)
    assert done.code != 0
    assert "kvm1 was not rebooted" in done.text
    # Whether the host is safe to reboot is asked again right before the reboot.
    assert desk.done_to("kvm1") == ["plan", "plan", "drain", "maintain", "drain", "reboot"]
    ledger = FileLedger(str(desk.ledger))
    (document,) = ledger.list_maintenance_runs()
    run = document.maintenance_run
    host = run.hosts[0]
    # As if the boot that the ledger has was ended by the reboot.
    steps = (*host.steps[:-1], dataclasses.replace(host.steps[-1], boot_id="another"))
    ledger.put_maintenance_run(run.replace_host(dataclasses.replace(host, steps=steps)), document)
    again = desk.maintain(**reboot, rolling_maintenance_run=run.id)
    assert desk.done_to("kvm1") == ["recover"]
    assert [one["status"] for one in desk.runs[0]["hosts"]] == ["done", "failed", "waiting"]
    assert again.code != 0


@pytest.mark.long
def test_a_host_whose_new_drain_fails_is_not_fenced_for_the_verdict_of_an_earlier_one(desk: Desk) -> None:
    reboot = {"rolling_maintenance_reboot": True, "rolling_maintenance_reboot_tasks": desk.hook("reboot"), "target": "kvm1"}
    desk.put_entry("kvm1")
    done = desk.maintain(**reboot)
    assert "kvm1 was not rebooted" in done.text
    # Meanwhile, somebody has started a guest there, which cannot move. Then the connection is lost.
    desk.failures = {"drain": ["kvm1"]}
    again = desk.maintain(**reboot, rolling_maintenance_run=desk.runs[0]["id"], stage_loses=True, kvmfleet_fencing={"agent": "fence_ipmilan"})
    assert "kvm1 failed in the step reboot. drain failed" in again.text
    assert "did not come back from its reboot" not in again.text
    # A later process, which does not reach the host, knows no more of its guests.
    off = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1, "rolling_maintenance_reboot_timeout_seconds": 5}
    later = desk.maintain(**reboot, rolling_maintenance_run=desk.runs[0]["id"], **off, kvmfleet_fencing={"agent": "fence_ipmilan"})
    assert "kvm1 failed in the step reboot. " in later.text
    assert "did not come back from its reboot" not in later.text


@pytest.mark.long
@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_host_whose_reboot_a_person_has_aborted_is_not_fenced(desk: Desk, is_aborted: bool) -> None:
    """Somebody may work at the machine, whose power they have cut by hand. A pause fails for no other reason than an abort, or invalid options."""
    off = {"name": "Switch it off by hand", "ansible.builtin.set_fact": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}}
    aborted = {"name": "Wait until it was switched on", "ansible.builtin.pause": {"seconds": "aborted"}}
    failed = {"name": "Fail", "ansible.builtin.fail": {"msg": "It stays off."}}
    tasks = desk.hook("reboot", off, aborted if is_aborted else failed)
    desk.put_entry("kvm1")
    reboot = {"rolling_maintenance_reboot": True, "rolling_maintenance_reboot_tasks": tasks, "target": "kvm1"}
    done = desk.maintain(**reboot, kvmfleet_fencing={"agent": "fence_ipmilan"})
    assert ("kvm1 did not come back from its reboot" in done.text, desk.runs[0]["hosts"][0]["status"]) == (not is_aborted, "failed")


@pytest.mark.long
@pytest.mark.parametrize("is_aborted", [True, False])
def test_what_fails_for_a_whole_batch_is_judged_by_its_first_host(desk: Desk, is_aborted: bool) -> None:
    """A pause, or a task that runs once, is noted as the failed task of the first host only. The others have none, or one that failed before."""
    off = {"name": "Switch it off", "ansible.builtin.set_fact": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}}
    failed = {"name": "Reboot it", "ansible.builtin.fail": {"msg": "It stays off."}}
    aborted = {"name": "Wait until it was switched on", "ansible.builtin.pause": {"seconds": "aborted"}}
    by_hand = {"name": "Reboot it, or have it done by hand", "block": [off, failed], "rescue": [aborted]}
    tasks = desk.hook("reboot", by_hand) if is_aborted else desk.hook("reboot", off, {**failed, "run_once": True})
    for host in ("kvm1", "kvm2"):
        desk.put_entry(host)
    reboot = {"rolling_maintenance_reboot": True, "rolling_maintenance_reboot_tasks": tasks, "target": "kvm1,kvm2", "rolling_maintenance_max_unavailable": 2}
    done = desk.maintain(**reboot, kvmfleet_fencing={"agent": "fence_ipmilan"})
    fenced = [f"{host} did not come back from its reboot" in done.text for host in ("kvm1", "kvm2")]
    assert (fenced, [host["status"] for host in desk.runs[0]["hosts"]]) == ([not is_aborted] * 2, ["failed"] * 2)


@pytest.mark.long
def test_a_host_that_shows_a_guest_after_its_drain_is_not_rebooted(desk: Desk) -> None:
    desk.put_entry("kvm1")
    desk.report_guests("kvm1", domains=(f.domain("web1"),))
    done = desk.maintain(target="kvm1", rolling_maintenance_reboot=True, rolling_maintenance_reboot_tasks=desk.hook("reboot"))
    assert done.code != 0
    assert "kvm1 is not rebooted: web1 runs there" in done.text
    assert desk.done_to("kvm1") == ["plan", "plan", "drain", "maintain", "drain"]
    assert [host["status"] for host in desk.runs[0]["hosts"]] == ["failed"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("running", "expected", "passes"),
    [
        ("6.1.0-25-amd64", "6.1.0-25", True),
        ("6.1.0-9-amd64", "6.1.0-25", False),
        ("5.14.0-427.13.1.el9_4.x86_64", "5.14.0-427.20.1", False),
        ("5.14.0-427.13.1.el9_4.x86_64", "5.14", True),
        ("6.1-custom", "6.1.3", False),
        ("5.14.0-427.13.1.el9_4.x86_64", "5.14.0-427.el9", True),
        ("5.14.0-427.el9.x86_64", "5.14.0-427.13.1.el9_4", False),
        ("6.12.43+deb13-amd64", "6.12.43+deb13", True),
        ("6.5.0-0.deb12.1-amd64", "6.5.0-0.deb12.4", False),
    ],
)
def test_the_release_of_a_kernel_is_compared_if_the_expected_version_has_one(desk: Desk, running: str, expected: str, passes: bool) -> None:
    program = desk.folder / "uname"
    program.write_text(f"#!/bin/sh\necho {running}\n")
    program.chmod(0o755)
    tasks = [{"name": "Verify", "ansible.builtin.include_tasks": str(COLLECTION / "playbooks/tasks/verify_hypervisor.yml")}]
    path = desk.folder / "verify.yml"
    path.write_text(json.dumps([{"hosts": "kvm1", "gather_facts": False, "environment": {"PATH": f"{desk.folder}:/usr/bin:/bin"}, "tasks": tasks}]))
    done = desk.play(str(path), verify_hypervisor_kernel=expected)
    assert (done.code == 0) is passes, done.text
    assert passes or f"and {expected} or newer is expected" in done.text
