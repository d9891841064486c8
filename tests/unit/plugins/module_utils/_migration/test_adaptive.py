# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.adaptive import Adaptive
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.estimate import SWITCHOVER_MS
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.iterations import Iterations
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.schedule import Allowance, Moment

MIB = 1024**2
CAP = 32 * MIB
ADAPTIVE = Adaptive(first_ms=50, longest_ms=500)


def stuck(left_mib: int, rate: int = CAP, number: int = 3) -> Iterations:
    """An iteration after one that sent as much as was written again."""
    left = left_mib * MIB
    return Iterations(number, began_with=left, sent=left, rewritten=left, remaining=left, rate=rate)


def shrinking(left_mib: int) -> Iterations:
    return dataclasses.replace(stuck(left_mib), sent=2 * left_mib * MIB)


def allowed(seen: Iterations, schedule: Adaptive = ADAPTIVE, already: t.Optional[int] = 50, elapsed: float = 5) -> Allowance:
    return schedule.allow(Moment(elapsed, seen, already))


def test_it_begins_with_the_first_step() -> None:
    assert allowed(Iterations(), already=None) == Allowance(50)


@pytest.mark.parametrize("left_mib", [1, 8, 16, 1000])
def test_the_first_step_holds_while_iterations_shrink_what_remains(left_mib: int) -> None:
    assert allowed(shrinking(left_mib)) == Allowance(50)


def test_what_the_rest_needs_is_allowed_when_they_do_not() -> None:
    found = allowed(stuck(8))
    assert 250 < found.milliseconds < 400
    assert found.predicted_ms == SWITCHOVER_MS + 250
    assert found.reason.startswith("Of 8 MiB that iteration 2 sent the guest has written 8 MiB again")


@pytest.mark.parametrize("left_mib", [15, 16, 64, 1000])
def test_without_a_known_link_never_more_than_the_longest_pause(left_mib: int) -> None:
    assert allowed(stuck(left_mib)).milliseconds == 500


def test_with_a_known_link_more_is_allowed_than_the_cap_would_let_through() -> None:
    """160 MiB cross the cap in 5 s, and the link in 160 ms."""
    found = allowed(stuck(160), dataclasses.replace(ADAPTIVE, link_rate_bytes=1000 * MIB))
    assert found.milliseconds > 5000
    assert found.predicted_ms == SWITCHOVER_MS + 160


def test_with_a_known_link_the_pause_is_still_the_longest_permitted() -> None:
    found = allowed(stuck(1000), dataclasses.replace(ADAPTIVE, link_rate_bytes=1000 * MIB))
    assert found.milliseconds * CAP / (1000 * MIB) == pytest.approx(500, rel=0.01)


def test_a_link_that_is_said_to_be_slower_than_it_is_takes_nothing_away() -> None:
    assert allowed(stuck(16), dataclasses.replace(ADAPTIVE, link_rate_bytes=MIB)).milliseconds == 500


def test_what_was_allowed_stays_when_iterations_shrink_again() -> None:
    assert allowed(shrinking(8), already=312) == Allowance(312)


def test_a_limit_for_a_cap_that_was_lifted_since_is_taken_back() -> None:
    schedule = dataclasses.replace(ADAPTIVE, link_rate_bytes=1000 * MIB)
    seen = dataclasses.replace(shrinking(160), rate=1000 * MIB)
    assert allowed(seen, schedule, already=6000) == Allowance(500)


def test_a_rate_that_wavers_changes_no_limit() -> None:
    already = allowed(stuck(8)).milliseconds
    assert allowed(stuck(8, rate=int(CAP * 0.95)), already=already) == Allowance(already)


@pytest.mark.parametrize(("elapsed", "expected"), [(299, 50), (300, 500), (900, 500)])
def test_from_half_of_the_time_on_the_longest_pause_is_allowed(elapsed: float, expected: int) -> None:
    found = allowed(shrinking(8), dataclasses.replace(ADAPTIVE, full_from_seconds=300), elapsed=elapsed)
    assert found.milliseconds == expected


def test_of_what_is_compressed_the_first_iteration_says_nothing() -> None:
    compressed = dataclasses.replace(ADAPTIVE, is_compressed=True)
    assert allowed(stuck(8, number=2), compressed) == Allowance(50)
    assert allowed(stuck(8, number=3), compressed).milliseconds > 50


@given(
    left=st.integers(0, 10**12),
    sent=st.integers(0, 10**12),
    rate=st.integers(0, 10**11),
    link=st.integers(0, 10**11),
    longest=st.integers(1, 100_000),
    already=st.integers(1, 2_000_000),
    elapsed=st.floats(0, 1000),
)
def test_the_pause_at_the_link_s_rate_is_never_clearly_longer_than_permitted(
    left: int, sent: int, rate: int, link: int, longest: int, already: int, elapsed: float
) -> None:
    schedule = Adaptive(min(50, longest), longest, full_from_seconds=500, link_rate_bytes=link)
    seen = Iterations(4, began_with=left, sent=sent, rewritten=left, remaining=left, rate=rate)
    found = allowed(seen, schedule, already, elapsed).milliseconds
    assert 1 <= found <= 2_000_000
    most = longest * max(link, rate) / rate if link and rate else longest
    assert found <= max(1.1 * most, longest) + 1
