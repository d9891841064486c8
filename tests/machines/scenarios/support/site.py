# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An operator at the control node of whole machines: playbooks, tasks, fencing, and what the fleet is like at the end."""

from __future__ import annotations

import json
import pathlib
import subprocess
import threading
import time
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Run
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control, Outcome
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import bmc

from .machines import Machines, eventually

# For hangs only: under emulation a playbook takes one to six minutes, and on a busy machine some times as long.
PLAY_SECONDS = 1800
AGENT = "fence_ipmilan"

Summary = tuple[str, str, str | None, str, str]


class Site(Control):
    """The control node of a fleet, with a ledger of its own.

    :arg inventory: whose: nothing for root, C(--user operator --become) for the unprivileged user.
    """

    def __init__(self, machines: Machines, folder: pathlib.Path, *inventory: str) -> None:
        super().__init__(machines, folder, *inventory)  # type: ignore[arg-type]
        self.machines = machines
        self.environment["ANSIBLE_SHOW_CUSTOM_STATS"] = "true"
        self._hosts = pathlib.Path(self.inventory).read_text(encoding="utf-8")
        self._variables: dict[str, t.Any] = {}
        self._host_variables: dict[str, dict[str, t.Any]] = {}
        self.fence_with()

    def set_variables(self, variables: t.Mapping[str, t.Any]) -> None:
        """Let the inventory have these variables of all hosts."""
        self._variables = dict(variables)
        self._write_inventory()

    def set_host_variable(self, number: int, name: str, value: t.Any) -> None:
        """Let the inventory have a variable of one host."""
        self._host_variables.setdefault(self.name(number), {})[name] = value
        self._write_inventory()

    def fence_with(self, timeout_seconds: int = 120, **options: t.Any) -> None:
        """Let the inventory name fence_ipmilan for each host, with these options beside those that lead to its BMC.

        :arg timeout_seconds: of the whole fencing of a host.
        """
        self._fencing: dict[str, dict[str, t.Any]] = {
            machine.name: {"agent": AGENT, "options": {**bmc.fence_options(machine), **options}, "timeout_seconds": timeout_seconds}
            for machine in self.machines.fleet.hosts
        }
        self._write_inventory()

    def fence_by_watchdog(self, number: int, seconds: int) -> None:
        """Let the inventory say that a host has no fence agent, and that its watchdog resets it within that time after its lease."""
        self._fencing[self.name(number)] = {"watchdog_seconds": seconds}
        self._write_inventory()

    def _write_inventory(self) -> None:
        """Use the fleet's inventory together with the site's own variables."""
        folder = self.folder / "inventory"
        folder.mkdir(exist_ok=True)
        (folder / "hosts.yml").write_text(self._hosts, encoding="utf-8")
        hosts = {name: {"kvmfleet_fencing": fencing, **self._host_variables.get(name, {})} for name, fencing in self._fencing.items()}
        (folder / "site.json").write_text(json.dumps({"all": {"vars": self._variables, "hosts": hosts}}), encoding="utf-8")
        self.inventory = str(folder)

    def popen(self, command: list[str]) -> subprocess.Popen[str]:
        return super().popen(self.machines.control(*command))

    def finish(self, process: subprocess.Popen[str]) -> str:
        """Wait for the end of a command, and return what it printed."""
        try:
            return process.communicate(timeout=PLAY_SECONDS)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            text = process.communicate()[0]
            raise AssertionError(f"not within {PLAY_SECONDS} s: {text}") from None

    def play_book(self, name: str, *options: str, **variables: t.Any) -> Run:
        """Run a playbook of the collection to its end, whatever that is."""
        begun = time.monotonic()
        process = self.popen([*self.playbook_command(name, variables), *options])
        text = self.finish(process)
        print(f"{name} {variables}: {process.returncode} after {time.monotonic() - begun:.0f} s", flush=True)
        return Run(process.returncode, text)

    def begin_book(self, name: str, **variables: t.Any) -> subprocess.Popen[str]:
        """Begin a playbook of the collection."""
        return self.popen(self.playbook_command(name, variables))

    def wait_for_task(self, play: subprocess.Popen[str], task: str) -> None:
        """Return when a playbook that was begun comes to a task; fail with its output when it ends before that, or does not get there in time."""
        assert play.stdout is not None
        lines: list[str] = []
        begun = time.monotonic()
        limit = threading.Timer(PLAY_SECONDS, play.kill)
        limit.start()
        try:
            for line in play.stdout:
                lines.append(line)
                if line.startswith("TASK [") and task in line:
                    return
        finally:
            limit.cancel()
        raise AssertionError(f"the playbook ended, or was killed, after {time.monotonic() - begun:.0f} s and before '{task}': {''.join(lines)}")

    def succeed(self, name: str, *options: str, **variables: t.Any) -> Run:
        """Run a playbook that has to end well."""
        run = self.play_book(name, *options, **variables)
        assert run.code == 0, run.text
        return run

    def begin_task(self, host: int, module: str, **arguments: t.Any) -> subprocess.Popen[str]:
        """Begin one module on a host."""
        return self.popen(self.ad_hoc_command(host, module, arguments))

    def wait_until_moving(self, task: subprocess.Popen[str], guest: str, source: int = 1) -> None:
        """Return when the move that a task begins is under way; fail with what the task printed when it has ended before."""

        def is_moving() -> bool:
            assert task.poll() is None, f"the task ended before memory moved: {task.communicate()[0]}"
            return self.machines.is_moving(guest, source)

        eventually(is_moving, f"{guest} moves")

    def do(self, host: int, module: str, *options: str, **arguments: t.Any) -> Outcome:
        """Run one module on a host to its end, whatever that is."""
        begun = time.monotonic()
        process = self.popen([*self.ad_hoc_command(host, module, arguments), *options])
        text = self.finish(process)
        outcome = Outcome(process.returncode, text)
        print(f"{module} on {host}: {outcome.code} after {time.monotonic() - begun:.0f} s", flush=True)
        return outcome

    def record_summaries(self) -> list[Summary]:
        """Return domain, status, reason, source and destination of each record of the ledger, oldest first."""
        return [
            (record["domain"]["name"], record["status"], record["reason"], record["source"]["host"], record["destination"]["host"]) for record in self.records()
        ]

    def check_end_state(self, fleet: t.Mapping[int, t.Iterable[str]], *records: Summary) -> None:
        """Assert that the machines run exactly this, that the ledger has exactly these records, and that its audit chain is valid."""
        active, told = self.machines.active(), self.record_summaries()
        assert active == {number: set(names) for number, names in fleet.items()}, active
        assert sorted(told, key=str) == sorted(records, key=str), told
        self.verify_audit()
