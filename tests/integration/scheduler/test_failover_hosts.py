# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reserve for failover on three hosts: it is the default of the fleet check, a drain keeps it or is refused, and a host in maintenance uses it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import MIB, Desk
from ansible_collections.kvmfleet.migration.tests.integration.scheduler.test_fleet_check import MET, check
from ansible_collections.kvmfleet.migration.tests.integration.scheduler.test_plans import states
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
SMALL = ("--mib", "48", "--dirty-mib", "8", "--rate", "500", "--integrity")
# The bystander lives on the first host, so the second is the one that is drained.
SOURCE, OTHER = 2, 3


@pytest.mark.long
def test_as_many_failover_hosts_as_there_are_hosts_are_refused_and_nothing_is_moved(lab: Lab, control: Desk, guest: Make) -> None:
    guest("alpha", *SMALL, on=SOURCE)
    control.scheduler(OTHER, failover_hosts=3)
    code, text = control.drain(SOURCE)
    told = " ".join(text.split())
    assert code != 0, text
    assert "kvmfleet_scheduler.failover_hosts is 3, and the fleet has 3 hosts." in told, text
    assert (lab.places("alpha"), control.records()) == ({SOURCE: "running"}, [])
    assert states(control).get(lab.host(SOURCE)) != "maintenance"


@pytest.mark.long
def test_a_drain_keeps_the_reserve_and_its_host_is_one_of_the_lost_hosts(lab: Lab, control: Desk, guest: Make) -> None:
    guest("alpha", *SMALL, on=SOURCE)
    for number in (1, SOURCE, OTHER):
        control.scheduler(number, failover_hosts=2)
    code, text = check(control)
    assert code == MET, text
    assert "The fleet can lose any 2 hosts." in text
    code, text = control.drain(SOURCE)
    assert code == 0, text
    assert "RESERVE The fleet keeps its reserve (failover_hosts: 2)." in text
    assert SOURCE not in lab.places("alpha")


@pytest.mark.long
def test_the_drain_of_one_host_is_possible_in_a_full_fleet_with_a_reserve_of_one(lab: Lab, control: Desk, guest: Make) -> None:
    guest("alpha", *SMALL, on=SOURCE)
    # The bystander fills the first host, and has no place on the third.
    used = sum(domain["memory_mib"] for domain in control.facts(1)["domains"] if domain["active"])
    control.leave_room(1, used, failover_hosts=1)
    control.leave_room(OTHER, 64, failover_hosts=1)
    total = control.facts(SOURCE)["memory"]["total_bytes"] // MIB
    control.scheduler(SOURCE, reserved_memory_mib=total - 48, failover_hosts=1)
    code, text = control.drain(SOURCE)
    assert code == 0, text
    assert lab.places("alpha") == {OTHER: "running"}
