# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.monitor import Samples, measure_progress
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JobStats
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Sample


def test_the_percent_counts_memory_and_disks() -> None:
    stats = JobStats(memory_total_bytes=100, memory_remaining_bytes=50, disk_total_bytes=300, disk_remaining_bytes=50)
    assert measure_progress(stats, 0).percent == 75


def test_the_percent_of_a_disk_copy_includes_the_memory_to_come() -> None:
    copying = JobStats(disk_total_bytes=300, disk_remaining_bytes=0)
    assert measure_progress(copying, 0, memory_bytes=100).percent == 75
    assert measure_progress(JobStats(), 0, memory_bytes=100).percent == 0
    moving = JobStats(memory_total_bytes=100, memory_remaining_bytes=40, disk_total_bytes=300)
    assert measure_progress(moving, 75, memory_bytes=100).percent == 90


def test_progress_without_statistics_is_0_percent() -> None:
    assert measure_progress(JobStats(), 0).percent == 0


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50))
def test_the_percent_never_falls_and_never_says_100(remainders: t.List[int]) -> None:
    percent, seen = 0, []
    for remaining in remainders:
        percent = measure_progress(JobStats(memory_total_bytes=1000, memory_remaining_bytes=remaining), percent).percent
        seen.append(percent)
    assert seen == sorted(seen)
    assert max(seen) <= 99


def test_the_percent_is_never_negative() -> None:
    assert measure_progress(JobStats(memory_total_bytes=10, memory_remaining_bytes=20), 0).percent == 0


@given(st.integers(0, 3000))
def test_at_most_60_evenly_spaced_samples_are_kept(polls: int) -> None:
    samples = Samples()
    for poll in range(polls):
        samples.add_sample(JobStats(iteration=poll), poll * 250, 50)
        assert len(samples.kept) <= 60
    times = [int(sample.elapsed_ms or 0) for sample in samples.kept]
    assert times == sorted(times)
    assert len(times) >= min(polls, 30)
    gaps = [b - a for a, b in zip(times, times[1:])]
    if gaps:
        assert max(gaps) <= 4 * min(gaps)
        assert times[-1] >= (polls - 1) * 250 - 2 * max(gaps)
        assert times[0] <= 2 * max(gaps)


def test_a_watcher_that_takes_over_continues_the_samples() -> None:
    kept = tuple(Sample(elapsed_ms=250 * index, allowed_downtime_ms=50) for index in range(60))
    samples = Samples(kept)
    samples.add_sample(JobStats(), 15000, 50)
    assert samples.kept[:-1] == list(kept[::2])
    assert len(samples.kept) == 31
    assert samples.kept[-1].elapsed_ms == 15000
    assert len(kept) == 60
