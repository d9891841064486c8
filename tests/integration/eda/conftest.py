# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of three hosts, a site on it for each scenario, and rulebooks that are gone afterwards."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.eda.support.rulebook import Rulebook
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make, building
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import hooked_lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}eda"

Begin = t.Callable[..., Rulebook]


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
