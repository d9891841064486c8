# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A snapshot of a fleet that is protected already, with the ledger of that moment: under emulation, this is half of many a scenario."""

from __future__ import annotations

import hashlib
import pathlib
import shutil

from .machines import Machines
from .site import Site

# The product that protected it: another one makes another snapshot.
PRODUCT = pathlib.Path(__file__).resolve().parents[4]
PARTS = ("playbooks", "plugins", "roles")
GUESTS = {"web": ("--mib", "32", "--autostart"), "db": ("--mib", "24")}


class Protected:
    """The snapshot in one fleet; C(down) removes it with the fleet."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._name = f"protected-{_digest()}"
        self._ledger = machines.fleet.snapshots / f"{self._name}.ledger"

    def exists(self) -> bool:
        return self._ledger.is_dir()

    def make(self, folder: pathlib.Path) -> None:
        """Protect the fleet from the warm snapshot on, and keep it."""
        self._machines("reset")
        # Of a scenario that was interrupted between the two.
        shutil.rmtree(self._machines.fleet.snapshots / self._name, ignore_errors=True)
        for name, options in GUESTS.items():
            self._machines("guest", name, "--host", "m1", *options)
        (folder / "making").mkdir()
        site = Site(self._machines, folder / "making")
        site.succeed("protect", target="kvmfleet_hosts")
        self._machines("snapshot", "save", self._name)
        shutil.copytree(site.path, self._ledger)

    def load(self, folder: pathlib.Path) -> Site:
        """Bring the fleet to it, and return a control node with a copy of its ledger."""
        self._machines("snapshot", "load", self._name)
        site = Site(self._machines, folder)
        shutil.copytree(self._ledger, site.path)
        return site


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for part in PARTS for path in (PRODUCT / part).rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        digest.update(f"{path.relative_to(PRODUCT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
