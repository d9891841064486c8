# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A busy guest makes pressure on its own host alone, in its own control group, and the timer of systemd stores readings until it is removed."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Outcome, Running
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

FOLDER = "/run/kvmfleet/load"
TIMER = "kvmfleet-load.timer"
# A machine has one processor, which each of these guests would keep busy alone.
GUESTS = ("one", "two")
BUSY = ("--mib", "32", "--dirty-mib", "4", "--rate", "8000000")


def facts_of(site: Site, on: int) -> dict[str, t.Any]:
    return site.facts(on, load_seconds=60)


def run_timer(site: Site, **arguments: t.Any) -> Outcome:
    return Running(site.popen(site.ad_hoc_command(1, "load_timer", arguments, ledger=False))).wait()


def test_a_busy_host_has_more_pressure_than_an_idle_one_and_its_timer_stores_readings(machines: Machines, site: Site) -> None:
    for name in GUESTS:
        machines("guest", name, "--host", "m1", *BUSY)
    installed = run_timer(site, interval_seconds=60)
    assert installed.code == 0, installed.text
    assert machines.on(1, f"systemctl is-active {TIMER}").strip() == "active"
    facts_of(site, 1), facts_of(site, 2)
    time.sleep(70)
    busy, idle = facts_of(site, 1), facts_of(site, 2)
    assert busy["load"]["interval_seconds"] >= 5
    assert busy["load"]["cpu_pressure"] > idle["load"]["cpu_pressure"]
    assert busy["load"]["cpu_used_share"] > idle["load"]["cpu_used_share"]
    loads = {domain["name"]: domain["load"] for domain in busy["domains"]}
    assert set(loads) == {*GUESTS}
    for load in loads.values():
        assert load["cpu_pressure"] > 0, load
        assert load["cpu_cores_used"] > 0, load
    assert int(machines.on(1, f"ls {FOLDER} | wc -l")) >= 2

    removed = run_timer(site, state="absent")
    assert removed.code == 0, removed.text
    assert machines.on(1, f"systemctl is-active {TIMER} || true").strip() == "inactive"
    assert machines.on(1, "ls /usr/local/lib/kvmfleet /etc/systemd/system/timers.target.wants").find("kvmfleet-load") < 0
