# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose answers show one guest as active twice: they are asked again, because the guest may have moved between the answers."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import HOSTS, Stage, build_collection
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

EVACUATE = """\
- hosts: kvmfleet_hosts
  gather_facts: false
  vars:
    evacuate_host_source: kvm9
  tasks:
    - ansible.builtin.include_role:
        name: kvmfleet.migration.evacuate_host
        tasks_from: gather.yml
        public: true
    - ansible.builtin.debug:
        msg: "CONTINUES with {{ __evacuate_host_gathered.survivors }}, without {{ __evacuate_host_gathered.excluded }}"
      run_once: true
"""
RECOVER = """\
- hosts: kvm1
  gather_facts: false
  vars:
    __recover_host_entry: {host: {name: kvm1}}
  tasks:
    - ansible.builtin.include_role:
        name: kvmfleet.migration.recover_host
        tasks_from: "{{ item }}.yml"
        public: true
      loop: [ask, check]
    - ansible.builtin.debug:
        msg: "CONTINUES with {{ __recover_host_checked.displaced }}"
"""

Answer = dict[str, t.Any]


def answer(name: str, is_active: bool) -> Answer:
    return {"changed": False, "ansible_facts": {"kvmfleet_host": f.host(name, domains=[f.domain("web1")] if is_active else [])}}


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build_collection(tmp_path_factory.mktemp("collections"), "host_facts")


@pytest.fixture(params=[EVACUATE, RECOVER], ids=["evacuate", "recover"])
def stage(request: pytest.FixtureRequest, collections: pathlib.Path, tmp_path: pathlib.Path) -> Stage:
    stage = Stage(collections, tmp_path)
    stage.answers["host_facts"] = {name: answer(name, is_active=False) for name in HOSTS}
    ledger = FileLedger(str(stage.ledger), create=True)
    for name in HOSTS:
        known = f.host(name)
        ledger.put_host(host_entry({"name": name, "host_id": known["host_id"] or known["host_uuid"], "host_uuid": known["host_uuid"]}), None)
    (tmp_path / "play.yml").write_text(request.param)
    return stage


def test_a_guest_that_moved_between_two_answers_stops_nothing(stage: Stage) -> None:
    stage.answers["host_facts"]["kvm1"] = [answer("kvm1", is_active=True), answer("kvm1", is_active=False)]
    stage.answers["host_facts"]["kvm2"] = answer("kvm2", is_active=True)
    done = stage.play(str(stage.folder / "play.yml"))
    assert (done.code, "CONTINUES with" in done.text) == (0, True), done.text
    assert sorted(host for host, _args in done.calls_of("host_facts")) == ["kvm1", "kvm1", "kvm2", "kvm2", "kvm3"]


def test_a_guest_that_is_active_twice_is_reported_after_the_second_answers(stage: Stage) -> None:
    for name in ("kvm1", "kvm2"):
        stage.answers["host_facts"][name] = answer(name, is_active=True)
    done = stage.play(str(stage.folder / "play.yml"))
    assert (done.code, "CONTINUES with" in done.text, done.error_codes) == (2, False, {"unsafe"}), done.text
    assert "is active on kvm1 and kvm2, and is not being moved" in " ".join(done.text.split())
    assert sorted(host for host, _args in done.calls_of("host_facts")) == ["kvm1", "kvm1", "kvm2", "kvm2", "kvm3"]


def test_a_host_that_does_not_answer_again_proves_nothing(stage: Stage) -> None:
    stage.answers["host_facts"]["kvm1"] = answer("kvm1", is_active=True)
    stage.answers["host_facts"]["kvm2"] = [answer("kvm2", is_active=True), {"unreachable": True, "msg": "Failed to connect to kvm2"}]
    done = stage.play(str(stage.folder / "play.yml"))
    assert "CONTINUES with" not in done.text
    assert "is active on kvm1 and kvm2, and is not being moved" in " ".join(done.text.split())


def test_hosts_that_agree_are_asked_once(stage: Stage) -> None:
    done = stage.play(str(stage.folder / "play.yml"))
    assert (done.code, len(done.calls_of("host_facts"))) == (0, 3), done.text
