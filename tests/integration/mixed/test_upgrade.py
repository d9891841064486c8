# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole fleet gets the newer release host by host, by C(rolling_maintenance): no guest is lost, none is shut down; and the way back."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.mixed.support import fleet as m
from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator, Run
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND, Lab

Make = t.Callable[..., str]

WRITER = ("--mib", "64", "--dirty-mib", "32", "--rate", "1000", "--integrity")
NEWER_LIBVIRT = 11_000_000


@pytest.fixture
def older(lab: Lab, fresh: None) -> None:
    """Every host runs the older release."""
    for number in m.HOSTS:
        m.change_release(lab, number, m.OLD_RELEASE)


def releases(lab: Lab) -> list[str]:
    rows = lab.rows()
    return [rows[lab.host(number)]["release"] for number in m.HOSTS]


def change_to(operator: Operator, release: str, *hosts: int, **variables: t.Any) -> Run:
    """Give hosts another release, one by one, as somebody does who sets them up anew around their own disks."""
    tasks = operator.folder / "tasks.yml"
    verbs = [["poweroff"], ["release", release], ["poweron"]]
    tasks.write_text("---\n" + "".join(f"- {json.dumps(_task(operator.lab, verb))}\n" for verb in verbs), encoding="utf-8")
    target = ",".join(operator.lab.host(number) for number in hosts)
    return operator.playbook("rolling_maintenance", target=target, rolling_maintenance_tasks=str(tasks), **variables)


def _task(lab: Lab, verb: list[str]) -> dict[str, t.Any]:
    return {
        "name": f"Give the host to {verb[0]}",
        "ansible.builtin.command": {"argv": [str(COMMAND), "--prefix", lab.prefix, verb[0], "{{ inventory_hostname }}", *verb[1:]]},
        "changed_when": True,
        "delegate_to": "localhost",
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
    }


def only_older(folder: pathlib.Path) -> str:
    """Return a file of tasks that leaves out a host whose libvirt is the newer one."""
    tasks = [
        {"name": "Gather the facts of the host", "kvmfleet.migration.host_facts": {}, "register": "asked"},
        {
            "name": "See whether it is the newer one",
            "ansible.builtin.set_fact": {
                "rolling_maintenance_nothing_to_do": f"{{{{ asked.ansible_facts.kvmfleet_host.versions.libvirt >= {NEWER_LIBVIRT} }}}}"
            },
        },
    ]
    file = folder / "check.yml"
    file.write_text(f"---\n{json.dumps(tasks)}\n", encoding="utf-8")
    return str(file)


def check_kept(lab: Lab, uuids: t.Mapping[str, str]) -> dict[str, int]:
    """Every guest runs once, is the same domain as ever, and lost nothing of its memory; return where each is."""
    where = {}
    for name, uuid in uuids.items():
        places = lab.places(name)
        assert list(places.values()) == ["running"], (name, places)
        (where[name],) = places
        assert lab.uuid(name, where[name]) == uuid
        assert lab.check(name)["intact"]
    return where


def test_a_fleet_is_upgraded_host_by_host_without_a_guest_lost(lab: Lab, older: None, operator: Operator, guest: Make) -> None:
    names = {guest(f"web{number}", *WRITER, on=number): number for number in m.HOSTS}
    names |= {guest(f"idle{number}", "--mib", "32", "--autostart", on=number): number for number in m.HOSTS}
    uuids = {name: lab.uuid(name, number) for name, number in names.items()}
    operator.protect()
    before = {number: operator.entry(number)["host_id"] for number in m.HOSTS}
    check = only_older(operator.folder)

    run = change_to(operator, m.NEW_RELEASE, *m.HOSTS, rolling_maintenance_check_tasks=check, recover_host_bring_home=True, rolling_maintenance_one_way=True)
    assert run.code == 0, run.text
    assert set(run.stats["rolling_maintenance_result"].values()) == {"done"}
    assert releases(lab) == [m.NEW_RELEASE] * 3
    where = check_kept(lab, uuids)
    assert where == names
    assert {m.machine_of(lab, name, where[name]) for name in names} == {m.OLD_MACHINE}
    assert {number: operator.entry(number)["host_id"] for number in m.HOSTS} == before
    assert {operator.entry(number)["state"] for number in m.HOSTS} == {"enabled"}
    assert {record["status"] for record in operator.records()} == {"completed"}

    again = change_to(operator, m.NEW_RELEASE, *m.HOSTS, rolling_maintenance_check_tasks=check, recover_host_bring_home=True, rolling_maintenance_one_way=True)
    assert again.code == 0, again.text
    assert set(again.stats["rolling_maintenance_result"].values()) == {"nothing to do"}
    assert check_kept(lab, uuids) == names


def test_an_upgraded_host_is_recovered_and_accepts_guests_again(lab: Lab, older: None, operator: Operator, guest: Make) -> None:
    name = guest("web", *WRITER)
    uuids = {name: lab.uuid(name)}
    operator.protect()
    operator.drain(1)
    (away,) = lab.places(name)
    m.change_release(lab, 1, m.NEW_RELEASE)
    refused = operator.task(away, "live_migrate", {"name": name, "destination": lab.host(1)})
    assert (refused.code != 0, "maintenance" in refused.msg) == (True, True), refused.text
    run, own = operator.recover(1)
    assert (run.code, own["released"], own["enabled"]) == (0, True, True), run.text
    moved = operator.task(away, "live_migrate", {"name": name, "destination": lab.host(1)})
    assert moved.code == 0, moved.text
    assert check_kept(lab, uuids) == {name: 1}


def test_a_downgrade_is_refused_before_any_host_is_changed(lab: Lab, operator: Operator, guest: Make) -> None:
    """One host has the older release already. What runs with the newer machine type fits on none of that, and what runs on the newer QEMU needs a person."""
    m.change_release(lab, m.NEWER, m.OLD_RELEASE)
    newer, older = guest("newer", *WRITER, on=m.NEW), guest("older", *WRITER, "--machine", m.OLD_MACHINE, on=m.NEW)
    uuids = {name: lab.uuid(name, m.NEW) for name in (newer, older)}
    before = lab.on(m.NEW, "cat", "/proc/sys/kernel/random/boot_id")
    run = change_to(operator, m.OLD_RELEASE, m.NEW)
    assert run.code != 0, run.text
    for name, reason in ((newer, f"machine type {m.NEW_MACHINE}"), (older, "QEMU is older")):
        assert f"STAYS {name} on {lab.host(m.NEW)}" in run.text, run.text
        assert reason in run.text
    assert "is next" not in run.text
    assert lab.on(m.NEW, "cat", "/proc/sys/kernel/random/boot_id") == before
    assert check_kept(lab, uuids) == dict.fromkeys(uuids, m.NEW)
