# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nights of maintenance: limits hold in each, each ends or states what it waits for, and kills at random points change nothing of that."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.simulator.nights import Fleet, Night

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_limits_of_a_night_hold_and_it_ends(tmp_path: pathlib.Path, seed: int) -> None:
    night = Night(seed, FileLedger(str(tmp_path / "ledger")))
    run = night.carry_out()
    assert night.fleet.violations == []
    assert night.fleet.most_down <= night.options.max_unavailable
    assert night.begun_late == []
    assert night.kills >= 1
    assert run.term == night.pid
    assert max(night.fleet.reboots.values(), default=0) <= 1
    assert run.state in (m.FINISHED, m.STOPPED) or run.reason
    assert run.hosts_with(m.IN_PROGRESS) == ()
    assert [one.host for one in run.hosts_with(m.FAILED, m.WAITING) if not one.error] == []


def test_a_host_that_is_drained_too_much_is_seen() -> None:
    fleet = Fleet({"kvm1": 8, "kvm2": 8, "kvm3": 8}, max_unavailable=1)
    fleet.drain("kvm1")
    fleet.drain("kvm2")
    assert len(fleet.violations) == 3
