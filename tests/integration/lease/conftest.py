# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three hosts that renew their leases in an etcd of three members."""

from __future__ import annotations

import os
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, fresh_lab
from ansible_collections.kvmfleet.migration.tests.integration.support.leased import LeasedSite, begin_cluster
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}lea"
# Short, so that what ends is seen to end soon, and long enough for a machine that is busy with other labs.
LEASE = {"lease_seconds": 12, "renew_seconds": 2, "relay": True}


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with fresh_lab(PREFIX, len(HOSTS)) as lab:
        yield lab
        lab("etcd", "down")


@pytest.fixture(scope="session")
def leased(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> LeasedSite:
    """The hosts with their leases, for all scenarios: each leaves them as it found them."""
    begin_cluster(lab)
    site = LeasedSite(lab, tmp_path_factory.mktemp("leased") / "site")
    site.lease_hosts(**LEASE)
    return site


@pytest.fixture
def site(leased: LeasedSite) -> t.Iterator[LeasedSite]:
    """The hosts with their leases; all of it is whole again afterwards."""
    yield leased
    lab = leased.lab
    lab("etcd", "start", "all")
    for number in HOSTS:
        lab("heal", lab.host(number))
    leased.verify_audit()
