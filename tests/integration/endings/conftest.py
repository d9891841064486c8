# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One lab of three hosts for all ways in which a move can end; a ledger, and guests, for each scenario."""

from __future__ import annotations

import os
import pathlib
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import end_what_moves, heal
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import Session
from ansible_collections.kvmfleet.migration.tests.integration.moves.support.fleet import COMMAND, Lab, eventually

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}end"
BYSTANDER = "bystander"

# A guest that a capped move takes a few seconds for, one that it never ends for, and the one of the measurements.
SLOW = ("--mib", "64", "--dirty-mib", "40")
ENDLESS = ("--mib", "96", "--dirty-mib", "64", "--rate", "6000")
BUSY = ("--mib", "512", "--dirty-mib", "200", "--rate", "8100")

Make = t.Callable[..., str]


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    """Three hosts, and a guest on the first that no scenario is about."""
    lab = Lab(PREFIX)
    lab("down")
    lab("up", "--hosts", "3")
    lab("guest", BYSTANDER, "--host", lab.host(1), "--mib", "32")
    yield lab
    lab("down")


@pytest.fixture(autouse=True)
def nothing_else_moves(lab: Lab) -> t.Iterator[None]:
    yield
    assert lab.places(BYSTANDER) == {1: "running"}


@pytest.fixture
def control(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[Session]:
    """Root on the control node; at the end of each scenario its ledger's audit chain holds."""
    control = Session(lab, tmp_path)
    yield control
    if control.path.is_dir():
        assert control.ledger.verify_audit() == []


@pytest.fixture
def guest(lab: Lab) -> t.Iterator[Make]:
    """Return a function that makes a guest on the first host; it is removed after the test."""
    names: list[str] = []

    def make(name: str, *options: str) -> str:
        names.append(name)
        lab("guest", name, "--host", lab.host(1), *options)
        return name

    yield make
    for name in names:
        end_what_moves(lab, name)
        lab("rmguest", name)


@pytest.fixture
def mended(lab: Lab, guest: Make) -> t.Iterator[None]:
    """Undo what a scenario does to hosts and cables."""
    yield
    heal(lab)


@pytest.fixture
def slow(guest: Make) -> str:
    return guest("slow", *SLOW)


@pytest.fixture
def endless(guest: Make) -> str:
    return guest("endless", *ENDLESS)


@pytest.fixture
def busy(guest: Make) -> str:
    return guest("busy", *BUSY)


@pytest.fixture
def foreign(lab: Lab, endless: str) -> t.Iterator[subprocess.Popen[str]]:
    """A migration of the endless guest that somebody began with virsh."""
    uri = f"qemu+tcp://{lab.host(2)}/system"
    options = ("migrate", "--live", "--p2p", "--persistent", "--undefinesource", "--bandwidth", "8", endless, uri)
    command = [str(COMMAND), "--prefix", lab.prefix, "virsh", lab.host(1), *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        eventually(lambda: lab.has_job(endless), "virsh migrates")
        yield process
        process.communicate(timeout=60)
