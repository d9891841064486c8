# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One fleet for all scenarios; each begins with it as the warm snapshot has it, and with a ledger of its own."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.protected import Protected
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

EVIDENCE = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> t.Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[EVIDENCE] = True
    return report


@pytest.fixture(scope="session")
def fleet() -> Machines:
    return Machines(os.environ["KVMFLEET_MACHINES_PREFIX"])


@pytest.fixture
def evidence(fleet: Machines, request: pytest.FixtureRequest) -> t.Iterator[None]:
    """Keep what the machines have to say of a scenario that failed."""
    yield
    folder = os.environ.get("KVMFLEET_MACHINES_EVIDENCE")
    if folder and request.node.stash.get(EVIDENCE, False):
        fleet.keep_evidence(pathlib.Path(folder))


@pytest.fixture
def machines(fleet: Machines, evidence: None) -> Machines:
    """Return the fleet as the warm snapshot has it."""
    fleet("reset")
    return fleet


@pytest.fixture
def site(machines: Machines, tmp_path: pathlib.Path) -> t.Iterator[Site]:
    """Return the control node of root."""
    site = Site(machines, tmp_path)
    yield site
    site.verify_audit()


@pytest.fixture
def operator(machines: Machines, tmp_path: pathlib.Path) -> t.Iterator[Site]:
    """Return the control node of a user without privileges, who becomes root by sudo."""
    site = Site(machines, tmp_path, "--user", "operator", "--become")
    yield site
    site.verify_audit()


@pytest.fixture
def protected(fleet: Machines, evidence: None, tmp_path: pathlib.Path) -> t.Iterator[Site]:
    """Return the control node of root and a fleet that was protected with two guests on m1, web and db; the first scenario that wants it has it made."""
    snapshot = Protected(fleet)
    if not snapshot.exists():
        snapshot.make(tmp_path)
    site = snapshot.load(tmp_path)
    yield site
    site.verify_audit()
