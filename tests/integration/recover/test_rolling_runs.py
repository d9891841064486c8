# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A maintenance run on real hosts: paused, stopped, killed and continued, and with a host that fails."""

from __future__ import annotations

import json
import shlex
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator, Run, lab_task
from ansible_collections.kvmfleet.migration.tests.integration.recover.test_rolling import boots, maintain
from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
NOTHING = "- name: Do it\n  ansible.builtin.command: 'true'\n  changed_when: false\n"


def control(operator: Operator, request: str, **variables: t.Any) -> Run:
    """Control the only open run from another terminal."""
    return operator.playbook("maintenance", request=request, **variables)


def runs(operator: Operator) -> list[dict[str, t.Any]]:
    return [document.body for document in operator.ledger.list_maintenance_runs()]


def states(run: dict[str, t.Any]) -> list[str]:
    return [host["status"] for host in run["hosts"]]


# Kills ansible-playbook and its worker the first time it runs; they are found among its own parents.
KILLER = """
import os, pathlib, sys
mark = pathlib.Path(sys.argv[1])
if mark.exists():
    sys.exit(0)
mark.touch()
pid, found = os.getpid(), []
while pid > 1:
    if any(word.endswith(b"/ansible-playbook") for word in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")[:2]):
        found.insert(0, pid)
    pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
for pid in found:
    os.kill(pid, 9)
"""


def killer(operator: Operator, point: str) -> list[str]:
    """Return the command that kills the playbook among its parents, once."""
    script = operator.folder / "killer.py"
    script.write_text(KILLER, encoding="utf-8")
    return ["python3", str(script), str(operator.folder / f"killed-{point}")]


def killed_in(operator: Operator, point: str) -> str:
    """Return a task that kills its playbook with SIGKILL, once."""
    task = {
        "name": "Kill the playbook once",
        "ansible.builtin.command": {"argv": killer(operator, point)},
        "changed_when": False,
        "delegate_to": "localhost",
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
    }
    return f"- {json.dumps(task)}\n"


@pytest.mark.long
def test_a_killed_run_continues_in_the_step_where_it_stood(lab: Lab, operator: Operator, guest: Make) -> None:
    one, two = guest("one"), guest("two", on=2)
    run = maintain(operator, killed_in(operator, "maintain"))
    assert run.code != 0
    (left,) = runs(operator)
    assert (left["state"], states(left), left["hosts"][0]["steps"][-1]["step"]) == ("running", ["in progress", "waiting"], "maintain")
    assert "is gone" in control(operator, "show").text or "is gone" in operator.playbook("status").text
    run = maintain(operator, killed_in(operator, "maintain"), rolling_maintenance_home=True)
    assert run.code == 0, run.text
    assert run.stats["rolling_maintenance_result"] == {lab.host(1): "done", lab.host(2): "done"}
    (done,) = runs(operator)
    assert (done["id"], done["state"], done["term"], states(done)) == (left["id"], "finished", 2, ["done", "done"])
    assert (lab.places(one), lab.places(two)) == ({1: "running"}, {2: "running"})
    assert {operator.entry(number)["state"] for number in (1, 2)} == {"enabled"}


@pytest.mark.long
def test_a_killed_run_brings_its_host_back_although_the_next_one_is_off(lab: Lab, operator: Operator) -> None:
    assert maintain(operator, killed_in(operator, "maintain")).code != 0
    lab("poweroff", lab.host(2))
    run = maintain(operator, killed_in(operator, "maintain"))
    assert run.code != 0
    assert f"{lab.host(2)} is not checked now: " in run.text
    assert run.stats.get("rolling_maintenance_result") == {lab.host(1): "done", lab.host(2): "failed: check"}
    assert operator.entry(1)["state"] == "enabled"


@pytest.mark.long
def test_a_pause_and_a_stop_from_another_terminal(lab: Lab, operator: Operator, guest: Make) -> None:
    two = guest("two", on=2)
    pause = operator.folder / "pause.yml"
    pause.write_text(
        "---\n- name: Pause the run once from another terminal\n  kvmfleet.migration.maintenance_run:\n    state: paused\n    reason: alarm\n",
        encoding="utf-8",
    )
    run = maintain(operator, NOTHING, rolling_maintenance_before_drain_tasks=str(pause), rolling_maintenance_pause_seconds=5)
    assert run.code != 0
    (left,) = runs(operator)
    assert (left["state"], states(left)) == ("paused", ["in progress", "waiting"])
    assert "alarm" in left["reason"]
    assert control(operator, "stop", reason="enough").code == 0
    (closed,) = runs(operator)
    assert (closed["state"], closed["holder"], states(closed)) == ("stopped", None, ["failed", "waiting"])
    run = maintain(operator, NOTHING, rolling_maintenance_run=closed["id"])
    assert run.code == 0, run.text
    assert run.stats["rolling_maintenance_result"] == {lab.host(1): "done", lab.host(2): "done"}
    assert lab.places(two).values()


@pytest.mark.long
def test_a_host_that_fails_before_its_drain_is_passed_over_within_max_failures(lab: Lab, operator: Operator, guest: Make) -> None:
    guest("one")
    fails = operator.folder / "fails.yml"
    condition = f"inventory_hostname == '{lab.host(1)}'"
    task = {"name": "Fail on the first host", "ansible.builtin.fail": {"msg": "The disk array is being rebuilt"}, "when": condition}
    fails.write_text(json.dumps([task]), encoding="utf-8")
    run = maintain(operator, NOTHING, rolling_maintenance_before_drain_tasks=str(fails), rolling_maintenance_max_failures=1)
    assert run.code != 0
    assert run.stats["rolling_maintenance_result"] == {lab.host(1): "failed: before_drain", lab.host(2): "done"}
    assert "The disk array is being rebuilt" in run.text
    # The ledger has no entry of a host that nothing was done to.
    assert [document.host.name for document in operator.ledger.list_hosts() if document.host.state != "enabled"] == []
    assert operator.entry(2)["state"] == "enabled"
    run = maintain(operator, NOTHING, rolling_maintenance_before_drain_tasks=str(fails))
    assert run.stats["rolling_maintenance_result"] == {lab.host(1): "failed: before_drain", lab.host(2): "not begun"}


@pytest.mark.long
def test_a_host_is_rebooted_once_although_the_run_was_killed_after_it(lab: Lab, operator: Operator, guest: Make) -> None:
    guest("one")
    operator.protect()
    before = boots(lab)
    reboot, verify = operator.folder / "reboot.yml", operator.folder / "verify.yml"
    reboot.write_text("---\n" + lab_task(lab, "poweroff") + lab_task(lab, "poweron") + killed_in(operator, "reboot"), encoding="utf-8")
    verify.write_text("---\n" + NOTHING, encoding="utf-8")
    options = {"rolling_maintenance_reboot": True, "rolling_maintenance_reboot_tasks": str(reboot), "rolling_maintenance_verify_tasks": str(verify)}
    assert maintain(operator, NOTHING, **options).code != 0
    once = boots(lab)
    assert once[1] != before[1]
    run = maintain(operator, NOTHING, **options)
    assert run.code == 0, run.text
    after = boots(lab)
    assert (after[1] == once[1], after[2] != before[2]) == (True, True)


@pytest.mark.long
def test_what_cannot_be_is_refused_and_no_host_is_put_into_maintenance(lab: Lab, operator: Operator, guest: Make) -> None:
    guest("one")
    refusals = {
        "in the past": {"rolling_maintenance_until": "2020-01-01T00:00:00Z"},
        "max_unavailable is 5": {"rolling_maintenance_max_unavailable": 5},
        "does not exist on the control node": {"rolling_maintenance_verify_tasks": "/nowhere.yml"},
    }
    for text, given in refusals.items():
        run = maintain(operator, NOTHING, **given)
        assert (run.code != 0, text in run.text) == (True, True), run.text
    assert runs(operator) == [] if operator.path.exists() else True


@pytest.mark.long
def test_more_hosts_than_the_fleet_can_lose_and_two_nights_over_one_host_are_refused(lab: Lab, operator: Operator, guest: Make) -> None:
    one, two = guest("one"), guest("two", on=2)
    # The third host has room for one of the guests only.
    run = maintain(operator, NOTHING, rolling_maintenance_max_unavailable=2, kvmfleet_scheduler={"limits": {"domains": 1}})
    assert (run.code != 0, "STAYS" in run.text, "No host can accept it" in run.text) == (True, True, True), run.text
    assert (operator.records(), runs(operator) if operator.path.exists() else []) == ([], [])
    pause = operator.folder / "pause.yml"
    pause.write_text("---\n- name: Pause\n  kvmfleet.migration.maintenance_run:\n    state: paused\n", encoding="utf-8")
    assert maintain(operator, NOTHING, rolling_maintenance_before_drain_tasks=str(pause), rolling_maintenance_pause_seconds=5).code != 0
    other = operator.playbook("rolling_maintenance", target=f"{lab.host(2)},{lab.host(3)}", rolling_maintenance_tasks=str(operator.folder / "tasks.yml"))
    assert (other.code != 0, f"{lab.host(2)} cannot be maintained twice at the same time" in other.text) == (True, True), other.text
    assert len(runs(operator)) == 1
    assert "maintenance" not in {operator.entry(number)["state"] for number in (2, 3) if operator.ledger.find_host(name=lab.host(number))}
    assert (lab.places(one), lab.places(two)) == ({1: "running"}, {2: "running"})
    assert control(operator, "stop").code == 0


def with_agent(operator: Operator) -> dict[str, t.Any]:
    """Return the variables by which each host has the lab's fence agent."""
    return {"kvmfleet_fencing": {"agent": agents.of_the_lab(operator.folder), "options": {"plug": "{{ inventory_hostname }}"}}}


def events(run: dict[str, t.Any], event: str) -> list[str]:
    return [line["host"] for line in run["history"] if line["event"] == event]


@pytest.mark.long
def test_a_host_that_does_not_come_back_is_switched_off_and_on_by_its_agent(lab: Lab, operator: Operator, guest: Make) -> None:
    one = guest("one")
    operator.protect()
    before = boots(lab)
    # The first host goes down and stays so; the second one comes back.
    reboot = operator.folder / "reboot.yml"
    off, on = (json.loads(lab_task(lab, verb)[2:]) for verb in ("poweroff", "poweron"))
    reboot.write_text(json.dumps([off, {**on, "when": f"inventory_hostname != '{lab.host(1)}'"}]), encoding="utf-8")
    options = {"rolling_maintenance_reboot": True, "rolling_maintenance_reboot_tasks": str(reboot), "rolling_maintenance_reboot_timeout_seconds": 20}
    run = maintain(operator, NOTHING, rolling_maintenance_one_more=True, rolling_maintenance_home=True, **options, **with_agent(operator))
    assert run.code == 0, run.text
    assert f"{lab.host(1)} did not come back from its reboot" in run.text
    (done,) = runs(operator)
    assert (done["state"], events(done, "host_fenced")) == ("finished", [lab.host(1)])
    after = boots(lab)
    assert [number for number in after if after[number] != before[number]] == [1, 2]
    assert lab.places(one) == {1: "running"}


@pytest.mark.long
def test_a_host_is_rebooted_by_its_agent_alone_unless_a_guest_runs_there(lab: Lab, operator: Operator, guest: Make) -> None:
    one = guest("one")
    before = boots(lab)
    # Somebody starts a guest on the drained host while the maintenance runs.
    start = {**json.loads(lab_task(lab, "guest")[2:]), "when": f"inventory_hostname == '{lab.host(1)}'"}
    start["ansible.builtin.command"] = {
        "argv": [*start["ansible.builtin.command"]["argv"][:-1], "late", "--host", lab.host(1), "--mib", "48", "--storage", "local"]
    }
    variables = {"rolling_maintenance_reboot": True, "rolling_maintenance_fence": "always", **with_agent(operator)}
    run = maintain(operator, f"- {json.dumps(start)}\n", **variables)
    assert run.code != 0
    assert run.stats["rolling_maintenance_result"] == {lab.host(1): "failed: reboot", lab.host(2): "not begun"}
    assert (boots(lab), lab.places("late")) == (before, {1: "running"})
    lab("rmguest", "late")
    run = maintain(operator, NOTHING, rolling_maintenance_run=runs(operator)[0]["id"], **variables)
    assert run.code == 0, run.text
    (done,) = runs(operator)
    assert events(done, "host_fenced") == [lab.host(1), lab.host(2)]
    after = boots(lab)
    assert [number for number in after if after[number] != before[number]] == [1, 2]
    assert "running" in lab.places(one).values()


# Kills its playbook once instead of switching the host on.
DIES = """input=$(cat)
case "$input" in
    *action=on*) test -e '{mark}' || {{ {command}; exit 1; }} ;;
esac
echo "$input" | '{agent}'
"""


@pytest.mark.long
@pytest.mark.parametrize("fence", ["always", "if_gone"])
def test_a_host_that_a_killed_fence_left_off_is_switched_on(lab: Lab, operator: Operator, guest: Make, fence: str) -> None:
    one = guest("one")
    before = boots(lab)
    command = killer(operator, "on")
    script = DIES.format(mark=command[-1], command=shlex.join(command), agent=agents.of_the_lab(operator.folder))
    fencing = {"agent": agents.write(operator.folder, "fence_dies", script), "options": {"plug": "{{ inventory_hostname }}"}}
    reboot = operator.folder / "reboot.yml"
    # The hosts go down and stay so.
    reboot.write_text("---\n" + lab_task(lab, "poweroff"), encoding="utf-8")
    variables = {
        "rolling_maintenance_reboot": True,
        "rolling_maintenance_reboot_tasks": str(reboot),
        "rolling_maintenance_reboot_timeout_seconds": 20,
        "rolling_maintenance_fence": fence,
        "kvmfleet_fencing": fencing,
    }
    assert maintain(operator, NOTHING, **variables).code != 0
    (left,) = runs(operator)
    assert (left["state"], left["hosts"][0]["steps"][-1]["step"], events(left, "host_fenced")) == ("running", "reboot", [lab.host(1)])
    assert lab.try_("exec", lab.host(1), "--", "true").returncode != 0
    run = maintain(operator, NOTHING, **variables)
    assert run.code == 0, run.text
    (done,) = runs(operator)
    assert (done["state"], events(done, "host_fenced")) == ("finished", [lab.host(1), lab.host(2)])
    after = boots(lab)
    assert [number for number in after if after[number] != before[number]] == [1, 2]
    assert "running" in lab.places(one).values()


@pytest.mark.long
def test_a_guest_that_could_not_come_back_is_moved_only_where_that_is_allowed(lab: Lab, operator: Operator, guest: Make) -> None:
    one = guest("one")
    lab("believe", lab.host(1), "--qemu", "6.2.0")
    try:
        run = maintain(operator, NOTHING)
        assert run.code != 0
        assert f"{one} could not come back to {lab.host(1)}, which would refuse it: its QEMU is older: 6.2.0" in run.text
        assert (runs(operator), lab.places(one)) == ([], {1: "running"})
        assert operator.records() == []
        run = maintain(operator, NOTHING, rolling_maintenance_one_way=True)
        assert run.code == 0, run.text
        assert set(lab.places(one)) <= {2, 3}
    finally:
        lab("believe", lab.host(1))
