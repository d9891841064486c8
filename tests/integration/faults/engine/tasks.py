# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tasks that somebody at the control node runs: beginning them, killing them, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import typing as t

from ...support.control import RESULT, Record
from ...support.site import HOSTS, Site
from .text import Task, Verdict

ERROR_CODE = re.compile(r'"error_code": "(\w+)"')
NEVER_ENDED = -1


class Run:
    """A task on its way, with what it prints in a file.

    :arg task: as a scenario's text has it.
    :arg hosts: names of hosts by number, for what the text says that is printed.
    """

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], log: pathlib.Path, task: Task | None = None, hosts: t.Mapping[int, str] | None = None
    ) -> None:
        self.name = name
        self.task = task
        self._hosts = hosts or {}
        self._process = process
        self._log = log
        self._left: list[int] = []

    @property
    def text(self) -> str:
        """All that it has printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def summary(self) -> str:
        """What it has printed, without the records of its result: the ledger has them too."""
        text = self.text
        match = RESULT.search(text)
        if not match:
            return text
        result = json.JSONDecoder().raw_decode(text, match.end())[0]
        return f"{text[: match.start()]}{ {key: value for key, value in result.items() if key not in ('migrations', 'evacuations')} }"

    @property
    def records(self) -> list[Record]:
        """The records of moves in its result; none where it was killed."""
        match = RESULT.search(self.text)
        return t.cast("list[Record]", json.JSONDecoder().raw_decode(self.text, match.end())[0].get("migrations", [])) if match else []

    @property
    def code(self) -> int:
        """Its exit code; C(NEVER_ENDED) while it runs."""
        code = self._process.poll()
        return NEVER_ENDED if code is None else code

    def check(self, verdict: Verdict, limit_seconds: float) -> None:
        """Wait for the end, and fail the test where it is not as it should be. What may end well has its error code only where it fails."""
        try:
            code = self._process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"'{self.name}' has not ended within {limit_seconds:g} s:\n{self.summary}") from None
        said = " ".join(self.text.split())
        assert verdict.exit == "any" or (code == 0) == (verdict.exit == "ok"), f"'{self.name}' ended with {code}:\n{self.summary}"
        codes = set(ERROR_CODE.findall(self.text))
        assert verdict.error is None or verdict.error in codes or (verdict.exit == "any" and code == 0), (
            f"'{self.name}' has the error codes {codes}, not {verdict.error}:\n{self.summary}"
        )
        for words in map(self._named, verdict.says):
            assert words in said, f"'{self.name}' does not say {words!r}:\n{self.summary}"
        for words in verdict.does_not_say:
            assert words not in said, f"'{self.name}' says {words!r}:\n{self.summary}"
        if verdict.changed is not None:
            told = json.dumps(verdict.changed)
            assert f'"changed": {told}' in said, f"'{self.name}' does not say that changed is {told}:\n{self.summary}"

    def _named(self, words: str) -> str:
        """Put the names of hosts in."""
        for number, host in self._hosts.items():
            words = words.replace(f"{{host {number}}}", host)
        return words

    def kill(self) -> None:
        """Kill Ansible's own process alone, as C(kill -9) does: its workers are left behind."""
        self._left = descendants(self._process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def signal_all(self, what: signal.Signals) -> None:
        """Send it to all its processes at once, as when the control node sleeps, or loses its power."""
        if self.code == NEVER_ENDED:
            self._left += [*descendants(self._process.pid), self._process.pid]
        for pid in filter(_is_a_tasks, dict.fromkeys(self._left)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, what)

    def kill_all(self) -> None:
        """Kill all its processes at once."""
        self.signal_all(signal.SIGKILL)
        self._left = []
        self._process.wait(30)


def _is_a_tasks(pid: int) -> bool:
    """A number may be another process's by now."""
    with contextlib.suppress(OSError):
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"ansible" in command or b"ssh" in command
    return False


def descendants(pid: int) -> list[int]:
    """Return the children of a process, and theirs."""
    children: dict[int, list[int]] = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            children.setdefault(int((folder / "stat").read_text().rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found, todo = list[int](), [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def begin(site: Site, name: str, task: Task, log: pathlib.Path, source: int) -> Run:
    """Begin a task.

    :arg source: the host that it is run on, where its text does not say one.
    """
    with open(log, "wb") as output:
        process = subprocess.Popen(
            _command(site, task, source), env=site.environment, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    return Run(name, process, log, task, {number: site.name(number) for number in HOSTS})


def _command(site: Site, task: Task, source: int) -> list[str]:
    own = task.own
    if task.kind in ("drain", "recover", "protect"):
        target = site.name(own["host"]) if "host" in own else "kvmfleet_hosts"
        return site.playbook_command(task.kind, {"target": target, **({"protect_host_guard": False} if task.kind == "protect" else {}), **task.options})
    destination = {"destination": site.name(own["to"])} if "to" in own else {}
    if task.kind == "move":
        return site.ad_hoc_command(source, "live_migrate", {"name": own["guest"], **destination, **task.options})
    if task.kind == "moves":
        return site.ad_hoc_command(source, "live_migrate", {"moves": [{"name": name, **destination} for name in own["guests"]], **task.options})
    if task.kind in ("abort", "force"):
        module = {"abort": "migration_abort", "force": "migration_force_complete"}[task.kind]
        return site.ad_hoc_command(source, module, {"name": own["guest"], **task.options})
    if task.kind == "settle":
        decision = {"settle": {"id": own["id"], "status": own["status"]}, "reason": "the scenario says so"}
        return site.ad_hoc_command(own["on"], "host", {**decision, **task.options})
    if task.kind == "evacuate":
        return site.ad_hoc_command(own["on"], "evacuate", {"source": site.name(own["source"]), **task.options})
    return site.ad_hoc_command(own["host"], "evacuation_cleanup", dict(task.options))
