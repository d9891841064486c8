# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import Iterations, read_iterations
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JobStats

RATE = 100
# Iterations end below 10: a tenth of a second.
ALLOWED_MS = 100

# Number of the iteration, what remains, what was sent since the start.
Reading = t.Tuple[int, int, int]


def iterations_after(*readings: Reading, rate: int = RATE) -> Iterations:
    seen = Iterations()
    for number, remaining, processed in readings:
        stats = JobStats(iteration=number, memory_remaining_bytes=remaining, memory_processed_bytes=processed, bandwidth_bytes=rate)
        seen = read_iterations(stats, ALLOWED_MS, seen)
    return seen


def test_iterations_are_unknown_before_the_first_has_ended() -> None:
    seen = iterations_after((0, 0, 0), (1, 1000, 5), (1, 300, 705))
    assert (seen.began_with, seen.sent, seen.is_shrinking) == (None, None, True)


def test_the_begin_of_an_iteration_is_computed_from_two_samples() -> None:
    """Of the 60 bytes between the two readings 20 ended the first iteration, 40 belong to the second."""
    seen = iterations_after((0, 0, 0), (1, 30, 970), (2, 360, 1030))
    assert (seen.began_with, seen.sent, seen.rewritten) == (400, 990, 400)
    assert seen.is_shrinking


def test_bytes_left_by_an_iteration_count_as_neither_sent_nor_rewritten() -> None:
    seen = iterations_after((0, 0, 0), (1, 30, 970), (2, 360, 1030), (2, 20, 1370), (3, 380, 1400))
    assert (seen.began_with, seen.sent, seen.rewritten) == (400, 390, 390)
    assert not seen.is_shrinking


@pytest.mark.parametrize(("left", "shrinks"), [(100, True), (341, True), (343, False), (400, False), (800, False)])
def test_an_iteration_shrinks_if_clearly_less_is_rewritten_than_sent(left: int, shrinks: bool) -> None:
    seen = iterations_after((0, 0, 0), (1, 10, 990), (2, 400, 990), (2, 10, 1380), (3, left, 1380))
    assert seen.is_shrinking is shrinks


def test_empty_pages_of_the_first_iteration_are_not_counted_as_sent() -> None:
    """A guest of 10000 bytes that holds 300 and writes all of them again."""
    seen = iterations_after((0, 0, 0), (1, 9800, 200), (1, 9700, 300), (2, 290, 310))
    assert (seen.sent, seen.rewritten) == (300, 300)
    assert not seen.is_shrinking


def test_an_unseen_begin_of_an_iteration_is_taken_from_the_hypervisor() -> None:
    """A first iteration that ends with empty pages: the second began with 290 to 500 bytes, and the hypervisor says that it needs 4 s for them."""
    seen = iterations_after((0, 0, 0), (1, 9800, 1200), (2, 290, 1410))
    assert (seen.at_least, seen.began_with) == (290, 500)
    stats = JobStats(iteration=2, memory_remaining_bytes=200, memory_processed_bytes=1500, bandwidth_bytes=RATE, dirty_rate_bytes=900)
    stale = read_iterations(dataclasses.replace(stats, downtime_ms=100), ALLOWED_MS, seen)
    assert (stale.at_least, stale.began_with) == (290, 500)
    told = read_iterations(dataclasses.replace(stats, downtime_ms=4000), ALLOWED_MS, stale)
    assert (told.at_least, told.began_with, told.rewritten) == (None, 400, 400)
    assert read_iterations(dataclasses.replace(stats, downtime_ms=3000), ALLOWED_MS, told).began_with == 400


@pytest.mark.parametrize("readings", [[(5, 700, 4000), (6, 900, 4600)], [(1, 500, 500), (4, 700, 1700)]])
def test_an_iteration_without_a_known_begin_is_ignored(readings: t.List[Reading]) -> None:
    seen = iterations_after(*readings)
    assert seen.is_shrinking


def test_the_next_complete_iteration_after_a_gap_counts() -> None:
    seen = iterations_after((5, 700, 4000), (6, 600, 4700), (6, 20, 5300), (7, 690, 5320), (7, 20, 5990), (8, 700, 6000))
    assert not seen.is_shrinking


def test_the_end_of_an_iteration_is_predicted_from_the_rate() -> None:
    assert iterations_after((1, 60, 0)).ends_in_seconds == 0.5
    assert iterations_after((1, 5, 0)).ends_in_seconds == 0
    assert iterations_after((1, 60, 0), rate=0).ends_in_seconds is None
