# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The judgement on a guest's counters."""

from __future__ import annotations

import pytest
from kvmlab.counters import judge


@pytest.mark.parametrize("counters", [[1, 1, 1], [2, 1, 1], [2, 2, 1], [7, 7, 7], [8, 7, 7, 7], []])
def test_counters_of_every_moment_of_a_round_are_intact(counters: list[int]) -> None:
    assert judge(counters).intact


@pytest.mark.parametrize(
    ("counters", "page"),
    [([5, 5, 3, 5], 2), ([5, 4, 5, 4], 2), ([5, 5, 0, 4], 2), ([5, 4, 3], 2), ([4, 5, 5], 1), ([1, 1, 0], 2), ([1, 0, 0], 1), ([0, 0, 0], 0)],
)
def test_a_lost_or_stale_page_is_named(counters: list[int], page: int) -> None:
    verdict = judge(counters)
    assert not verdict.intact
    assert f"page {page} " in verdict.problem


def test_increments_are_counted_over_all_pages() -> None:
    assert judge([1, 1, 1]).increments == 0
    assert judge([3, 2, 2]).increments == 4
