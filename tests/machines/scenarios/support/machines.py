# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet of these scenarios: its verbs, and what its machines themselves say."""

from __future__ import annotations

import pathlib
import subprocess
import time
import typing as t

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.namespaces import in_network
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import guest, qemu
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.layout import Fleet
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.sockets import Done

COMMAND = pathlib.Path(__file__).resolve().parents[2] / "machines"
VERB_SECONDS = 1200
# For hangs only.
EVENTUALLY_SECONDS = 900
RELEASE = ". /etc/os-release; echo $VERSION_CODENAME"
JOURNAL = "journalctl --no-pager -q -o short-precise | tail -n 4000"


Answer = t.TypeVar("Answer")


def eventually(ask: t.Callable[[], Answer | None], what: str, seconds: float = EVENTUALLY_SECONDS) -> Answer:
    """Return the first answer that is true in a test; fail when there is none in time. What is waited for may take long under emulation."""
    limit = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < limit, f"not within {seconds} s: {what}"
        time.sleep(2)
    return answer


class Machines:
    """One fleet. Hosts are named by their number, as in the lab of namespaces."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @property
    def fleet(self) -> Fleet:
        return Fleet.named(self.prefix)

    def __call__(self, *arguments: str, seconds: float = VERB_SECONDS) -> str:
        """Run a verb of the command C(machines), and return what it printed."""
        command = [str(COMMAND), "--prefix", self.prefix, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == 0, f"machines {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def host(self, number: int) -> str:
        return f"m{number}"

    @property
    def numbers(self) -> list[int]:
        return list(range(1, len(self.fleet.hosts) + 1))

    def control(self, *command: str) -> list[str]:
        """Return the command line that runs a command of this machine in the fleet's network."""
        return in_network(self.fleet.namespace, *command)

    def run(self, name: str | int, *command: str, seconds: float = 300) -> Done:
        """Run a command in a machine, whatever comes of it."""
        fleet = self.fleet
        machine = fleet.require_machine(name if isinstance(name, str) else self.host(name))
        return qemu.agent(fleet, machine).run(*command, timeout_seconds=seconds)

    def on(self, name: str | int, script: str, seconds: float = 300) -> str:
        """Run a shell script in a machine, and return what it printed."""
        done = self.run(name, "/bin/sh", "-ec", script, seconds=seconds)
        assert done.code == 0, f"{name}: {script}: {done.out}{done.err}"
        return done.out

    def is_on(self, number: int) -> bool:
        fleet = self.fleet
        return qemu.is_on(fleet, fleet.require_machine(self.host(number)))

    def shut_down(self, number: int) -> None:
        """Let a machine shut itself down, with all that its units do then, and wait until it is off."""
        fleet = self.fleet
        qemu.agent(fleet, fleet.require_machine(self.host(number))).shut_down()
        eventually(lambda: not self.is_on(number), f"m{number} has shut itself down", VERB_SECONDS)

    def uuid(self, guest: str, number: int = 1) -> str:
        return self.on(number, f"virsh -q domuuid {guest}").strip()

    def release(self, number: int) -> str:
        """Return the code name of a machine's Debian release."""
        return self.on(number, RELEASE).strip()

    def is_moving(self, guest: str, number: int = 1) -> bool:
        """Whether a migration of a guest is under way at its source."""
        return "Outgoing migration" in self.run(number, "virsh", "-q", "domjobinfo", guest).out

    def known(self) -> dict[int, dict[str, str]]:
        """Return the guests that each host's libvirt knows, with their state; only of hosts that answer."""
        found = guest.list_everywhere(self.fleet)
        return {number: answer for number in self.numbers if (answer := found[self.host(number)]) is not None}

    def active(self) -> dict[int, set[str]]:
        """Return the guests that are active on each host that answers; those that are not simply running with their state."""
        return {
            number: {name if state == "running" else f"{name} ({state})" for name, state in guests.items() if state != "shut off"}
            for number, guests in self.known().items()
        }

    def keep_evidence(self, folder: pathlib.Path) -> None:
        """Write what the machines have to say of a scenario that failed: serial logs, and the journals of those that answer."""
        folder.mkdir(parents=True, exist_ok=True)
        fleet = self.fleet
        for machine in fleet.machines:
            (folder / f"{machine.name}.serial.log").write_text(qemu.serial_tail(fleet.folder(machine), 400), encoding="utf-8")
            if qemu.is_on(fleet, machine):
                done = qemu.agent(fleet, machine).run("/bin/sh", "-c", JOURNAL, timeout_seconds=120)
                (folder / f"{machine.name}.journal.log").write_text(done.out + done.err, encoding="utf-8")
