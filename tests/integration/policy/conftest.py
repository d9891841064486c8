# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of two hosts for policies; guests and a ledger for each test."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.policy.support.operator import Operator
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, fresh_lab

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}policy"

Make = t.Callable[..., str]


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with fresh_lab(PREFIX, 2) as lab:
        yield lab


@pytest.fixture
def operator(lab: Lab, tmp_path: pathlib.Path) -> Operator:
    return Operator(lab, tmp_path)


@pytest.fixture
def guest(lab: Lab) -> t.Iterator[Make]:
    """Return a function that makes a guest on the first host; it is removed after the test."""
    names: list[str] = []

    def make(name: str, *options: str) -> str:
        names.append(name)
        lab("guest", name, "--host", lab.host(1), "--mib", "32", *options)
        return name

    yield make
    for name in names:
        lab("rmguest", name)


@pytest.fixture
def web(guest: Make) -> str:
    return guest("web")
