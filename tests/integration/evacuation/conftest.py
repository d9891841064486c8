# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of three hosts of which any may die, and a site on it for each scenario or for each file of them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import hooked_lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}eva"

Make = t.Callable[..., str]
Building = contextlib.AbstractContextManager[tuple[Site, Make]]


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    """Three hosts whose libvirt calls a hook of ours."""
    with hooked_lab(PREFIX, len(HOSTS)) as lab:
        yield lab


@contextlib.contextmanager
def building(lab: Lab, folder: pathlib.Path) -> t.Iterator[tuple[Site, Make]]:
    """Give a site, and a function that makes a guest on shared storage; afterwards the fleet is as if it had never been."""
    site, names = Site(lab, folder), list[str]()

    def make(name: str, *options: str, on: int = 1, storage: str = "shared") -> str:
        names.append(name)
        lab("guest", name, "--host", lab.host(on), "--mib", "32", "--storage", storage, *options)
        return name

    try:
        yield site, make
    finally:
        site.close(names)


@pytest.fixture
def built(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[tuple[Site, Make]]:
    with building(lab, tmp_path) as made:
        yield made


@pytest.fixture
def site(built: tuple[Site, Make]) -> t.Iterator[Site]:
    """A fleet of which nothing is in a ledger yet; at the end of the scenario the chain of audit lines holds."""
    yield built[0]
    built[0].verify_audit()


@pytest.fixture
def guest(built: tuple[Site, Make]) -> Make:
    """A function that makes a guest on shared storage, on the first host unless said otherwise."""
    return built[1]
