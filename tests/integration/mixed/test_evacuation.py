# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host of one release dies, and its guests are started on the other: a start needs the machine type, whatever the version of QEMU."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.mixed.support import fleet as m
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import Hooks
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site, evacuations

Make = t.Callable[..., str]
DISK = ("--mib", "48", "--storage", "shared")


@pytest.fixture
def site(lab: Lab, tmp_path: pathlib.Path, fresh: None) -> t.Iterator[Site]:
    for number in m.HOSTS:
        Hooks(lab, number).install()
    site = Site(lab, tmp_path)
    yield site
    site.verify_audit()


def test_guests_of_an_older_host_are_evacuated_to_a_newer_one(lab: Lab, site: Site, guest: Make) -> None:
    guest("web", *DISK)
    guest("idle", *DISK, "--off")
    site.protect()
    site.lose(m.OLD)
    done = site.evacuate(m.NEW, m.OLD)
    assert (done.code, len(evacuations(done))) == (0, 2), done.text
    assert site.fleet() == {m.NEW: {"web"}, m.NEWER: set()}
    assert (m.machine_of(lab, "web", m.NEW), lab.places("idle")) == (m.OLD_MACHINE, {m.NEW: "shut off"})
    site.bring_back(m.OLD)
    cleaned = site.clean(m.OLD)
    assert cleaned.code == 0, cleaned.text
    assert sorted(one["name"] for one in cleaned.result["cleaned"]) == ["idle", "web"]
    assert site.fleet() == {m.OLD: set(), m.NEW: {"web"}, m.NEWER: set()}


def test_an_older_host_starts_only_guests_whose_machine_type_it_has(lab: Lab, site: Site, guest: Make) -> None:
    guest("older", *DISK, "--machine", m.OLD_MACHINE, "--cores", "2", on=m.NEW)
    guest("newer", *DISK, on=m.NEW)
    site.protect()
    site.lose(m.NEW)
    done = site.evacuate(m.OLD, m.NEW)
    assert done.code != 0, done.text
    assert f"It does not have the machine type {m.NEW_MACHINE}: the newest of that family is {m.OLD_MACHINE}." in done.msg
    assert site.fleet() == {m.OLD: {"older"}, m.NEWER: set()}
    assert site.lab.places("newer") == {}
    rest = site.evacuate(m.NEWER, m.NEW)
    assert rest.code == 0, rest.text
    assert site.fleet() == {m.OLD: {"older"}, m.NEWER: {"newer"}}
    site.bring_back(m.NEW)
    assert site.clean(m.NEW).code == 0
    assert site.fleet() == {m.OLD: {"older"}, m.NEW: set(), m.NEWER: {"newer"}}


def test_a_host_that_comes_back_as_the_newer_release_is_the_same_host(lab: Lab, site: Site, guest: Make) -> None:
    guest("web", *DISK)
    site.protect()
    identity = site.identity(m.OLD)
    site.lose(m.OLD)
    assert site.evacuate(m.NEW, m.OLD).code == 0
    lab("release", lab.host(m.OLD), m.NEW_RELEASE)
    site.bring_back(m.OLD)
    assert site.identity(m.OLD) == identity
    cleaned = site.clean(m.OLD)
    assert cleaned.code == 0, cleaned.text
    assert [one["name"] for one in cleaned.result["cleaned"]] == ["web"]
    back = site.task(m.NEW, "live_migrate", {"name": "web", "destination": site.name(m.OLD), "unsafe": True})
    assert back.code == 0, back.text
    assert site.fleet() == {m.OLD: {"web"}, m.NEW: set(), m.NEWER: set()}
