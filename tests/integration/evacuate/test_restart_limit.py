# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest that was on two hosts when they lost their power is not started a third time by itself."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site


@pytest.mark.long
def test_a_guest_whose_two_hosts_died_waits_for_a_person_and_the_others_are_started(site: Site, guest: Make, tmp_path: pathlib.Path) -> None:
    guest("killer")
    guest("calm", on=2)
    site.protect()
    site.lose(1)
    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_destination=site.name(2))
    assert code == 0, text
    assert site.fleet() == {2: {"killer", "calm"}, 3: set()}
    (restart,) = site.document("killer")["restarts"]
    assert restart["source"]["host"] == site.name(1)
    assert "restarts" not in site.document("calm")

    # The first host answers again, without guests. It is fenced in the ledger, so nobody's destination.
    site.bring_back(1)
    site.lose(2)
    code, text = site.playbook("react_host_gone", source=site.name(2), kvmfleet_events_folder=str(tmp_path / "events"))
    assert code != 0, text
    printed = " ".join(text.split())
    assert f"Domain killer waits for a person: it was on {site.name(1)} when that host was evacuated at" in printed
    assert site.fleet() == {1: set(), 3: {"calm"}}
    assert [line[:2] for line in site.record_summaries()].count(("killer", "conflict")) == 1
    waiting = f"Domain killer waits for a person: it was on {site.name(1)} when that host was evacuated at"
    assert waiting in _screen(site)

    code, text = site.playbook("evacuate", source=site.name(2), evacuate_host_domains=["killer"])
    assert code == 0, text
    assert site.fleet() == {1: set(), 3: {"killer", "calm"}}
    assert len(site.document("killer")["restarts"]) == 2
    assert waiting not in _screen(site)
    site.verify_audit()


def _screen(site: Site) -> str:
    code, text = site.playbook("status")
    assert code == 0, text
    return " ".join(text.split())
