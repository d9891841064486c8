# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.pressure import (
    CERTAIN_PRESSURE,
    CPU,
    KNEES,
    MEMORY,
    SIGNALS,
    effective_share,
    pressure_at,
    share_at,
)

RESOURCES = st.sampled_from(range(len(SIGNALS)))
SHARES = st.floats(0, 2)
PRESSURES = st.floats(0, 1)


def test_nothing_waits_up_to_the_knee_and_everything_does_at_full_use() -> None:
    assert [pressure_at(share, CPU) for share in (0.0, 0.5, KNEES[CPU], 1.0)] == [0.0, 0.0, 0.0, 1.0]
    assert pressure_at(0.95, MEMORY) == pytest.approx(0.25)


@given(SHARES, SHARES, RESOURCES)
def test_the_pressure_never_falls_with_the_share(one: float, other: float, resource: int) -> None:
    low, high = sorted((one, other))
    assert pressure_at(low, resource) <= pressure_at(high, resource)


@given(PRESSURES, RESOURCES)
def test_a_pressure_and_its_share_belong_together(pressure: float, resource: int) -> None:
    assert pressure_at(share_at(pressure, resource), resource) == pytest.approx(pressure, abs=1e-9)


def test_a_host_without_pressure_information_is_judged_by_its_use() -> None:
    assert effective_share(0.83, None, CPU) == 0.83


def test_certain_pressure_counts_whatever_the_use_is() -> None:
    assert effective_share(0.2, 0.25, CPU) == effective_share(0.99, 0.25, CPU) == share_at(0.25, CPU)


def test_a_host_without_any_pressure_is_at_the_knee_at_most() -> None:
    assert effective_share(0.95, 0.0, CPU) == KNEES[CPU]
    assert effective_share(0.3, 0.0, CPU) == 0.3


@given(PRESSURES, PRESSURES, SHARES, RESOURCES)
def test_more_pressure_never_makes_a_host_look_emptier(one: float, other: float, used: float, resource: int) -> None:
    low, high = sorted((one, other))
    assert effective_share(used, low, resource) <= effective_share(used, high, resource) + 1e-9


@given(st.floats(0, CERTAIN_PRESSURE), SHARES, SHARES, RESOURCES)
def test_more_use_never_makes_a_host_look_emptier(pressure: float, one: float, other: float, resource: int) -> None:
    low, high = sorted((one, other))
    assert effective_share(low, pressure, resource) <= effective_share(high, pressure, resource) + 1e-9
