# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of three hosts, a site on it for each scenario, and rulebooks that are gone afterwards."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import range_end, range_read
from ansible_collections.kvmfleet.migration.tests.integration.eda.support.rulebook import START_SECONDS, Rulebook
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make, building
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import hooked_lab
from ansible_collections.kvmfleet.migration.tests.integration.support.leased import LeasedSite, begin_cluster
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}eda"

Begin = t.Callable[..., Rulebook]
# The defaults: a login to etcd takes longer than a second on a machine that is busy.
LEASE = {"lease_seconds": 15, "renew_seconds": 3}


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with hooked_lab(PREFIX, len(HOSTS)) as lab:
        yield lab


@pytest.fixture
def built(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[tuple[Site, Make]]:
    with building(lab, tmp_path) as made:
        yield made


@pytest.fixture
def site(built: tuple[Site, Make]) -> Site:
    """A fleet whose inventory says which ledger and which folder of the brake it has."""
    site = built[0]
    for number in HOSTS:
        site.variable(number, "kvmfleet_ledger", site.where)
        site.variable(number, "kvmfleet_events_folder", str(site.folder / "events"))
    return site


@pytest.fixture
def receiver() -> t.Iterator[Receiver]:
    """What gets the notices."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def leased(lab: Lab, tmp_path: pathlib.Path, receiver: Receiver) -> t.Iterator[LeasedSite]:
    """A fleet with a guest on its first host, whose ledger is in etcd, and whose hosts renew their leases there."""
    begin_cluster(lab)
    site = LeasedSite(lab, tmp_path / "leased")
    try:
        for number in HOSTS:
            for name, value in {**site.etcd, "kvmfleet_notices": {"url": receiver.url, "timeout_seconds": 2}}.items():
                site.variable(number, name, value)
        lab("guest", "web", "--host", lab.host(1), "--mib", "32", "--storage", "shared")
        site.lease_hosts(**LEASE)
        yield site
    finally:
        lab("etcd", "start", "all")
        site.close(["web"])
        lab("etcd", "down")


@pytest.fixture
def begin_leased(leased: LeasedSite) -> t.Iterator[Begin]:
    """Return a function that begins an armed rulebook for hosts that are gone, as on a control node of its own, and waits until it is a candidate."""
    running: list[Rulebook] = []

    def start(**more: t.Any) -> Rulebook:
        more.setdefault("kvmfleet_events_gone_after_seconds", 30)
        etcd = {"kvmfleet_events_ledger": leased.where, "kvmfleet_events_etcd": leased.etcd["kvmfleet_etcd"]}
        running.append(Rulebook(leased, "kvmfleet.migration.host_gone", kvmfleet_events_evacuate=True, **etcd, **more))
        count = sum(not one.is_over() for one in running)
        running[-1].meanwhile(lambda: len(candidates(leased)) == count, "it takes part in the election", START_SECONDS)
        return running[-1]

    yield start
    for rulebook in running:
        rulebook.kill()


def candidates(site: LeasedSite) -> list[str]:
    """Return the places in the queue of the election."""
    start = f"{site.client.address.prefix}locks/events-host_gone/"
    return [found.key for found in site.client.read_range(range_read(start, range_end(start))).found]


@pytest.fixture
def guest(built: tuple[Site, Make]) -> Make:
    return built[1]


@pytest.fixture
def begin(site: Site) -> t.Iterator[Begin]:
    """Return a function that begins a rulebook; what still runs after the scenario is killed."""
    running: list[Rulebook] = []

    def start(name: str, **armed: t.Any) -> Rulebook:
        running.append(Rulebook(site, name, **armed))
        return running[-1]

    yield start
    for rulebook in running:
        rulebook.kill()
