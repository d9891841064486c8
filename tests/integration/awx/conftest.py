# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of three hosts, an etcd of one member, and an AWX that knows the hosts; all that it keeps between jobs is the ledger."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.awx.support.jobs import Awx
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make, building
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import hooked_lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}awx"


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with hooked_lab(PREFIX, len(HOSTS)) as lab:
        yield lab


@pytest.fixture(scope="session")
def etcd() -> t.Iterator[dict[str, t.Any]]:
    """What a play has to know of an etcd cluster with certificates and users."""
    lab = Lab(f"{PREFIX}e")
    lab("etcd", "down")
    lab("etcd", "up", "--members", "1", "--tls", "--users")
    yield json.loads(lab("etcd", "variables"))
    lab("etcd", "down")


@pytest.fixture
def built(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[tuple[Site, Make]]:
    with building(lab, tmp_path / "site") as made:
        yield made


@pytest.fixture
def site(built: tuple[Site, Make]) -> t.Iterator[Site]:
    """A fleet of which nothing is in a ledger yet; at the end of the scenario the chain of audit lines holds."""
    yield built[0]
    built[0].verify_audit()


@pytest.fixture
def guest(built: tuple[Site, Make]) -> Make:
    """A function that makes a guest, on the first host and without a disk unless said otherwise."""
    return functools.partial(built[1], storage="none")


@pytest.fixture
def awx(site: Site, tmp_path: pathlib.Path) -> Awx:
    """An AWX whose ledger is a folder that jobs are given, as a mounted volume is."""
    return Awx(tmp_path / "jobs", pathlib.Path(site.inventory), {"kvmfleet_ledger": str(site.path)})


@pytest.fixture
def diskless(site: Site, tmp_path: pathlib.Path, etcd: dict[str, t.Any]) -> Awx:
    """An AWX whose jobs keep nothing: the ledger is in etcd."""
    location = f"{etcd['kvmfleet_ledger']}/{tmp_path.name}"
    return Awx(tmp_path / "jobs", pathlib.Path(site.inventory), {**etcd, "kvmfleet_ledger": location})
