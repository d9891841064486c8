# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.hypervisor import JobStats
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.progress import Samples, progress_of


def test_the_percent_counts_memory_and_disks() -> None:
    stats = JobStats(memory_total_bytes=100, memory_remaining_bytes=50, disk_total_bytes=300, disk_remaining_bytes=50)
    assert progress_of(stats, 0)["percent"] == 75


def test_the_memory_that_comes_after_the_disks_is_counted_from_the_start() -> None:
    copying = JobStats(disk_total_bytes=300, disk_remaining_bytes=0)
    assert progress_of(copying, 0, memory_bytes=100)["percent"] == 75
    assert progress_of(JobStats(), 0, memory_bytes=100)["percent"] == 0
    moving = JobStats(memory_total_bytes=100, memory_remaining_bytes=40, disk_total_bytes=300)
    assert progress_of(moving, 75, memory_bytes=100)["percent"] == 90


def test_nothing_known_yet_is_0_percent() -> None:
    assert progress_of(JobStats(), 0)["percent"] == 0


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50))
def test_the_percent_never_falls_and_never_says_100(remainders: t.List[int]) -> None:
    percent, seen = 0, []
    for remaining in remainders:
        percent = progress_of(JobStats(memory_total_bytes=1000, memory_remaining_bytes=remaining), percent)["percent"]
        seen.append(percent)
    assert seen == sorted(seen)
    assert max(seen) <= 99


def test_a_remainder_larger_than_the_total_is_not_negative() -> None:
    assert progress_of(JobStats(memory_total_bytes=10, memory_remaining_bytes=20), 0)["percent"] == 0


@given(st.integers(0, 3000))
def test_there_are_never_more_than_60_samples_and_they_are_spread_evenly(polls: int) -> None:
    samples = Samples()
    for poll in range(polls):
        samples.add(JobStats(iteration=poll), poll * 250, 50)
        assert len(samples.kept) <= 60
    times = [sample["elapsed_ms"] for sample in samples.kept]
    assert times == sorted(times)
    assert len(times) >= min(polls, 30)
    gaps = [b - a for a, b in zip(times, times[1:])]
    if gaps:
        assert max(gaps) <= 4 * min(gaps)
        assert times[-1] >= (polls - 1) * 250 - 2 * max(gaps)
        assert times[0] <= 2 * max(gaps)


def test_an_adopter_goes_on_with_the_samples_there_are() -> None:
    kept = [{"elapsed_ms": 250 * index} for index in range(60)]
    samples = Samples(kept)
    samples.add(JobStats(), 15000, 50)
    assert samples.kept is kept
    assert len(kept) == 31
    assert kept[-1]["elapsed_ms"] == 15000
