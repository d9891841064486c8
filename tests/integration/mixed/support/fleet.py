# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet of two Debian releases, and somebody who moves guests between them."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Outcome, Record, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually

# Hosts by number. Debian 12 has libvirt 9.0 and QEMU 7.2, Debian 13 libvirt 11.3 and QEMU 10.0.
OLD, NEW, NEWER = HOSTS = 1, 2, 3
OLD_RELEASE, NEW_RELEASE = "bookworm", "trixie"
OLD_MACHINE, NEW_MACHINE = "pc-i440fx-7.2", "pc-i440fx-10.0"
OLD_QEMU, NEW_QEMU = "7.2", "10.0"

# Up, where the root of a release has to be made first, takes minutes.
MAKING_SECONDS = 3600
STATE = "rm -rf /var/lib/kvmfleet/* /run/kvmfleet/* /usr/local/lib/kvmfleet/* /etc/systemd/system/*kvmfleet* /etc/systemd/system/*/*kvmfleet*"


class Mixed(Desk):
    """A control node from which guests are moved between any two hosts."""

    def begin_migration(self, name: str, source: int, destination: int, **arguments: t.Any) -> Running:
        return self.begin(source, "live_migrate", {"name": name, "destination": self.lab.host(destination), **arguments})

    def migrate(self, name: str, source: int, destination: int, **arguments: t.Any) -> Outcome:
        return self.begin_migration(name, source, destination, **arguments).wait()

    def act(self, on: int, module: str, **arguments: t.Any) -> Outcome:
        """Run a module that knows no ledger."""
        command = ["ansible", "-i", self.inventory, self.lab.host(on), "-m", f"kvmfleet.migration.{module}", "-a", json.dumps(arguments)]
        return Running(self.popen(command)).wait()


def bring_up(lab: Lab) -> None:
    """Start the hosts that are off. New ones get the releases of these scenarios."""
    options = ("--release", f"{OLD_RELEASE}:{OLD}", "--release", f"{NEW_RELEASE}:{NEW},{NEWER}")
    done = lab.try_("up", "--hosts", str(len(HOSTS)), *options, timeout=MAKING_SECONDS)
    assert done.returncode == 0, done.stderr


def change_release(lab: Lab, number: int, release: str) -> None:
    """Give a host another release, unless it has it."""
    if lab.rows()[lab.host(number)]["release"] != release:
        lab("poweroff", lab.host(number))
        lab("release", lab.host(number), release)
        lab("poweron", lab.host(number))


def machine_of(lab: Lab, name: str, number: int) -> str:
    """Return the machine type that a guest runs with."""
    found = re.search(r"machine='([^']+)'", lab.virsh(number, "dumpxml", name))
    assert found
    return found[1]


def check_moved(lab: Lab, done: Outcome, name: str, to: int) -> None:
    """The guest runs at its destination alone, and its memory lost nothing."""
    assert (done.code, done.changed, done.ended()) == (0, True, ("completed", None)), done.text
    assert lab.places(name) == {to: "running"}
    assert lab.check(name)["intact"]


def check_stayed(lab: Lab, name: str, on: int) -> None:
    """The guest runs on that host alone, without a job, and its memory lost nothing."""
    assert lab.places(name) == {on: "running"}
    assert not lab.has_job(name, on)
    assert lab.check(name)["intact"]


def await_status(lab: Lab, name: str, number: int, status: str) -> Record:
    """Wait until the watcher on a host has written that status; return its state file."""
    uuid = lab.uuid(name, number)

    def found() -> Record | None:
        state = lab.state_file(uuid, number)
        return state if state and state["status"] == status else None

    return eventually(found, f"{name} is {status}")


def runs(lab: Lab, number: int) -> set[str]:
    """Return the heartbeat files on a host: one for each run that follows, or followed, moves from there."""
    return set(lab.on(number, "find", "/run/kvmfleet", "-name", "*.heartbeat").split())


def end_jobs(lab: Lab, name: str) -> None:
    """Abort what a failed scenario left, on whichever host."""
    for number in HOSTS:
        if lab.has_job(name, number):
            lab.try_("virsh", lab.host(number), "domjobabort", name)
