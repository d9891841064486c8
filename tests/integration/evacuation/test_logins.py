# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts ask each other over SSH, whose server drops logins while others are not authenticated yet (MaxStartups): a dropped login is no silence."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.support.door import Door
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS, Site

Make = t.Callable[..., str]


@pytest.mark.long
def test_a_login_that_the_ssh_server_drops_is_tried_again(site: Site, guest: Make) -> None:
    guest("web")
    site.protect()
    for number in HOSTS:
        site.variable(number, "kvmfleet_transport", "ssh")
    site.lose(1)
    door = Door(site, 3)
    with door.narrow():
        before = door.drops()
        with door.occupied():
            running = site.begin_evacuation(2)
            eventually(lambda: door.drops() > before, "a login at the third host is dropped")
        done = running.wait()
    assert done.code == 0, done.text
    site.check_end_state({2: ["web"], 3: []}, site.line("web", "done", 1, 2))
