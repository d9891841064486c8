# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of three hosts with a few guests, a control node with a ledger on a disk of its own, and who looks at all of it."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_for_reading
from ansible_collections.kvmfleet.migration.tests.integration.faults.engine import disks
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

from .actions import HOSTS
from .clocks import Clocks
from .eyes import Eyes
from .fencing import Device
from .looks import Look
from .model import Guest, Model, Violation
from .tasks import Tasks
from .watch import Watch

# Small ones: what is looked for is in the order of events, not in the size of memories. Two of them write so fast that a move can be hard to end; their
# pages are not judged, for QEMU 7.2 without KVM loses pages of such guests by itself (see the README). Two write slowly, and each page of theirs is.
GUESTS: dict[str, dict[str, t.Any]] = {
    "ada": {"host": 1, "mib": 32},
    "bob": {"host": 1, "mib": 48, "dirty_mib": 24, "rate": 20, "storage": "shared"},
    "cora": {"host": 2, "mib": 64, "dirty_mib": 40, "rate": 2000, "storage": "shared"},
    "dan": {"host": 2, "mib": 32, "dirty_mib": 16, "rate": 10},
    "eve": {"host": 3, "mib": 32, "storage": "shared"},
    "fred": {"host": 3, "mib": 48, "dirty_mib": 24, "rate": 4000, "storage": "bindfs"},
}
# Their images are behind a process of each host, which can hang.
SERVED = tuple(name for name, wish in GUESTS.items() if wish.get("storage") == "bindfs")
FASTEST_JUDGED = 50
LEDGER_MIB = 96


class Stage:
    """Use it as a context.

    :arg folder: for all that is kept; made by who calls.
    """

    def __init__(self, prefix: str, folder: pathlib.Path) -> None:
        self.lab = Lab(prefix)
        self.folder = folder
        self.archive = folder / "archive"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Stage:
        with contextlib.ExitStack() as stack:
            stack.callback(self.lab, "down")
            self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *dummy: object) -> None:
        self._stack.close()

    def _set_up(self, stack: contextlib.ExitStack) -> None:
        self.lab("down")
        self.lab("up", "--hosts", str(len(HOSTS)))
        self.site = Site(self.lab, self.folder)
        self.disk = stack.enter_context(disks.small_ledger(self.site.path, LEDGER_MIB))
        self.device = Device(self.folder)
        for number in HOSTS:
            self.site.fencing(number, self.site.agent(number, self.device.agent))
        self.clocks = Clocks(self.site, self.folder)
        self.tasks = Tasks(self.site, self.folder / "tasks")
        stack.callback(self.tasks.end_all)
        for name, wish in GUESTS.items():
            self.lab.make_guest(name, {"autostart": True, **wish})
        self.site.protect(guard=True)
        self.model = Model([Guest(name, "dirty_mib" in wish, wish.get("rate", 0) <= FASTEST_JUDGED) for name, wish in GUESTS.items()])
        self.eyes = Eyes(self.lab.prefix)
        stack.callback(self.eyes.close)
        self.watch = stack.enter_context(Watch(self.eyes, self.model, self.learn_of_fencing))

    def read_archive(self) -> list[MoveRecord]:
        """Return the records that were archived."""
        return list(open_for_reading(str(self.archive)).list_records()) if self.archive.exists() else []

    def learn_of_fencing(self) -> None:
        """Excuse those whom the fence device has killed."""
        for host, guest in self.device.new_victims():
            if guest in self.model.guests:
                self.model.excuse(guest, f"{host} was fenced")

    def on(self, look: Look) -> list[int]:
        """Return the hosts that are on."""
        return [number for number in HOSTS if look[number].power]

    def signal_file_server(self, number: int, name: str) -> str:
        """Send a signal to the file server of a host; return what cannot be done."""
        done = self.lab.try_("exec", self.lab.host(number), "--", "sh", "-c", f"kill -{name} $(pgrep -x bindfs)")
        return done.stderr.strip()

    def sh(self, number: int, script: str) -> str:
        """Run a line of shell on a host, past its network. Raises L(Violation) where that fails."""
        done = self.lab.try_("exec", self.lab.host(number), "--", "sh", "-c", script)
        if done.returncode:
            raise Violation(f"host {number} cannot be asked: {done.stderr.strip()}", hosts=[number])
        return done.stdout
