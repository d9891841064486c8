# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An inventory of any number of hosts behind a program in place of ssh, which answers as their modules would, and counts what Ansible sends and receives."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import resource
import subprocess
import time
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

LIMIT_SECONDS = 1200
# The last two arguments of ssh are the host and the command. A module arrives at the standard input of its interpreter.
_SSH = """#!/bin/sh
for last; do host=$command; command=$last; done
FAKE_HOST=$host exec /bin/sh -c "$command"
"""
_INTERPRETER = """#!/bin/sh
module=$(mktemp {folder}/module.XXXXXX)
cat > "$module"
answer={folder}/answers/$(grep -aoE '(plugins|ansible)\\.modules\\.[a-z_]+' "$module" | head -n 1 | cut -d. -f3)/$FAKE_HOST
[ -e "$answer" ] || answer={folder}/answers/none
echo "$(wc -c < "$module") $(wc -c < "$answer")" >> {folder}/counts
rm "$module"
cat "$answer"
"""


class Cost(t.NamedTuple):
    """What a playbook cost its control node: seconds, CPU seconds, the memory of its largest process, and what went to and came from the hosts."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    modules: int
    sent_bytes: int
    received_bytes: int
    text: str


@dataclasses.dataclass(frozen=True)
class FakeFleet:
    """:arg folder: a new folder for inventory and answers.

    :arg facts: by host, what its C(host_facts) gathers.
    """

    folder: pathlib.Path
    facts: Mapping[str, f.Document]
    forks: int = 20

    def prepare(self) -> None:
        """Write inventory, programs and answers."""
        self.folder.mkdir(parents=True)
        for name, text in (("ssh", _SSH), ("python", _INTERPRETER.format(folder=self.folder))):
            program = self.folder / name
            program.write_text(text, encoding="utf-8")
            program.chmod(0o700)
        for host, facts in self.facts.items():
            identity = {"host_id": None, "host_uuid": facts["host_uuid"], "machine_id": None}
            self._answer("host_facts", host, {"changed": False, "ansible_facts": {"kvmfleet_host": facts}})
            self._answer("host", host, {"changed": False, "identity": identity, "libvirt_error": None})
            self._answer("ping", host, {"changed": False, "ping": "pong"})
        (self.folder / "answers" / "none").write_text(json.dumps({"failed": True, "msg": "no such answer"}), encoding="utf-8")
        variables = {
            "ansible_connection": "ssh",
            "ansible_ssh_executable": str(self.folder / "ssh"),
            "ansible_python_interpreter": str(self.folder / "python"),
            "ansible_pipelining": True,
            "kvmfleet_transport": "tcp",
            "kvmfleet_ledger": str(self.folder / "ledger"),
        }
        inventory = {"kvmfleet_hosts": {"hosts": dict.fromkeys(self.facts), "vars": variables}}
        (self.folder / "hosts.yml").write_text(json.dumps(inventory), encoding="utf-8")

    def run_playbook(self, *arguments: str) -> Cost:
        """Run a playbook over the fleet. Raises C(RuntimeError), with what it printed, where it fails."""
        counts = self.folder / "counts"
        counts.unlink(missing_ok=True)
        command = ["ansible-playbook", "-i", str(self.folder / "hosts.yml"), "-f", str(self.forks), *arguments]
        begin = time.monotonic()
        code, usage, text = _run(command, {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(self.folder / "home")}, self.folder)
        seconds = time.monotonic() - begin
        if code:
            raise RuntimeError(f"{' '.join(command)} failed: {text[-4000:]}")
        numbers = [tuple(map(int, line.split())) for line in counts.read_text(encoding="ascii").splitlines()] if counts.exists() else []
        return Cost(
            seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, len(numbers), sum(one[0] for one in numbers), sum(one[1] for one in numbers), text
        )

    def _answer(self, module: str, host: str, answer: f.Document) -> None:
        file = self.folder / "answers" / module / host
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(answer), encoding="utf-8")


def _run(command: Sequence[str], env: Mapping[str, str], folder: pathlib.Path) -> tuple[int, resource.struct_rusage, str]:
    """Return the code of a process, what it and its children have used, and its output."""
    output = folder / "output"
    with output.open("w", encoding="utf-8") as file, subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file) as run:
        _pid, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    return run.returncode, usage, output.read_text(encoding="utf-8")
