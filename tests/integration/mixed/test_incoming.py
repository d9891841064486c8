# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""While libvirt 11.3 receives a guest, the facts of that host are complete, and other guests are checked and moved."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.mixed.support import fleet as m
from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator
from ansible_collections.kvmfleet.migration.tests.integration.support.control import Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]

ENDLESS = ("--mib", "96", "--dirty-mib", "64", "--rate", "6000", "--integrity")
CALM = ("--mib", "64", "--dirty-mib", "16", "--rate", "500", "--integrity")


@pytest.fixture
def arriving(lab: Lab, control: m.Mixed, guest: Make) -> t.Iterator[str]:
    """A guest that is on its way to the newer release, and does not arrive before the end of the scenario."""
    name = guest("arriving", *ENDLESS)
    control.set_policy(name, group={"name": "pair", "policy": "anti-affinity"})
    running = control.begin_migration(name, m.OLD, m.NEW, bandwidth_mib=4, downtime_ms=50, stall_seconds=0)
    lab.under_way(lab.uuid(name))
    yield name
    end(lab, name, running)


def end(lab: Lab, name: str, running: Running) -> None:
    lab.hurry(name)
    m.check_moved(lab, running.wait(), name, m.NEW)


def test_facts_of_a_destination_are_complete_during_an_incoming_migration(lab: Lab, control: m.Mixed, arriving: str) -> None:
    found = {domain["name"]: domain for domain in control.facts(m.NEW)["domains"]}
    assert found[arriving]["job"] == "incoming migration"
    assert (found[arriving]["memory_mib"], found[arriving]["vcpus"]) == (96, 1)
    assert found[arriving]["policy"]["group"] == {"name": "pair", "policy": "anti-affinity"}


def test_another_guest_is_moved_to_a_host_during_an_incoming_migration(lab: Lab, control: m.Mixed, arriving: str, guest: Make) -> None:
    name = guest("web", *CALM)
    seen = control.check(m.NEW, name=name)
    assert seen.code == 0, seen.text
    m.check_moved(lab, control.migrate(name, m.OLD, m.NEW), name, m.NEW)
    assert lab.has_job(arriving, m.OLD)


def test_anti_affinity_counts_a_group_member_that_is_still_incoming(lab: Lab, control: m.Mixed, arriving: str, guest: Make) -> None:
    name = guest("web", *CALM)
    control.set_policy(name, group={"name": "pair", "policy": "anti-affinity"})
    refused = control.migrate(name, m.OLD, m.NEW)
    assert refused.refused() == "conflict"
    assert arriving in refused.msg
    m.check_stayed(lab, name, m.OLD)


def test_protect_saves_other_domains_during_an_incoming_migration(lab: Lab, operator: Operator, arriving: str, guest: Make) -> None:
    resident = guest("resident", *CALM, on=m.NEW)
    operator.protect()
    (document,) = operator.ledger.find_domains(resident)
    assert document.body["protected"]["state"] == "running"
    assert [place["host"] for place in document.body["possible_hosts"]] == [lab.host(m.NEW)]
    assert lab.has_job(arriving, m.OLD)
