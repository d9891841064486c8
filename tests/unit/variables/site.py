# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control node with one ledger for each place where a variable can be set, and real plays on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

# Another release of ansible-core, by the Python of its virtual environment.
PYTHON = os.environ.get("KVMFLEET_ANSIBLE_PYTHON", sys.executable)
LOOKUP = "kvmfleet.migration.ledger"
# An action plugin of the tests' own: what the base of all action plugins reads for a host.
SHOWS = """\
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction


class ActionModule(FleetAction):
    MODULE = "show_settings"

    def argument_spec(self):
        return {"host": {"type": "str"}, "variable": {"type": "str"}}

    def run_task(self, args, task_vars):
        settings, here = self.settings(task_vars), self.target_host(task_vars)
        return {"value": settings.of(args["host"] or here, args["variable"]), "here": here}
"""
# Another one, which writes without the two modules that ansible.builtin.copy runs for each file.
NOTES = """\
import json
import os

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        given = self._task.args
        # Earlier releases make a value of what looks like one.
        text = given["text"] if isinstance(given["text"], str) else json.dumps(given["text"])
        with open(os.path.join(task_vars["playbook_dir"], "found", given["name"]), "w") as stream:
            stream.write(text)
        return {"changed": True}
"""

Play = dict[str, t.Any]
Task = dict[str, t.Any]


class Site:
    """The folder of a playbook. Each ledger in it has one host, named as the ledger's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "action_plugins").mkdir()
        (folder / "action_plugins/show_settings.py").write_text(SHOWS)
        (folder / "action_plugins/note.py").write_text(NOTES)
        (folder / "found").mkdir()

    def ledger(self, name: str) -> str:
        """Return the folder of the ledger of that name, made where it is not there."""
        path = self.folder / "ledgers" / name
        if not path.exists():
            entry = {"name": name, "host_id": None, "host_uuid": "55555555-0000-4000-8000-000000000001", "state": "enabled", "reason": None}
            open_ledger(str(path)).put_host(host_entry(entry), None)
        return str(path)

    def write(self, path: str, content: t.Any) -> None:
        """Write a file of the playbook; JSON is YAML."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(content if isinstance(content, str) else json.dumps(content))

    def run(self, plays: list[Play], *arguments: str, **environment: str) -> str:
        """Run the plays on the inventory, and return all that Ansible wrote. Every task may fail: what was found says how it ended."""
        self.write("play.yml", [{"gather_facts": False, "ignore_errors": True, **play} for play in plays])
        env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": _collections(), "HOME": str(self.folder), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000", **environment}
        inventory = () if "-i" in arguments else ("-i", "inventory.json")
        argv = [PYTHON, "-m", "ansible", "playbook", *inventory, "play.yml", *arguments]
        done = subprocess.run(argv, env=env, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def found(self, name: str) -> t.Any:
        """Return what the tasks of L(finding) wrote under that name."""
        return json.loads((self.folder / "found" / name).read_text())


def finding(name: str, module: Task | None = None, result: str = "__module", **keywords: t.Any) -> list[Task]:
    """Return tasks that write down which ledger the module and the lookup use, with these keywords of both tasks.

    :arg module: options of the module C(ledger_info).
    :arg result: an expression for the module's result.
    """
    return [
        {"kvmfleet.migration.ledger_info": {"list": ["hosts"], **(module or {})}, "register": "__module", **keywords},
        {**written(name, f"{{'module': {result}.hosts[0].name, 'lookup': lookup('{LOOKUP}', 'hosts')[0].name}}"), **keywords},
    ]


def showing(name: str, variable: str, host: str | None = None, **keywords: t.Any) -> list[Task]:
    """Return tasks that write down what an action plugin reads for a host, by default the one that it runs on."""
    asked = {"variable": variable, **({"host": host} if host else {})}
    return [
        {"show_settings": asked, "register": "__shown", **keywords},
        written(name, "__shown.value if __shown.value is defined else __shown.results | map(attribute='value') if __shown.results is defined else __shown"),
    ]


def written(name: str, expression: str) -> Task:
    """Return the task that writes the value of an expression."""
    return {"note": {"name": name, "text": f"{{{{ ({expression}) | to_json }}}}"}}


def _collections() -> str:
    """Return the folder that holds ansible_collections."""
    here = Path(__file__).resolve()
    return str(next(parent.parent for parent in here.parents if parent.name == "ansible_collections"))
