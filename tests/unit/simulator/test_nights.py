# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nights of maintenance: limits hold in each, each ends or states what it waits for, and kills at random points change nothing of that."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import PowerState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.simulator import night_fleet
from ansible_collections.kvmfleet.migration.tests.simulator.night_fleet import Fleet
from ansible_collections.kvmfleet.migration.tests.simulator.nights import Night

SEEDS = range(12)


@pytest.mark.parametrize("seed", [*SEEDS[:3], *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[3:])])
def test_the_limits_of_a_night_hold_and_it_ends(tmp_path: pathlib.Path, seed: int) -> None:
    night = Night(seed, FileLedger(str(tmp_path / "ledger")))
    run = night.carry_out()
    assert night.fleet.violations == []
    assert night.fleet.most_down <= night.options.max_unavailable
    assert night.begun_late == []
    assert night.kills >= 1
    assert run.term == night.pid
    assert max(night.fleet.reboots.values(), default=0) <= 1
    assert night.fleet.wrong_fences == []
    assert night.left_off == set()
    assert run.state in (m.FINISHED, m.STOPPED) or run.reason
    assert run.hosts_with(m.IN_PROGRESS) == ()
    assert [one.host for one in run.hosts_with(m.FAILED, m.WAITING) if not one.error] == []


def test_a_host_that_is_drained_too_much_is_seen() -> None:
    fleet = Fleet({"kvm1": 8, "kvm2": 8, "kvm3": 8}, max_unavailable=1)
    fleet.drain("kvm1")
    fleet.drain("kvm2")
    assert len(fleet.violations) == 3


@pytest.mark.long
def test_the_faults_of_fences_come_about(tmp_path: pathlib.Path) -> None:
    nights = []
    for seed in SEEDS:
        night = Night(seed, FileLedger(str(tmp_path / str(seed))))
        night.carry_out()
        nights.append(night)
    assert sum(night.fences for night in nights) >= 10
    assert sum(night.refused_fences for night in nights) >= 3


def fleet_of_fences() -> Fleet:
    fleet = Fleet({"kvm1": 4, "kvm2": 4, "kvm3": 4}, max_unavailable=1)
    fleet.drain("kvm1")
    return fleet


def test_a_fence_of_a_host_that_may_run_a_guest_is_seen() -> None:
    fleet = fleet_of_fences()
    fleet.strangers.add("kvm1")
    fleet.switch_off("kvm1", night_fleet.IS_HONEST)
    assert len(fleet.wrong_fences) == 1
    fleet.switch_off("kvm2", night_fleet.LIES)
    assert len(fleet.wrong_fences) == 2


def test_a_second_fence_and_a_fence_of_a_host_that_is_back_are_seen() -> None:
    fleet = fleet_of_fences()
    assert fleet.switch_off("kvm1", night_fleet.IS_HONEST) is PowerState.OFF
    assert fleet.switch_on("kvm1", night_fleet.IS_HONEST) is PowerState.ON
    assert fleet.wrong_fences == []
    fleet.switch_off("kvm1", night_fleet.IS_HONEST)
    assert len(fleet.wrong_fences) == 2
