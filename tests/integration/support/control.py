# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible on the control node: tasks that run to their end, and tasks that can be killed on their way."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any, open_ledger

from .fleet import Lab, eventually

BUILD = pathlib.Path(__file__).resolve().parents[6]
LIMIT_SECONDS = 540
RESULT = re.compile(r"^\S+ \| (?:SUCCESS|CHANGED|FAILED!|UNREACHABLE!) => (?=\{)", re.MULTILINE)

Record = dict[str, t.Any]
Facts = dict[str, t.Any]
Result = dict[str, t.Any]
Task = tuple[str, dict[str, t.Any]]


class Outcome:
    """How a task ended: its result, and the lines that were printed on the way."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text
        match = RESULT.search(text)
        assert match, text
        self.result: dict[str, t.Any] = json.JSONDecoder().raw_decode(text, match.end())[0]
        self.lines = [line for line in text[: match.start()].splitlines() if re.match(r"\[\S+\] ", line)]

    @property
    def changed(self) -> bool:
        return bool(self.result["changed"])

    @property
    def records(self) -> list[Record]:
        return t.cast("list[Record]", self.result["migrations"])

    @property
    def record(self) -> Record:
        assert len(self.records) == 1, self.result
        return self.records[0]

    @property
    def warnings(self) -> str:
        """Return all that was printed, unfolded: Ansible takes the warnings out of a result and wraps their lines."""
        return " ".join(self.text.split())

    @property
    def msg(self) -> str:
        return str(self.result["msg"])

    def ended(self) -> tuple[str, str | None]:
        """Return status and reason of the one record."""
        return self.record["status"], self.record["reason"]

    def refused(self) -> str:
        """Return the error code of a task that failed and changed nothing."""
        assert self.code != 0, self.text
        assert not self.changed, self.text
        return str(self.result["error_code"])


class Running:
    """A task on its way."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def wait(self) -> Outcome:
        text, dummy = self.process.communicate(timeout=LIMIT_SECONDS)
        return Outcome(self.process.returncode, text)

    def kill(self) -> None:
        """Kill Ansible's own process, as an operator's C(kill -9) does; its worker is left behind."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=LIMIT_SECONDS)

    def kill_with_workers(self) -> None:
        """Kill Ansible with its workers, as when the control node loses its power: a worker would follow the move for another poll, and close its record."""
        pid = self.process.pid
        workers = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        self.kill()
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(worker), signal.SIGKILL)


class Control:
    """A control node with a ledger of its own; C(where) is what its tasks are told of that, C(options) what each of its commands ends with."""

    options: tuple[str, ...] = ()

    def __init__(self, lab: Lab, folder: pathlib.Path, *inventory: str) -> None:
        self.lab = lab
        self.folder = folder
        self.path = folder / "ledger"
        self.where = str(self.path)
        self.inventory = lab("inventory", *inventory).strip()
        settings = folder / "ansible.cfg"
        settings.touch()
        self.environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(BUILD),
            # Modules are packed once for all scenarios.
            "ANSIBLE_HOME": str(BUILD / "ansible"),
            "ANSIBLE_CONFIG": str(settings),
            "ANSIBLE_NOCOLOR": "1",
            "XDG_STATE_HOME": str(folder / "state"),
        }

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.where)

    def records(self) -> list[Record]:
        """Return all records of the ledger, oldest first; none where there is no ledger yet."""
        ledger = self._ledger_if_any()
        return sorted(encode(list(ledger.list_records())) if ledger else [], key=lambda record: str(record["created_at"]))

    def verify_audit(self) -> None:
        ledger = self._ledger_if_any()
        assert ledger is None or ledger.verify_audit() == []

    def _ledger_if_any(self) -> Ledger | None:
        """Return the ledger; none where there is none yet, or a file in its place."""
        return None if self.path.is_file() else open_if_any(self.where)

    def only_record(self) -> Record:
        records = self.records()
        assert len(records) == 1, records
        return records[0]

    def name(self, number: int) -> str:
        """Return what a host is called in the inventory."""
        return self.lab.host(number)

    def ad_hoc_command(self, host: int, module: str, arguments: t.Mapping[str, t.Any], ledger: bool = True) -> list[str]:
        """Return the command that runs one of the collection's modules on a host.

        :arg ledger: whether the module has that option.
        """
        given = json.dumps({**({"ledger": self.where} if ledger else {}), **arguments})
        return ["ansible", "-i", self.inventory, self.name(host), "-m", f"kvmfleet.migration.{module}", "-a", given, *self.options]

    def playbook_command(self, name: str, variables: t.Mapping[str, t.Any]) -> list[str]:
        """Return the command that runs one of the collection's playbooks."""
        given = json.dumps({"kvmfleet_ledger": self.where, **variables})
        return ["ansible-playbook", "-i", self.inventory, f"kvmfleet.migration.{name}", "-e", given, *self.options]

    def begin(self, host: int, module: str, arguments: dict[str, t.Any], *options: str) -> Running:
        """Begin an ad hoc task on a host."""
        return Running(self.popen([*self.ad_hoc_command(host, module, arguments), *options]))

    def popen(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def task(self, host: int, module: str, arguments: dict[str, t.Any], *options: str) -> Outcome:
        return self.begin(host, module, arguments, *options).wait()

    def facts(self, on: int = 1, **arguments: t.Any) -> Facts:
        """Return C(kvmfleet_host) of a host."""
        # Ansible takes an empty mapping for no mapping.
        command = self.ad_hoc_command(on, "host_facts", {"uri": "qemu:///system", **arguments}, ledger=False)
        return t.cast("Facts", Running(self.popen(command)).wait().result["ansible_facts"]["kvmfleet_host"])

    def play(self, host: int, tasks: t.Sequence[Task], *options: str, facts: bool = False) -> list[Result]:
        """Run tasks on a host in one run, each also where the one before failed; return their results.

        :arg facts: gather the facts of all hosts first.
        """
        answer = self.folder / "answer.json"
        names = [f"answer{number}" for number in range(len(tasks))]
        keep = {"content": f"{{{{ [{', '.join(names)}] | to_json }}}}", "dest": str(answer), "mode": "0600"}
        steps = [_step(name, task, self.where) for name, task in zip(names, tasks, strict=True)]
        steps.append({"ansible.builtin.copy": keep, "delegate_to": "localhost", "check_mode": False, "vars": {"ansible_connection": "local"}})
        plays = [{"hosts": "all", "gather_facts": False, "tasks": [{"kvmfleet.migration.host_facts": {}}]}] if facts else []
        plays.append({"hosts": self.lab.host(host), "gather_facts": False, "tasks": steps})
        playbook = self.folder / "play.yml"
        playbook.write_text(json.dumps(plays), encoding="utf-8")
        process = self.popen(["ansible-playbook", "-i", self.inventory, str(playbook), *options])
        text, dummy = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 0, text
        return t.cast("list[Result]", json.loads(answer.read_text(encoding="utf-8")))

    def begin_move(self, name: str, to: int | None = 2, **arguments: t.Any) -> Running:
        return self.begin(1, "live_migrate", {"name": name, **self._to(to), **arguments})

    def move(self, name: str, to: int | None = 2, *options: str, **arguments: t.Any) -> Outcome:
        """Move a guest away from the first host."""
        return self.task(1, "live_migrate", {"name": name, **self._to(to), **arguments}, *options)

    def join_move(self, name: str, to: int | None = 2, **arguments: t.Any) -> Outcome:
        """Run the task of a move that is under way already; once it follows the move, the move is hurried to its end."""
        before = self.lab.runs()
        running = self.begin_move(name, to, **arguments)
        eventually(lambda: self.lab.runs() - before, f"a second run follows {name}")
        self.lab.hurry(name)
        return running.wait()

    def moves(self, moves: list[tuple[str, int]], **arguments: t.Any) -> Outcome:
        return self.begin_moves(moves, **arguments).wait()

    def begin_moves(self, moves: list[tuple[str, int]], **arguments: t.Any) -> Running:
        """Begin to move several guests away from the first host."""
        listed = [{"name": name, **self._to(to)} for name, to in moves]
        return self.begin(1, "live_migrate", {"moves": listed, **arguments})

    def _to(self, number: int | None) -> dict[str, str]:
        return {} if number is None else {"destination": self.lab.host(number)}


def _step(name: str, task: Task, ledger: str) -> dict[str, t.Any]:
    module, arguments = task
    return {f"kvmfleet.migration.{module}": {"ledger": ledger, **arguments}, "register": name, "failed_when": False}
