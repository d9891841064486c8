# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts of a play share the work of an evacuation: not those that answer to another user than root, which are named, and that take no part in it."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import Stage, build_collection

REASON = "the user is not root there, and only root can start domains"
# The role asks the hosts twice: before the dead host is fenced, and after it.
PLAY = """\
- hosts: kvmfleet_hosts
  gather_facts: false
  vars:
    evacuate_host_source: kvm9
  tasks:
    - ansible.builtin.include_role:
        name: kvmfleet.migration.evacuate_host
        tasks_from: gather.yml
        public: true
      loop: [before, after]
    - ansible.builtin.debug:
        msg: "{{ inventory_hostname }} shares with {{ __evacuate_host_gathered.survivors }}, without {{ __evacuate_host_gathered.excluded }}"
      run_once: true
"""


def test_hosts_without_root_leave_the_play_with_a_warning_and_stay_named(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "host_facts"), tmp_path)
    facts = {name: f.host(name) for name in ("kvm1", "kvm2", "kvm3")}
    facts["kvm1"]["unverified_reasons"] = {"paths": "libvirt withholds it"}
    stage.answers["host_facts"] = {name: {"changed": False, "ansible_facts": {"kvmfleet_host": facts[name]}} for name in facts}
    (tmp_path / "play.yml").write_text(PLAY)
    done = stage.play(str(tmp_path / "play.yml"))
    text = " ".join(done.text.split())
    assert done.code == 0, done.text
    assert sorted(host for host, _args in done.calls_of("host_facts")) == ["kvm1", "kvm2", "kvm2", "kvm3", "kvm3"]
    assert text.count(f"kvm1 starts no domain of kvm9: {REASON}. Set become: true for kvm1, or connect to it as root, and run this again.") == 1
    assert f"kvm2 shares with ['kvm2', 'kvm3'], without {{'kvm1': '{REASON}'}}" in text


def test_a_host_that_takes_no_part_in_a_second_evacuation_gets_no_share_of_it(tmp_path: pathlib.Path) -> None:
    stage = Stage(build_collection(tmp_path / "collections", "evacuate_plan", "evacuate_verify"), tmp_path)
    answered = {"changed": False, "assess_first": True, "domains": [], "source": {"host": "kvm9"}, "excluded": {}, "ansible_facts": {}}
    stage.answers["evacuate_plan"] = {name: {**answered, "survivors": ["kvm1", "kvm2", "kvm3"]} for name in ("kvm1", "kvm2", "kvm3")}
    stage.answers["evacuate_verify"] = {"kvm1": {"changed": False, "result": {}, "problem": ""}}
    role = {"ansible.builtin.include_role": {"name": "kvmfleet.migration.evacuate_host"}}
    play = {"hosts": "kvmfleet_hosts", "gather_facts": False, "vars": {"evacuate_host_source": "kvm9"}}
    (tmp_path / "play.yml").write_text(json.dumps([{**play, "tasks": [role, {**role, "when": "inventory_hostname != 'kvm3'"}]}]))
    done = stage.play(str(tmp_path / "play.yml"))
    assert done.code == 0, done.text
    asked = [args["_work"]["asked"] for _host, args in done.calls_of("evacuate_plan") if args["step"] == "survivors"]
    assert [[host for host, answer in one.items() if answer] for one in asked] == [["kvm1", "kvm2", "kvm3"], ["kvm1", "kvm2"]]


@pytest.mark.parametrize("seed", ["2", "4"])
def test_hosts_share_the_work_in_the_order_of_the_inventory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    # The order of a set of names depends on it.
    monkeypatch.setenv("PYTHONHASHSEED", seed)
    stage = Stage(build_collection(tmp_path / "collections", "evacuate_plan"), tmp_path)
    stage.answers["evacuate_plan"] = {"kvm1": {"failed": True, "msg": "Nothing was done."}}
    done = stage.play("evacuate", source="kvm3")
    ((host, args),) = done.calls_of("evacuate_plan")
    assert (host, args["_work"]["play"]) == ("kvm1", ["kvm1", "kvm2"]), done.text


def test_a_play_that_cannot_read_the_variables_of_its_role_evacuates_a_host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_PRIVATE_ROLE_VARS", "1")
    stage = Stage(build_collection(tmp_path / "collections", "evacuate_plan"), tmp_path)
    stage.answers["evacuate_plan"] = {"kvm1": {"failed": True, "msg": "Stop here."}}
    done = stage.play("evacuate", source="kvm3")
    assert [(host, args["step"]) for host, args in done.calls_of("evacuate_plan")] == [("kvm1", "check")], done.text
