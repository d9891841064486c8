# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of two hosts for the tests of the lab itself."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import pytest

LAB = pathlib.Path(__file__).resolve().parents[2] / "lab/lab"
BASE = os.environ.get("KVMFLEET_LAB_PREFIX", "labt")
PREFIX, OTHER_PREFIX = f"{BASE}a", f"{BASE}b"
MIGRATE = ("migrate", "--live", "--p2p", "--persistent", "--undefinesource")


class Command:
    """The command C(lab), for one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def run(self, *arguments: str, stdin: str = "", timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, input=stdin, timeout=timeout, check=False)

    def __call__(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, f"lab {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def command(self, *arguments: str) -> t.List[str]:
        return [str(LAB), "--prefix", self.prefix, *arguments]

    def uri(self, number: int) -> str:
        return f"qemu+tcp://{self.host(number)}/system"

    def host(self, number: int) -> str:
        return f"{self.prefix}{number}"

    def status(self) -> t.Dict[str, t.Dict[str, t.Any]]:
        return {row["host"]: row for row in json.loads(self("status", "--json"))}

    def state(self, guest: str, number: int) -> t.Optional[str]:
        """Return a guest's state on a host, None where the host does not know it."""
        return next((one["state"] for one in self.status()[self.host(number)]["guests"] if one["name"] == guest), None)

    def migrate(self, guest: str, source: int, destination: int, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("virsh", self.host(source), *MIGRATE, *options, guest, self.uri(destination))


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Command]:
    command = Command(PREFIX)
    command("down")
    command("up", "--hosts", "2")
    yield command
    command("down")


@pytest.fixture
def other() -> t.Iterator[Command]:
    """A second lab, which a test brings up itself."""
    command = Command(OTHER_PREFIX)
    yield command
    command("down")


@pytest.fixture
def guest(lab: Command) -> t.Iterator[t.Callable[..., str]]:
    """Return a function that makes a guest on the first host; the guest is removed after the test."""
    names: t.List[str] = []

    def make(name: str, *options: str) -> str:
        names.append(name)
        lab("guest", name, "--host", lab.host(1), *options)
        return name

    yield make
    for name in names:
        lab("rmguest", name)
