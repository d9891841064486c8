# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest of the lab that is moved to and fro between two hosts by the engine alone."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import time
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.tests.integration.support.control import BUILD, Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

MIB = 1024**2

_MODULE = f"{__package__}.one_move"
_FILL_SECONDS = 3


@dataclass(frozen=True)
class Shape:
    """A guest's memory in MiB: what it writes again and again, so many pages of it a second, and what it holds and never writes. The rest is empty."""

    dirty_mib: int
    pages_per_second: int
    cold_mib: int = 0
    empty_mib: int = 96

    @property
    def memory_mib(self) -> int:
        """All of it."""
        return self.dirty_mib + self.cold_mib + self.empty_mib


@dataclass
class Commuter:
    """A guest that is on the first host of the lab or on the second."""

    lab: Lab
    name: str
    shape: Shape
    at: int = 1

    def move(self, **wish: t.Any) -> Mapping[str, t.Any]:
        """Move it to the other host, as L(one_move.Wish) says; return what became of it."""
        there = 3 - self.at
        uri = f"qemu+tcp://{self.lab.host(there)}/system"
        document = {"uuid": self.lab.uuid(self.name, self.at), "destination_uri": uri, "memory_mib": self.shape.memory_mib, **wish}
        command = ("env", f"PYTHONPATH={BUILD}", sys.executable, "-m", _MODULE, json.dumps(document))
        done = self.lab.try_("exec", self.lab.host(self.at), "--", *command, timeout=400)
        if done.returncode:
            raise RuntimeError(f"{self.name} was not moved: {done.stderr}")
        result = t.cast("Mapping[str, t.Any]", json.loads(done.stdout))
        if result["ended"]:
            self.at = there
        return result


@contextlib.contextmanager
def commuter(control: Control, name: str, shape: Shape) -> Iterator[Commuter]:
    """Give a guest that runs on the first host; it is gone afterwards."""
    lab = control.lab
    size = ("--mib", str(shape.memory_mib), "--dirty-mib", str(shape.dirty_mib), "--rate", str(shape.pages_per_second))
    lab("guest", name, "--host", lab.host(1), "--off", *size)
    try:
        if shape.cold_mib:
            _give_cold_memory(lab, name, shape.cold_mib, control.folder / f"{name}.cold")
        lab.virsh(1, "start", name)
        time.sleep(_FILL_SECONDS)
        yield Commuter(lab, name, shape)
    finally:
        lab("rmguest", name)


def _give_cold_memory(lab: Lab, name: str, mib: int, path: pathlib.Path) -> None:
    """Let the guest be started with a module of random bytes, which it never looks at."""
    path.write_bytes(os.urandom(mib * MIB))
    xml = lab.virsh(1, "dumpxml", "--inactive", name).replace("</kernel>", f"</kernel><initrd>{path}</initrd>")
    lab("virsh", lab.host(1), "define", "/dev/stdin", stdin=xml)
