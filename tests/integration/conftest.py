# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One lab of three hosts for all scenarios of moves; a ledger, and guests, for each. A folder that needs other hosts has its own."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, end_what_moves, fresh_lab
from ansible_collections.kvmfleet.migration.tests.integration.support.host_names import other_names_on_second

# Beside the prefix of the suite that runs this, so that two suites do not make hosts of one name.
PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', 'mov')}m"
BYSTANDER = "bystander"

# A guest of which a move takes about a minute and a half where it is held (HELD), and one of which it never ends then: it writes 23 MiB a second,
# and enough of that on a machine that has little time for it.
SLOW = ("--mib", "128", "--dirty-mib", "96")
ENDLESS = ("--mib", "96", "--dirty-mib", "64", "--rate", "6000")

Make = t.Callable[..., str]


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    """Three hosts, and a guest on the first that no scenario is about."""
    with fresh_lab(PREFIX, 3) as lab:
        lab("guest", BYSTANDER, "--host", lab.host(1), "--mib", "32")
        yield lab


@pytest.fixture
def nothing_else_moves(lab: Lab) -> t.Iterator[None]:
    yield
    assert lab.places(BYSTANDER) == {1: "running"}


@pytest.fixture
def control_type() -> type[Control]:
    """The class of C(control). Folders whose scenarios need more of a control node have their own."""
    return Control


@pytest.fixture
def control(lab: Lab, tmp_path: pathlib.Path, nothing_else_moves: None, control_type: type[Control]) -> t.Iterator[Control]:
    """Root on the control node; at the end of each scenario its ledger's audit chain holds."""
    control = control_type(lab, tmp_path)
    yield control
    control.verify_audit()


@pytest.fixture
def guest(lab: Lab) -> t.Iterator[Make]:
    """Return a function that makes a guest on the first host; it is removed after the test."""
    names: list[str] = []

    def make(name: str, *options: str, on: int = 1) -> str:
        names.append(name)
        lab("guest", name, "--host", lab.host(on), *options)
        return name

    yield make
    for name in names:
        end_what_moves(lab, name)
        lab("rmguest", name)


@pytest.fixture
def slow(guest: Make) -> str:
    return guest("slow", *SLOW)


@pytest.fixture
def endless(guest: Make) -> str:
    return guest("endless", *ENDLESS)


@pytest.fixture
def other_names(lab: Lab) -> t.Iterator[None]:
    """Give the bridge and the shared folder of the second host other names; neither has the first host's name there."""
    with other_names_on_second(lab):
        yield
