# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import (
    GIB,
    DowntimeStep,
    downtime_at,
    downtime_steps,
    effective_timeout_seconds,
    size_gib,
)


def ramp(seconds: float, *milliseconds: int) -> t.List[DowntimeStep]:
    return [(seconds * index, value) for index, value in enumerate(milliseconds)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((400, 10, 30, 3.0), ramp(90, 40, 76, 112, 148, 184, 220, 256, 292, 328, 364, 400)),
        ((500, 10, 75, 2.0), ramp(150, 50, 95, 140, 185, 230, 275, 320, 365, 410, 455, 500)),
        ((500, 10, 75, 8), ramp(600, 50, 95, 140, 185, 230, 275, 320, 365, 410, 455, 500)),
        ((100, 3, 3, 2), ramp(6, 33, 55, 77, 100)),
        ((500, 3, 75, 2.5), ramp(187, 166, 277, 388, 500)),
        ((1000, 4, 10, 2.7), ramp(27, 250, 437, 625, 812, 1000)),
        ((100, 10, 75, 2), ramp(150, 10, 19, 28, 37, 46, 55, 64, 73, 82, 91, 100)),
    ],
)
def test_the_ramp_follows_the_specification(arguments: t.Tuple[int, int, int, float], expected: t.List[DowntimeStep]) -> None:
    assert downtime_steps(*arguments) == expected


@pytest.mark.parametrize(("downtime", "steps"), [(500, 6), (1000, 6), (400, 22)])
def test_the_last_step_of_the_ramp_is_exactly_the_full_downtime(downtime: int, steps: int) -> None:
    assert downtime_steps(downtime, steps, 75, 2.0)[-1][1] == downtime


def test_a_ramp_is_compressed_to_half_of_the_timeout() -> None:
    assert downtime_steps(500, 10, 75, 8, 600) == ramp(30, 50, 95, 140, 185, 230, 275, 320, 365, 410, 455, 500)


def test_a_ramp_shorter_than_half_of_the_timeout_is_not_changed() -> None:
    assert downtime_steps(400, 10, 30, 3.0, 1800) == downtime_steps(400, 10, 30, 3.0)
    assert downtime_steps(400, 10, 30, 3.0, 1799)[-1][0] == pytest.approx(899.5)


def test_a_timeout_of_zero_does_not_compress_the_ramp() -> None:
    assert downtime_steps(500, 10, 75, 8, 0) == downtime_steps(500, 10, 75, 8)


@given(
    downtime=st.integers(1, 2_000_000),
    steps=st.integers(1, 1000),
    delay=st.integers(0, 10_000),
    gib=st.floats(2, 4096),
    timeout=st.one_of(st.none(), st.integers(0, 7 * 24 * 3600)),
)
def test_every_ramp_rises_to_the_full_downtime_in_time(downtime: int, steps: int, delay: int, gib: float, timeout: t.Optional[int]) -> None:
    found = downtime_steps(downtime, steps, delay, gib, timeout)
    assert len(found) == steps + 1
    assert found[0][0] == 0
    assert found[-1][1] == downtime
    assert all(a[0] <= b[0] and 1 <= a[1] <= b[1] for a, b in zip(found, found[1:]))
    if timeout:
        assert found[-1][0] <= timeout / 2 + 1e-6


def test_the_downtime_at_a_time_is_that_of_the_last_step_reached() -> None:
    steps = [(0.0, 40), (90.0, 76), (180.0, 400)]
    seen = [downtime_at(steps, seconds) for seconds in (0, 89.9, 90, 179.9, 180, 99999)]
    assert seen == [40, 40, 76, 76, 400, 400]


@pytest.mark.parametrize(
    ("memory", "disks", "expected"),
    [(GIB // 2, (), 2.0), (2 * GIB, (), 2.0), (3 * GIB, (), 3.0), (GIB, (10 * GIB, 3 * GIB // 2), 14.0), (8 * GIB, (0,), 10.0)],
)
def test_the_size_has_a_floor_of_2_gib_for_memory_and_each_copied_disk(memory: int, disks: t.Tuple[int, ...], expected: float) -> None:
    assert size_gib(memory, disks) == expected


@pytest.mark.parametrize(("given_seconds", "gib", "expected"), [(None, 2.0, 1600), (None, 8, 6400), (600, 8, 600), (0, 8, 0)])
def test_the_timeout_is_given_or_computed_from_the_size(given_seconds: t.Optional[int], gib: float, expected: int) -> None:
    assert effective_timeout_seconds(given_seconds, 800, gib) == expected


@pytest.mark.parametrize(
    ("per_gib", "gib", "expected"), [(100, 8, 800), (100, 2.5, 250), (1, 2, 2), (800, 756, 604800), (800, 757, 604800), (604800, 2, 604800)]
)
def test_the_timeout_by_size_is_at_most_a_week(per_gib: int, gib: float, expected: int) -> None:
    assert effective_timeout_seconds(None, per_gib, gib) == expected
    assert effective_timeout_seconds(700000, per_gib, gib) == 700000
