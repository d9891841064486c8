# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three hosts that go off and come back, and an operator with a ledger for each scenario. The hosts are cleaned of all state between scenarios."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, forget_collection, fresh_lab

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', 'rec')}r"

Make = t.Callable[..., str]


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with fresh_lab(PREFIX, 3) as lab:
        yield lab


@pytest.fixture
def operator(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[Operator]:
    """Return an operator whose hosts were never seen by any ledger; all are up, and forget this one in the end."""
    operator = Operator(lab, tmp_path)
    yield operator
    forget_collection(lab, 3)
    operator.verify_audit()


@pytest.fixture
def guest(lab: Lab, operator: Operator) -> t.Iterator[Make]:
    """Return a function that makes a guest on a host; it is removed after the test."""
    names: list[str] = []

    def make(name: str, *options: str, on: int = 1) -> str:
        names.append(name)
        lab("guest", name, "--host", lab.host(on), "--mib", "48", *options)
        return name

    yield make
    lab("up", "--hosts", "3")
    for name in names:
        lab("rmguest", name)
