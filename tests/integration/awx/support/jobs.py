# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs as AWX runs them: ansible-runner with a private data directory, and a home, that are new for every job and gone after it."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import threading
import typing as t

import ansible_runner

from ansible_collections.kvmfleet.migration.tests.integration.support.control import BUILD

LIMIT_SECONDS = 540

# A project holds one line for each playbook, or the playbooks themselves, as a checkout of this repository does.
IMPORT = "- import_playbook: kvmfleet.migration.{name}\n"
OWN = BUILD / "ansible_collections/kvmfleet/migration/playbooks"

Event = dict[str, t.Any]
Variables = t.Mapping[str, t.Any]


def unsafe(value: t.Any) -> str:
    """Return YAML of a value in which every text is marked as no template, as AWX writes what a job was launched with."""
    if isinstance(value, t.Mapping):
        return "{" + ", ".join(f"{unsafe(key)}: {unsafe(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(unsafe(part) for part in value) + "]"
    return f"!unsafe {json.dumps(value)}" if isinstance(value, str) else json.dumps(value)


class Job:
    """A job on its way, or at its end."""

    def __init__(self, folder: pathlib.Path, playbook: str) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self._cancel = threading.Event()
        self._thread, self._runner = ansible_runner.run_async(
            private_data_dir=str(folder),
            playbook=playbook,
            event_handler=self._take,
            cancel_callback=self._cancel.is_set,
            quiet=True,
        )

    def _take(self, event: Event) -> bool:
        self.events.append(event)
        return False

    def wait(self) -> Job:
        """Wait for the end; nothing of the job's folder is left then."""
        self._thread.join(LIMIT_SECONDS)
        assert not self._thread.is_alive(), self.text
        shutil.rmtree(self.folder)
        return self

    def cancel(self) -> Job:
        """Cancel the job as its C(Cancel) button does: ansible-runner kills its whole process group."""
        self._cancel.set()
        return self.wait()

    @property
    def status(self) -> str:
        """C(successful), C(failed) or C(canceled)."""
        return str(self._runner.status)

    @property
    def text(self) -> str:
        """All that was printed, unfolded."""
        return " ".join(" ".join(event["stdout"] for event in list(self.events)).split())

    @property
    def artifacts(self) -> dict[str, t.Any]:
        """What the job published; AWX keeps it, shows it, and hands it on to the following jobs of a workflow."""
        ends = [event["event_data"] for event in self.events if event["event"] == "playbook_on_stats"]
        return t.cast("dict[str, t.Any]", ends[0]["artifact_data"]) if ends else {}

    @property
    def failures(self) -> list[str]:
        """The messages of tasks that failed and were not ignored."""
        failed = [event["event_data"] for event in self.events if event["event"] == "runner_on_failed"]
        return [str(data["res"].get("msg")) for data in failed if not data.get("ignore_errors")]

    def lines(self, guest: str) -> list[str]:
        """The progress lines of a guest, each an event that is no task's."""
        told = [event["stdout"] for event in list(self.events) if event["event"] == "verbose"]
        return [line for text in told for line in text.splitlines() if re.search(rf"\[\S+\] \S+ -> \S+ +{guest} ", line)]


class Awx:
    """What AWX knows of a fleet: an inventory with its variables, and a project."""

    def __init__(self, folder: pathlib.Path, inventory: pathlib.Path, variables: Variables) -> None:
        self._folder = folder
        self._inventory = inventory
        self._variables = dict(variables)
        self._count = 0

    @property
    def ledger(self) -> tuple[str, t.Any]:
        """Where the jobs' ledger is, and the variable C(kvmfleet_etcd)."""
        return self._variables["kvmfleet_ledger"], self._variables.get("kvmfleet_etcd")

    def launch(self, name: str, limit: str = "", forks: int = 5, own: bool = False, **extra: t.Any) -> Job:
        """Launch one of the collection's playbooks.

        :arg own: the project is a checkout of the collection; else it imports what the execution environment has.
        """
        self._count += 1
        folder = self._folder / f"job{self._count}"
        self._write(folder, name, own)
        options = [f"--forks={forks}", *([f"--limit={limit}"] if limit else []), "-e", f"@{folder}/env/extravars"]
        (folder / "env/extravars").write_text(unsafe(extra))
        (folder / "env/cmdline").write_text(" ".join(options))
        return Job(folder, f"{name}.yml")

    def run(self, name: str, limit: str = "", forks: int = 5, own: bool = False, **extra: t.Any) -> Job:
        return self.launch(name, limit, forks, own, **extra).wait()

    def _write(self, folder: pathlib.Path, name: str, own: bool) -> None:
        for part in ("env", "project", "home"):
            (folder / part).mkdir(parents=True)
        shutil.copytree(self._inventory, folder / "inventory")
        (folder / "inventory/group_vars").mkdir(exist_ok=True)
        (folder / "inventory/group_vars/all.json").write_text(json.dumps(self._variables))
        if own:
            shutil.copytree(OWN / "tasks", folder / "project/tasks")
        (folder / f"project/{name}.yml").write_text((OWN / f"{name}.yml").read_text() if own else IMPORT.format(name=name))
        (folder / "env/settings").write_text(json.dumps({"job_timeout": LIMIT_SECONDS, "suppress_ansible_output": True}))
        (folder / "home/ansible.cfg").touch()
        (folder / "env/envvars").write_text(json.dumps(self._environment(folder / "home")))

    @staticmethod
    def _environment(home: pathlib.Path) -> dict[str, str]:
        """Return the environment of a job: of a home on this machine it knows nothing."""
        return {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / ".local/state"),
            "ANSIBLE_HOME": str(home / ".ansible"),
            "ANSIBLE_CONFIG": str(home / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(BUILD),
            "ANSIBLE_FORCE_COLOR": "False",
        }
