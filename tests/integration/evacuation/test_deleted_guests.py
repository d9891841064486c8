# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that their owner has deleted: an evacuation does not bring them back by itself."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site


@pytest.mark.long
def test_a_guest_that_was_deleted_is_started_only_if_it_is_named(site: Site, built: tuple[Site, Make]) -> None:
    for name in ("web", "own"):
        built[1](name)
    site.protect()
    for verb in ("destroy", "undefine"):
        site.lab.virsh(1, verb, "web")
    code, text = site.playbook("protect", target="all")
    assert (code, "Domain web is no longer on this host" in text) == (0, True), text
    assert not site.changes_by_protecting()
    site.lose(1)
    code, text = site.playbook("evacuate", source=site.name(1))
    assert code == 0, text
    assert "NOT SELECTED web" in text
    assert sorted(name for names in site.fleet().values() for name in names) == ["own"]
    # Its owner has deleted the wrong one.
    done = site.evacuate(2, domains=["web"])
    assert done.code == 0, done.text
    assert "web" in site.fleet()[2]
    assert "missing" not in site.document("web")
