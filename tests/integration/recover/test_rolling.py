# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook C(rolling_maintenance) on two hosts of three."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator, Run, lab_task
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]


def maintain(operator: Operator, *tasks: str, options: t.Sequence[str] = (), wait_seconds: int = 60, **variables: t.Any) -> Run:
    """Run the playbook on the first two hosts, with a tasks file of these tasks."""
    file = operator.folder / "tasks.yml"
    file.write_text("---\n" + "".join(tasks), encoding="utf-8")
    hosts = [operator.lab.host(number) for number in (1, 2)]
    given = {"target": ",".join(hosts), "rolling_maintenance_tasks": str(file), "recover_host_timeout_seconds": wait_seconds}
    return operator.playbook("rolling_maintenance", *options, **given, **variables)


def boots(lab: Lab) -> dict[int, str]:
    return {number: lab.on(number, "cat", "/proc/sys/kernel/random/boot_id") for number in (1, 2, 3)}


@pytest.mark.long
def test_hosts_are_drained_rebooted_and_recovered_one_by_one(lab: Lab, operator: Operator, guest: Make) -> None:
    one, two, polite = guest("one"), guest("two", on=2), guest("polite", "--acpi", on=2)
    operator.stop_on_drain(2, polite)
    operator.protect()
    before = boots(lab)
    cycle = lab_task(lab, "poweroff") + lab_task(lab, "poweron")
    run = maintain(operator, cycle, recover_host_bring_home=True)
    assert run.code == 0, run.text
    assert run.stats["rolling_maintenance_result"] == {lab.host(1): "done", lab.host(2): "done"}
    after = boots(lab)
    assert [number for number in after if after[number] != before[number]] == [1, 2]
    assert (lab.places(one), lab.places(two), lab.places(polite)) == ({1: "running"}, {2: "running"}, {2: "running"})
    assert {operator.entry(number)["state"] for number in (1, 2)} == {"enabled"}


@pytest.mark.long
def test_check_mode_of_rolling_maintenance_changes_nothing(lab: Lab, operator: Operator, guest: Make) -> None:
    one = guest("one")
    operator.protect()
    before, state = boots(lab), (operator.entry(1)["state"], operator.entry(2)["state"])
    run = maintain(operator, lab_task(lab, "poweroff") + lab_task(lab, "poweron"), options=["--check"])
    assert run.code == 0, run.text
    assert (boots(lab), lab.places(one)) == (before, {1: "running"})
    assert (operator.entry(1)["state"], operator.entry(2)["state"]) == state
    assert operator.records() == []


@pytest.mark.long
def test_maintenance_stops_at_a_host_that_does_not_return_and_resumes_there(lab: Lab, operator: Operator, guest: Make) -> None:
    guest("one")
    two = guest("two", on=2)
    run = maintain(operator, lab_task(lab, "poweroff"), wait_seconds=5)
    assert run.code != 0
    assert run.stats["rolling_maintenance_result"] == {lab.host(1): "failed: recover", lab.host(2): "not begun"}
    assert "did not return within 5 s" in run.text
    assert (operator.entry(1)["state"], lab.places(two)) == ("maintenance", {2: "running"})

    lab("poweron", lab.host(1))
    check = operator.folder / "check.yml"
    check.write_text("---\n- name: Look\n  ansible.builtin.set_fact:\n    rolling_maintenance_nothing_to_do: true\n", encoding="utf-8")
    run = maintain(operator, lab_task(lab, "poweroff"), rolling_maintenance_check_tasks=str(check))
    assert run.code == 0, run.text
    assert run.stats["rolling_maintenance_result"] == {lab.host(1): "done", lab.host(2): "nothing to do"}
    assert (operator.entry(1)["state"], lab.places(two)) == ("enabled", {2: "running"})


@pytest.mark.long
def test_no_host_is_changed_if_one_cannot_be_drained_or_does_not_answer(lab: Lab, operator: Operator, guest: Make) -> None:
    one, stuck = guest("one"), guest("stuck", "--storage", "local", on=2)
    marker = "- name: Leave a mark\n  ansible.builtin.file:\n    path: /run/touched\n    state: touch\n    mode: '0600'\n"
    run = maintain(operator, marker)
    assert (run.code != 0, f"STAYS stuck on {lab.host(2)}" in run.text, "is next" in run.text) == (True, True, False), run.text
    assert (lab.places(one), lab.places(stuck)) == ({1: "running"}, {2: "running"})
    lab("poweroff", lab.host(2))
    assert maintain(operator, marker).code != 0
    assert lab.try_("exec", lab.host(1), "--", "test", "-e", "/run/touched").returncode != 0
    assert lab.places(one)[1] == "running"


@pytest.mark.long
def test_a_host_in_maintenance_for_another_reason_stays_in_maintenance(lab: Lab, operator: Operator) -> None:
    assert operator.task(1, "host", {"state": "maintenance", "reason": "Memory to be replaced"}).code == 0
    run = maintain(operator, "- name: Do it\n  ansible.builtin.command: 'true'\n  changed_when: false\n")
    assert run.code == 0, run.text
    assert (operator.entry(1)["state"], operator.entry(1)["reason"]) == ("maintenance", "Memory to be replaced")
    assert operator.entry(2)["state"] == "enabled"


@pytest.mark.long
def test_hosts_that_a_person_puts_into_maintenance_in_the_night_stay_there(lab: Lab, operator: Operator) -> None:
    operator.protect()
    names = [lab.host(number) for number in (1, 2)]
    act = "- name: A person acts\n  kvmfleet.migration.host: {{name: {0}, state: maintenance, reason: A disk fails}}\n  when: inventory_hostname == '{1}'\n"
    # While the first host is maintained, the second one waits for its drain.
    run = maintain(operator, *(act.format(name, names[0]) for name in names))
    assert run.code == 0, run.text
    assert [(operator.entry(number)["state"], operator.entry(number)["reason"]) for number in (1, 2)] == [("maintenance", "A disk fails")] * 2


@pytest.mark.long
def test_a_host_is_drained_beside_one_that_an_earlier_run_left_in_maintenance(lab: Lab, operator: Operator, guest: Make) -> None:
    two = guest("two", on=2)
    assert operator.task(1, "host", {"state": "maintenance", "reason": "Rolling maintenance"}).code == 0
    check = operator.folder / "check.yml"
    nothing = f"rolling_maintenance_nothing_to_do: \"{{{{ inventory_hostname == '{lab.host(1)}' }}}}\""
    check.write_text(f"---\n- name: Look\n  ansible.builtin.set_fact:\n    {nothing}\n", encoding="utf-8")
    task = "- name: Do it\n  ansible.builtin.command: 'true'\n  changed_when: false\n"
    run = maintain(operator, task, rolling_maintenance_check_tasks=str(check), rolling_maintenance_max_unavailable=2)
    assert run.code == 0, run.text
    assert run.stats["rolling_maintenance_result"] == {lab.host(1): "done", lab.host(2): "done"}
    assert 2 not in lab.places(two)
    assert {operator.entry(number)["state"] for number in (1, 2)} == {"enabled"}


@pytest.mark.long
def test_rolling_maintenance_with_bad_input_changes_nothing(operator: Operator) -> None:
    run = operator.playbook("rolling_maintenance", target="kvmfleet_hosts", rolling_maintenance_tasks="/nowhere.yml")
    assert (run.code != 0, "The tasks file /nowhere.yml does not exist" in run.text) == (True, True)
    assert operator.playbook("rolling_maintenance", target="kvmfleet_hosts").code != 0
    assert operator.playbook("recover", target="nobody").code != 0
    assert not operator.path.exists()
