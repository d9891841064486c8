# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet without hosts: the playbooks and their typed actions are real, and modules that need libvirt answer as a test says and write down their options."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.runs import change_run, list_open_runs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import add_request

COLLECTION = pathlib.Path(__file__).resolve().parents[3]
HOSTS = ("kvm1", "kvm2", "kvm3")
UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
# What people want done, by the name of the playbook.
ACTING = {
    "abort": "migration_abort",
    "check": "scheduler_check",
    "force_complete": "migration_force_complete",
    "migrate": "live_migrate",
    "policy": "domain_policy",
}
STUB = """\
import json, os, time
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        host = self._task.delegate_to or task_vars["inventory_hostname"]
        with open(os.environ["STAGE_JOURNAL"]) as journal:
            earlier = sum(json.loads(line)[:2] == ["{name}", host] for line in journal)
        with open(os.environ["STAGE_JOURNAL"], "a") as journal:
            journal.write(json.dumps(["{name}", host, dict(self._task.args)]) + "\\n")
        with open(os.environ["STAGE_ANSWERS"]) as stream:
            answer = json.load(stream)["{name}"].get(host, {{}})
        # The answers to one task after the other; the last one is repeated.
        answer = answer[min(earlier, len(answer) - 1)] if isinstance(answer, list) else answer
        if answer.get("unreachable"):
            raise AnsibleConnectionFailure(answer["msg"])
        time.sleep(answer.get("hangs_seconds", 0))
        return answer
"""

Result = dict[str, t.Any]


def build_collection(folder: pathlib.Path, *more: str) -> pathlib.Path:
    """Return the path for ANSIBLE_COLLECTIONS_PATH: the collection, in which modules that need libvirt, and these, are replaced."""
    root = folder / "ansible_collections/kvmfleet/migration"
    (root / "plugins/action").mkdir(parents=True)
    for name in ("galaxy.yml", "meta", "playbooks", "roles"):
        (root / name).symlink_to(COLLECTION / name)
    for path in (COLLECTION / "plugins").iterdir():
        if path.name != "action":
            (root / "plugins" / path.name).symlink_to(path)
    stubs = {"migration_info", *ACTING.values(), *more}
    for path in (COLLECTION / "plugins/action").glob("*.py"):
        if path.stem not in stubs:
            (root / "plugins/action" / path.name).symlink_to(path)
    for name in stubs:
        (root / f"plugins/action/{name}.py").write_text(STUB.format(name=name))
    return folder


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of a run of a playbook.

    :arg calls: module, host and options of each task that a host would have got.
    """

    code: int
    text: str
    calls: list[tuple[str, str, Result]]

    def calls_of(self, module: str) -> list[tuple[str, Result]]:
        return [(host, args) for name, host, args in self.calls if name == module]

    @property
    def error_codes(self) -> set[str]:
        return set(re.findall(r'"error_code": "(\w+)"', self.text))


class Stage:
    """Three hosts and a control node with a ledger."""

    def __init__(self, collections: pathlib.Path, folder: pathlib.Path) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.group = "kvmfleet_hosts"
        self.hosts: t.Sequence[str] = HOSTS
        self._collections = collections
        self.answers: dict[str, dict[str, Result | list[Result]]] = {name: {} for name in ("migration_info", *ACTING.values())}
        self.answers["migration_info"] = {host: self.missing() for host in HOSTS}
        for module, lines in (("scheduler_check", ["web1 can go to kvm3"]), ("domain_policy", ["The next move of web1 takes:"])):
            self.answers[module] = {host: {"changed": False, "lines": lines} for host in HOSTS}

    @staticmethod
    def missing() -> Result:
        return {"changed": False, "failed": True, "error_code": "not_found", "msg": "There is no such domain."}

    def place(self, host: str, state: str = "running", moving: bool = False) -> None:
        """Let a host answer that it has the domain."""
        migrations = [{"domain": {"uuid": UUID, "name": "web1"}}] if moving else []
        domain = {"uuid": UUID, "name": "web1", "state": state, "active": state == "running"}
        self.answers["migration_info"][host] = {"changed": False, "domain": domain, "migrations": migrations}

    def silence(self, host: str) -> None:
        self.answers["migration_info"][host] = {"unreachable": True, "msg": f"Failed to connect to {host}"}

    def resume_once_paused(self) -> None:
        """Have another process resume the run as soon as it is paused."""
        threading.Thread(target=self._resume, daemon=True).start()

    def _resume(self) -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until:
            ledger = FileLedger(str(self.ledger)) if self.ledger.exists() else None
            for run in list_open_runs(ledger) if ledger else []:
                if ledger and run.state == m.PAUSED:
                    change_run(ledger, run.id, "bob", lambda run, now: (add_request(run, m.RESUME, None, now), None))
                    return
            time.sleep(0.2)

    def import_playbook(self, name: str) -> str:
        """Return the path of a playbook of a project, which only imports the collection's."""
        path = self.folder / f"{name}.yml"
        path.write_text(f"- import_playbook: kvmfleet.migration.{name}\n")
        return str(path)

    def play(self, playbook: str, *options: str, **variables: t.Any) -> Outcome:
        """Run the playbook of that name, or at that path, with these extra variables."""
        journal = self.folder / "journal"
        journal.write_text("")
        (self.folder / "answers").write_text(json.dumps(self.answers))
        lines = "".join(f"{name} ansible_connection=local\n" for name in self.hosts)
        (self.folder / "hosts.ini").write_text(f"[{self.group}]\n{lines}[all:vars]\nkvmfleet_ledger={self.ledger}\n")
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(self._collections),
            "ANSIBLE_NOCOLOR": "1",
            "HOME": str(self.folder),
            "STAGE_ANSWERS": str(self.folder / "answers"),
            "STAGE_JOURNAL": str(journal),
        }
        name = playbook if os.path.isabs(playbook) else f"kvmfleet.migration.{playbook}"
        command = ["-m", "ansible", "playbook", "-i", str(self.folder / "hosts.ini"), name, "-e", json.dumps(variables), *options]
        done = subprocess.run([sys.executable, *command], env=environment, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
        calls = [tuple(json.loads(line)) for line in journal.read_text().splitlines()]
        return Outcome(done.returncode, done.stdout + done.stderr, t.cast("list[tuple[str, str, Result]]", calls))
