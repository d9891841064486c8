# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose libvirt has another UUID after each start of its daemon."""

from __future__ import annotations

import collections.abc
import pathlib
import re
import uuid

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import building
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site

LIBVIRTD_CONF = "etc-libvirt/libvirtd.conf"


@pytest.fixture
def restless(lab: Lab, tmp_path: pathlib.Path) -> collections.abc.Iterator[tuple[Site, collections.abc.Callable[..., None]]]:
    """A fleet with the guests C(web) and C(own) on the first host, and a function that gives hosts other libvirt UUIDs, as a restart of the daemon does.

    So it is where the firmware has no UUID: libvirt makes a random one at each start.
    """
    with building(lab, tmp_path) as (site, make):
        before = {number: site.on_disk(number, LIBVIRTD_CONF).read_text() for number in HOSTS}

        def restart(*numbers: int, is_on: bool = True) -> None:
            for number in numbers:
                conf = site.on_disk(number, LIBVIRTD_CONF)
                conf.write_text(re.sub(r'host_uuid = ".*"', f'host_uuid = "{uuid.uuid4()}"', conf.read_text()))
                if is_on:
                    site.lab("libvirtd", site.lab.host(number), "restart")

        make("web")
        make("own", "--off")
        try:
            yield site, restart
        finally:
            for number, text in before.items():
                site.on_disk(number, LIBVIRTD_CONF).write_text(text)
            site.lab("up", "--hosts", str(len(HOSTS)))
            for number in HOSTS:
                site.lab("libvirtd", site.lab.host(number), "restart")


@pytest.mark.long
def test_new_libvirt_uuids_of_the_hosts_do_not_stop_moves_evacuation_or_cleanup(restless: tuple[Site, collections.abc.Callable[..., None]]) -> None:
    """Protected, moved there and back, dead, evacuated, back and cleaned: each time libvirt's daemons have been started anew."""
    site, restart = restless
    site.protect()
    restart(*HOSTS)
    there = site.move("web", 2, unsafe=True)
    assert there.ended() == ("completed", None), there.text
    assert [there.record[end]["host_id"] for end in ("source", "destination")] == [site.identity(1), site.identity(2)]
    restart(*HOSTS)
    back = site.task(2, "live_migrate", {"name": "web", "destination": site.name(1), "unsafe": True})
    assert back.ended() == ("completed", None), back.text
    restart(2, 3)
    site.lose(1)
    done = site.evacuate(2)
    assert (done.code, done.changed) == (0, True), done.text
    assert site.fleet() == {2: {"web"}, 3: set()}
    restart(1, is_on=False)
    restart(2, 3)
    site.bring_back(1)
    cleaned = site.clean()
    assert (cleaned.code, cleaned.changed) == (0, True), cleaned.text
    assert not site.has_definition("web", 1)
    noticed = site.task(1, "host", {"state": "enabled"})
    assert noticed.code == 0, noticed.text
    assert "virtqemud.conf" in noticed.warnings
