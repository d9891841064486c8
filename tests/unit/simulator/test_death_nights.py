# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nights of deaths: no guest runs twice, no host is fenced that should not be, and each night ends in a state that has a name."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.detection import HostDetection
from ansible_collections.kvmfleet.migration.tests.simulator import death_nights
from ansible_collections.kvmfleet.migration.tests.simulator.death_nights import STATES, DeathNight

SEEDS = range(25)


def pass_nights(seeds: range) -> list[DeathNight]:
    nights = [DeathNight(seed) for seed in seeds]
    for night in nights:
        night.carry_out()
    return nights


def test_no_guest_runs_twice_no_host_is_fenced_needlessly_and_each_night_has_a_named_end() -> None:
    nights = pass_nights(SEEDS)
    assert [night.double_starts for night in nights if night.double_starts] == []
    assert [night.needless_fences for night in nights if night.needless_fences] == []
    assert [night.list_unnamed() for night in nights if night.list_unnamed()] == []
    # The nights are not empty.
    assert sum(night.kills for night in nights) >= 5
    assert sum(night.fences for night in nights) >= 5
    assert sum(night.starts for night in nights) >= 15
    states = [state for night in nights for state in night.states.values()]
    assert {death_nights.EVACUATED, death_nights.ANSWERS, death_nights.BRAKE, death_nights.IMPOSSIBLE} <= set(states) <= set(STATES)


class IsolatedNight(DeathNight):
    """Nothing happens but that one host is cut off for the whole night, from the storage network as well or not."""

    def __init__(self, seed: int, device: str, storage: bool) -> None:
        super().__init__(seed, kills=False)
        self.loss = self.lateness = self.gone_after = 0.0
        self._storage = storage
        self.fleet[0].device = device

    def plan_faults(self) -> None:
        self._isolate(self.fleet[0], 20.0, 2 * death_nights.NIGHT_SECONDS, self._storage)


def count_double_starts() -> int:
    nights = [IsolatedNight(seed, death_nights.LIES, storage=True) for seed in range(6)]
    assert all(night.carry_out() for night in nights)
    return sum(len(night.double_starts) for night in nights)


def test_a_device_that_lies_starts_no_guest_twice_because_images_are_locked_until_the_watchdog_has_acted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_double_starts() == 0
    monkeypatch.setattr(DeathNight, "is_locked", lambda self, guest: False)
    assert count_double_starts() >= 1


def test_a_host_that_its_storage_network_reaches_is_not_fenced_because_its_second_address_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    night = IsolatedNight(1, death_nights.HONEST, storage=False)
    assert night.carry_out() == {"kvm1": death_nights.ANSWERS}
    assert (night.fences, len(night.fleet[0].guests)) == (0, 3)
    monkeypatch.setattr(HostDetection, "note_probe", lambda self, path, answered_at, says: None)
    monkeypatch.setattr(HostDetection, "note_lease", lambda self, *values: None)
    night = IsolatedNight(1, death_nights.HONEST, storage=False)
    night.carry_out()
    assert len(night.needless_fences) == 1
