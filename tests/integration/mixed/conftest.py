# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One lab whose hosts are of two Debian releases: one of the older, two of the newer. Each scenario finds it as if nothing had ever happened there."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.mixed.support import fleet as m
from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', 'mix')}x"

Make = t.Callable[..., str]


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    lab = Lab(PREFIX)
    lab("down")
    m.bring_up(lab)
    yield lab
    lab("down")


@pytest.fixture
def fresh(lab: Lab) -> t.Iterator[None]:
    """Take back afterwards what a scenario did to hosts and cables, and what the collection left on them."""
    yield
    for number, release in ((m.OLD, m.OLD_RELEASE), (m.NEW, m.NEW_RELEASE), (m.NEWER, m.NEW_RELEASE)):
        lab("heal", lab.host(number))
        m.change_release(lab, number, release)
    m.bring_up(lab)
    for number in m.HOSTS:
        lab.on(number, "sh", "-c", m.STATE)


@pytest.fixture
def guest(lab: Lab, fresh: None) -> t.Iterator[Make]:
    """Return a function that makes a guest, on the host of the older release unless said otherwise; it is removed after the test."""
    names: list[str] = []

    def make(name: str, *options: str, on: int = m.OLD) -> str:
        names.append(name)
        lab("guest", name, "--host", lab.host(on), *options)
        return name

    yield make
    for number in m.HOSTS:
        lab("heal", lab.host(number))
    lab("up", "--hosts", str(len(m.HOSTS)))
    for name in names:
        m.end_jobs(lab, name)
        lab("rmguest", name)


@pytest.fixture
def control(lab: Lab, tmp_path: pathlib.Path, fresh: None) -> t.Iterator[m.Mixed]:
    """Root on the control node; at the end of each scenario its ledger's audit chain holds."""
    control = m.Mixed(lab, tmp_path)
    yield control
    control.verify_audit()


@pytest.fixture
def operator(lab: Lab, tmp_path: pathlib.Path, fresh: None) -> t.Iterator[Operator]:
    """An operator with playbooks, whose hosts were never seen by any ledger."""
    operator = Operator(lab, tmp_path)
    yield operator
    operator.verify_audit()
