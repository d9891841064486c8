# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.hypervisor import JobStats
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.iterations import Iterations, read

RATE = 100
# Iterations end below 10: a tenth of a second.
ALLOWED_MS = 100

# Number of the iteration, what remains, what was sent since the start.
Reading = t.Tuple[int, int, int]


def after(*readings: Reading, rate: int = RATE) -> Iterations:
    seen = Iterations()
    for number, remaining, processed in readings:
        stats = JobStats(iteration=number, memory_remaining_bytes=remaining, memory_processed_bytes=processed, bandwidth_bytes=rate)
        seen = read(stats, ALLOWED_MS, seen)
    return seen


def test_nothing_is_said_before_an_iteration_has_ended() -> None:
    seen = after((0, 0, 0), (1, 1000, 5), (1, 300, 705))
    assert (seen.began_with, seen.sent, seen.shrinks) == (None, None, True)


def test_how_an_iteration_began_is_reckoned_back() -> None:
    """Of the 60 bytes between the two readings 20 ended the first iteration, 40 belong to the second."""
    seen = after((0, 0, 0), (1, 30, 970), (2, 360, 1030))
    assert (seen.began_with, seen.sent, seen.rewritten) == (400, 990, 400)
    assert seen.shrinks


def test_what_an_iteration_leaves_over_was_neither_sent_nor_written_again() -> None:
    seen = after((0, 0, 0), (1, 30, 970), (2, 360, 1030), (2, 20, 1370), (3, 380, 1400))
    assert (seen.began_with, seen.sent, seen.rewritten) == (400, 390, 390)
    assert not seen.shrinks


@pytest.mark.parametrize(("left", "shrinks"), [(100, True), (341, True), (343, False), (400, False), (800, False)])
def test_an_iteration_shrinks_when_clearly_less_is_written_than_was_sent(left: int, shrinks: bool) -> None:
    seen = after((0, 0, 0), (1, 10, 990), (2, 400, 990), (2, 10, 1380), (3, left, 1380))
    assert seen.shrinks is shrinks


def test_a_first_iteration_of_mostly_empty_pages_counts_what_was_sent() -> None:
    """A guest of 10000 bytes that holds 300 and writes all of them again."""
    seen = after((0, 0, 0), (1, 9800, 200), (1, 9700, 300), (2, 290, 310))
    assert (seen.sent, seen.rewritten) == (300, 300)
    assert not seen.shrinks


def test_a_beginning_that_nobody_saw_is_what_the_hypervisor_says_of_it() -> None:
    """A first iteration that ends with empty pages: the second began with 290 to 500 bytes, and the hypervisor says that it needs 4 s for them."""
    seen = after((0, 0, 0), (1, 9800, 1200), (2, 290, 1410))
    assert (seen.at_least, seen.began_with) == (290, 500)
    stats = JobStats(iteration=2, memory_remaining_bytes=200, memory_processed_bytes=1500, bandwidth_bytes=RATE, dirty_rate_bytes=900)
    stale = read(dataclasses.replace(stats, downtime_ms=100), ALLOWED_MS, seen)
    assert (stale.at_least, stale.began_with) == (290, 500)
    told = read(dataclasses.replace(stats, downtime_ms=4000), ALLOWED_MS, stale)
    assert (told.at_least, told.began_with, told.rewritten) == (None, 400, 400)
    assert read(dataclasses.replace(stats, downtime_ms=3000), ALLOWED_MS, told).began_with == 400


@pytest.mark.parametrize("readings", [[(5, 700, 4000), (6, 900, 4600)], [(1, 500, 500), (4, 700, 1700)]])
def test_an_iteration_whose_beginning_nobody_saw_says_nothing(readings: t.List[Reading]) -> None:
    seen = after(*readings)
    assert seen.shrinks


def test_after_a_gap_the_next_iteration_that_was_seen_whole_counts() -> None:
    seen = after((5, 700, 4000), (6, 600, 4700), (6, 20, 5300), (7, 690, 5320), (7, 20, 5990), (8, 700, 6000))
    assert not seen.shrinks


def test_the_end_of_an_iteration_is_expected_by_the_rate() -> None:
    assert after((1, 60, 0)).ends_in_seconds == 0.5
    assert after((1, 5, 0)).ends_in_seconds == 0
    assert after((1, 60, 0), rate=0).ends_in_seconds is None
