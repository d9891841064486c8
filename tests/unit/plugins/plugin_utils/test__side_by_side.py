# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of a loop are asked side by side, as Ansible would ask each of them. The playbooks are run, and the module waits until it runs everywhere."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest
import yaml

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._side_by_side import _restored_signals
from ansible_collections.kvmfleet.migration.tests.unit.playbooks.stage import COLLECTION, build_collection

HOSTS = ("kvm1", "kvm2", "kvm3", "kvm4")
# On each host. Where it is not run everywhere at the same time, it fails.
MODULE = """\
#!/usr/bin/python
import os, time
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(argument_spec={"_work": {"type": "dict"}, "load_seconds": {"type": "int", "default": 0}}, supports_check_mode=True)
    folder = os.environ["MEETING"]
    open(os.path.join(folder, str(os.getpid())), "w").close()
    end = time.monotonic() + float(os.environ["PATIENCE_SECONDS"])
    while len(os.listdir(folder)) < int(os.environ["EXPECTED"]):
        if time.monotonic() > end:
            module.fail_json(msg="It is alone.")
        time.sleep(0.05)
    seen = {"host": os.environ.get("WHO"), "load_seconds": module.params["load_seconds"], "check": module.check_mode, "has_work": bool(module.params["_work"])}
    module.exit_json(changed=False, ansible_facts={"kvmfleet_host": seen})


if __name__ == "__main__":
    main()
"""
PLAY = """\
- hosts: kvm1
  gather_facts: false
  vars:
    asked: "{{ groups['fleet'] }}"
  tasks:
    - kvmfleet.migration.host_facts:
        load_seconds: 60
        _work: {hosts: "{{ asked }}"}
      delegate_to: "{{ item }}"
      delegate_facts: true
      run_once: true
      loop: "{{ asked }}"
      register: answers
      timeout: 40
      ignore_errors: true
      ignore_unreachable: true
      tags: [chosen]
    - become: false
      ansible.builtin.copy:
        content: "{{ {'results': answers.results, 'kept': kept} | to_json }}"
        dest: "{{ outcome }}"
      vars:
        kept: "{{ groups['fleet'] | map('extract', hostvars, 'ansible_facts') | map(attribute='kvmfleet_host.host', default='') | select | list }}"
      check_mode: false
      tags: [chosen]
"""
Outcome = dict[str, t.Any]


class Fleet:
    """Four hosts, all on this machine, and what is written of their answers."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.collections = build_collection(folder / "collections")
        modules = self.collections / "ansible_collections/kvmfleet/migration/plugins/modules"
        modules.unlink()
        modules.mkdir()
        for path in (COLLECTION / "plugins/modules").glob("*.py"):
            (modules / path.name).symlink_to(path)
        (modules / "host_facts.py").unlink()
        (modules / "host_facts.py").write_text(MODULE)
        self.variables = {host: f"ansible_connection=local ansible_python_interpreter={self.add_python(host)}" for host in HOSTS}
        self.expected = len(HOSTS)
        self.patience_seconds = 30.0
        self.text = ""

    def add_python(self, host: str, program: str = sys.executable) -> pathlib.Path:
        """Return the interpreter of a host, by which a module there knows where it runs."""
        path = self.folder / f"python-of-{host}"
        path.write_text(f'#!/bin/sh\nWHO={host} exec {program} "$@"\n')
        path.chmod(0o755)
        return path

    def record_connections(self) -> None:
        """Let the hosts have a connection of their own, see RECORDER."""
        (self.folder / "connection_plugins").mkdir()
        (self.folder / "connection_plugins/recorder.py").write_text(RECORDER)
        for host in HOSTS:
            self.variables[host] = self.variables[host].replace("=local", f"=recorder note={self.folder}/note-{host}")

    def ask(self, *options: str, play: str = PLAY) -> Outcome:
        """Return what the task with the loop has returned, and which facts the hosts have afterwards."""
        for name in ("meeting", "home"):
            (self.folder / name).mkdir(exist_ok=True)
        for path in (self.folder / "meeting").iterdir():
            path.unlink()
        (self.folder / "hosts.ini").write_text("[fleet]\n" + "".join(f"{host} {text}\n" for host, text in self.variables.items()))
        (self.folder / "play.yml").write_text(play)
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_NOCOLOR": "1",
            "HOME": str(self.folder / "home"),
            "MEETING": str(self.folder / "meeting"),
            "EXPECTED": str(self.expected),
            "PATIENCE_SECONDS": str(self.patience_seconds),
        }
        outcome = self.folder / "outcome"
        command = ["-m", "ansible", "playbook", "-i", str(self.folder / "hosts.ini"), str(self.folder / "play.yml"), "-e", f"outcome={outcome}", *options]
        done = subprocess.run([sys.executable, *command], env=environment, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
        self.text = done.stdout + done.stderr
        assert done.returncode == 0, self.text
        return t.cast(Outcome, json.loads(outcome.read_text()))


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet(tmp_path)


def facts_of(outcome: Outcome) -> dict[str, Outcome]:
    return {one["item"]: one["ansible_facts"]["kvmfleet_host"] for one in outcome["results"] if "kvmfleet_host" in one.get("ansible_facts", {})}


@pytest.mark.parametrize("options", [(), ("--limit", "kvm1", "--tags", "chosen", "--check", "--start-at-task", "kvmfleet.migration.host_facts")])
def test_all_hosts_of_a_loop_are_asked_at_the_same_time(fleet: Fleet, options: tuple[str, ...]) -> None:
    outcome = fleet.ask(*options)
    facts = facts_of(outcome)
    assert list(facts) == outcome["kept"] == list(HOSTS)
    for host in HOSTS:
        known = facts[host]
        told = (known["host"], known["load_seconds"], known["check"], known["has_work"])
        assert told == (host, 60, "--check" in options, False)
        assert known["received"]
    # The queries themselves are not shown, only the items of the loop.
    assert fleet.text.count("TASK [kvmfleet.migration.host_facts]") == fleet.text.count("(item=kvm2)") == 1


def test_a_host_that_cannot_be_reached_and_one_that_fails_do_not_prevent_the_others(fleet: Fleet) -> None:
    fleet.variables["kvm2"] = "ansible_host=127.0.0.1 ansible_port=1"
    fleet.variables["kvm3"] += " ansible_python_interpreter=/nonexistent/python"
    fleet.expected = 2
    outcome = fleet.ask()
    assert list(facts_of(outcome)) == ["kvm1", "kvm4"]
    silent, failed = outcome["results"][1:3]
    assert (silent["failed"], "Failed to connect" in silent["msg"]) == (True, True)
    assert failed["failed"]
    assert "UNREACHABLE" not in fleet.text, "Ansible would print the results of all hosts on one line"


def test_a_host_that_is_not_in_the_inventory_is_tried_as_in_any_loop(fleet: Fleet) -> None:
    outcome = fleet.ask("-e", json.dumps({"asked": ["kvm1", "kvm2", "kvm3", "kvm4", "kvm9.invalid"]}))
    assert list(facts_of(outcome))[:4] == list(HOSTS)
    assert "[kvm1 -> kvm9.invalid]" in fleet.text


def test_a_host_that_hangs_ends_at_the_limit_of_the_task_and_holds_no_other(fleet: Fleet) -> None:
    fleet.add_python("kvm2", "sleep 300 #")
    fleet.expected = 3
    outcome = fleet.ask(play=PLAY.replace("timeout: 40", "timeout: 10"))
    assert list(facts_of(outcome)) == ["kvm1", "kvm3", "kvm4"]
    hung = outcome["results"][1]
    assert (hung["failed"], "10" in hung["msg"]) == (True, True), hung


def test_variables_and_rights_of_the_play_apply(fleet: Fleet) -> None:
    """A play whose user is not root would otherwise ask its hosts without rights."""
    rights = "  become: true\n  become_user: nobody\n  vars:\n    ansible_become_exe: become-of-the-play\n"
    outcome = fleet.ask(play=PLAY.replace("  vars:\n", rights, 1))
    assert ["become-of-the-play" in json.dumps(one) for one in outcome["results"]] == [True] * len(HOSTS)


RECORDER = """\
DOCUMENTATION = '''
name: recorder
short_description: Runs commands on this machine, writes down the password, and drops a first login
description: As told.
options:
  password:
    description: The password.
    vars: [{name: ansible_password}]
  note:
    description: The file.
    vars: [{name: note}]
  drops:
    description: A file; the next login is dropped if it exists.
    vars: [{name: drops}]
'''
import os
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as LocalConnection


class Connection(LocalConnection):
    transport = "recorder"

    def _connect(self):
        with open(self.get_option("note"), "w") as stream:
            stream.write(str(self.get_option("password")))
        if os.path.exists(str(self.get_option("drops"))):
            os.unlink(self.get_option("drops"))
            raise AnsibleConnectionFailure("Failed to connect to the host via ssh: kex_exchange_identification: Connection closed by remote host")
        return super()._connect()
"""


@pytest.mark.parametrize("typed", ["", "of-all"])
def test_a_password_of_one_host_is_told_to_no_other(fleet: Fleet, typed: str) -> None:
    """What was typed for all hosts is not lost either."""
    fleet.record_connections()
    (fleet.folder / "typed").write_text(typed)
    fleet.variables["kvm2"] += " ansible_password=of-kvm2"
    options = ("--connection-password-file", str(fleet.folder / "typed")) if typed else ()
    facts = facts_of(fleet.ask("-e", json.dumps({"asked": ["kvm2", "kvm3", "kvm4", "kvm1"]}), *options))
    assert len(facts) == len(HOSTS)
    told = {host: (fleet.folder / f"note-{host}").read_text() for host in HOSTS}
    others = typed or "None"
    assert told == {"kvm1": others, "kvm2": "of-kvm2", "kvm3": others, "kvm4": others}


def test_the_task_has_its_time_limit_and_its_signals_again() -> None:
    """The hosts have their own limits. A person who interrupts the play ends what later items have begun."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM)}
    signal.alarm(30)
    try:
        with _restored_signals():
            assert (signal.alarm(0), signal.getsignal(signal.SIGALRM)) == (0, signal.SIG_DFL)
            # As the task queue manager of ansible-core 2.19 does.
            signal.signal(signal.SIGINT, lambda *_: None)
            signal.signal(signal.SIGTERM, lambda *_: None)
            time.sleep(1.5)
        assert {number: signal.getsignal(number) for number in handlers} == handlers
        assert signal.alarm(0) == 30
    finally:
        signal.alarm(0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_variables_and_rights_of_a_role_apply(fleet: Fleet) -> None:
    tasks = fleet.folder / "roles/asker/tasks"
    tasks.mkdir(parents=True)
    play = yaml.safe_load(PLAY)
    (tasks / "main.yml").write_text(json.dumps(play[0]["tasks"]))
    variables = {"ansible_become_exe": "become-{{ end }}", "end": "of-the-role"}
    play[0].update(tasks=[], roles=[{"role": "asker", "become": True, "become_user": "nobody", "vars": variables}])
    outcome = fleet.ask(play=json.dumps(play))
    assert ["become-of-the-role" in json.dumps(one) for one in outcome["results"]] == [True] * len(HOSTS)


def test_a_host_whose_login_was_dropped_is_asked_alone(fleet: Fleet) -> None:
    """All hosts may be behind the same jump host, which drops logins when many begin at once."""
    fleet.record_connections()
    (fleet.folder / "drops").touch()
    fleet.variables["kvm3"] += f" drops={fleet.folder}/drops"
    fleet.expected = 3
    assert list(facts_of(fleet.ask())) == list(HOSTS)
    assert not (fleet.folder / "drops").exists()


@pytest.mark.long
def test_no_more_hosts_are_asked_at_once_than_a_person_has_chosen(fleet: Fleet) -> None:
    fleet.expected, fleet.patience_seconds = 3, 3
    assert facts_of(fleet.ask("--forks", "1")).keys() != set(HOSTS), "the first hosts wait for others"
    assert list(facts_of(fleet.ask("--forks", "3"))) == list(HOSTS)
