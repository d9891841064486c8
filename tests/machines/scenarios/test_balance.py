# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Busy guests make real pressure on their machine, which has a kernel of its own. A balance lowers the measured pressure, and a second one moves nothing."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

# A machine has one processor, which each of these guests would keep busy alone. They write so little memory that their moves end under emulation.
GUESTS = ("one", "two")
BUSY = ("--mib", "32", "--dirty-mib", "1", "--rate", "8000000")
# The tasks of Ansible make pressure of their own on a machine: over this time they hardly count.
MEASURED_SECONDS = 300
# The mean is since the oldest reading.
LOAD_SECONDS = 3600


def pressures(site: Site) -> dict[int, float]:
    """Return the pressure of the CPU on each machine, as a mean over the time of the test."""
    found = {}
    for number in (1, 2, 3):
        load = site.facts(number, load_seconds=LOAD_SECONDS)["load"]
        assert load["cpu_pressure"] is not None, load
        found[number] = t.cast(float, load["cpu_pressure"])
    print(f"pressures: {found}", flush=True)
    return found


def measure(machines: Machines, site: Site) -> dict[int, float]:
    """Forget all readings, take new ones, and measure from now on."""
    for number in (1, 2, 3):
        machines.on(number, "rm -rf /run/kvmfleet/load")
    pressures(site)
    time.sleep(MEASURED_SECONDS)
    return pressures(site)


def test_a_balance_lowers_the_measured_pressure_and_a_second_one_moves_nothing(machines: Machines, site: Site) -> None:
    for name in GUESTS:
        machines("guest", name, "--host", "m1", *BUSY)
    before = measure(machines, site)
    assert before[1] > max(before[2], before[3]), before

    variables: dict[str, t.Any] = {
        "balance_load_seconds": LOAD_SECONDS,
        "balance_max_age_seconds": 3600,
        "balance_tolerated_pressure": min(1.0, before[1] / 2),
    }
    done = site.play_book("balance", balance_mode="apply", **variables)
    assert done.code == 0, done.text
    moved = [record for record in site.records() if record["status"] == "completed"]
    assert len(moved) == 1, done.text
    assert moved[0]["domain"]["name"] in GUESTS

    after = measure(machines, site)
    assert max(after.values()) < before[1], (before, after)
    again = site.play_book("balance", balance_mode="apply", **variables)
    assert again.code == 0, again.text
    assert "Nothing to move." in " ".join(again.text.split()), again.text
    assert len(site.records()) == 1
