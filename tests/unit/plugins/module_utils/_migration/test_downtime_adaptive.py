# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import (
    SWITCHOVER_MS,
    AdaptiveSchedule,
    Allowance,
    Iterations,
    ScheduleMoment,
)

MIB = 1024**2
CAP = 32 * MIB
ADAPTIVE = AdaptiveSchedule(first_ms=50, longest_ms=500)
KNOWN_LINK = dataclasses.replace(ADAPTIVE, link_rate_bytes=1000 * MIB)


def stuck_iteration(left_mib: int, rate: int = CAP, number: int = 3) -> Iterations:
    """An iteration after one that sent as much as was written again."""
    left = left_mib * MIB
    return Iterations(number, began_with=left, sent=left, rewritten=left, remaining=left, rate=rate)


def shrinking_iteration(left_mib: int, rate: int = CAP) -> Iterations:
    return dataclasses.replace(stuck_iteration(left_mib, rate), sent=2 * left_mib * MIB)


def allowance_for(seen: Iterations, schedule: AdaptiveSchedule = ADAPTIVE, already: t.Optional[int] = 50, elapsed: float = 5, cap: int = CAP) -> Allowance:
    return schedule.allowance_at(ScheduleMoment(elapsed, seen, already, cap))


def test_the_adaptive_downtime_begins_with_the_first_step() -> None:
    assert allowance_for(Iterations(), already=None) == Allowance(50)


@pytest.mark.parametrize("left_mib", [1, 8, 16, 1000])
def test_the_first_step_is_kept_while_iterations_shrink(left_mib: int) -> None:
    assert allowance_for(shrinking_iteration(left_mib)) == Allowance(50)


def test_the_needed_downtime_is_allowed_when_iterations_stop_shrinking() -> None:
    found = allowance_for(stuck_iteration(8))
    assert 250 < found.milliseconds < 400
    assert found.predicted_ms == SWITCHOVER_MS + 250
    assert found.reason.startswith("Of 8 MiB that iteration 2 sent, the guest has rewritten 8 MiB")


@pytest.mark.parametrize("left_mib", [15, 16, 64, 1000])
def test_without_a_known_link_no_more_than_the_longest_downtime_is_allowed(left_mib: int) -> None:
    assert allowance_for(stuck_iteration(left_mib)).milliseconds == 500


def test_a_known_link_allows_more_downtime_than_the_bandwidth_cap() -> None:
    """160 MiB take 5 s under the cap, and 160 ms at the speed of the link."""
    found = allowance_for(stuck_iteration(160), KNOWN_LINK)
    assert found.milliseconds > 5000
    assert found.predicted_ms == SWITCHOVER_MS + 160


def test_with_a_known_link_the_real_downtime_is_at_most_the_longest() -> None:
    found = allowance_for(stuck_iteration(1000), KNOWN_LINK)
    assert found.milliseconds * CAP / (1000 * MIB) == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize(("cap", "rate"), [(0, CAP), (2 * CAP, CAP), (CAP, CAP // 2)])
def test_a_known_link_that_no_cap_keeps_from_its_rate_does_not_lengthen_the_downtime(cap: int, rate: int) -> None:
    """TLS, other senders or a degraded bond still limit the rate when the last pages are sent."""
    found = allowance_for(stuck_iteration(1000, rate=rate), KNOWN_LINK, cap=cap)
    assert found.milliseconds == 500
    assert found.predicted_ms == SWITCHOVER_MS + 1000 * 1000 * MIB // rate


def test_a_rate_that_varies_below_the_cap_still_counts_as_limited_by_it() -> None:
    assert allowance_for(stuck_iteration(1000, rate=int(0.85 * CAP)), KNOWN_LINK).milliseconds > 5000


def test_a_downtime_allowed_for_a_cap_is_reduced_when_something_else_limits_the_rate() -> None:
    assert allowance_for(shrinking_iteration(160, rate=CAP // 4), KNOWN_LINK, already=6000) == Allowance(500)


def test_a_link_slower_than_the_measured_rate_does_not_lower_the_downtime() -> None:
    assert allowance_for(stuck_iteration(16), dataclasses.replace(ADAPTIVE, link_rate_bytes=MIB)).milliseconds == 500


def test_an_allowed_downtime_is_kept_when_iterations_shrink_again() -> None:
    assert allowance_for(shrinking_iteration(8), already=312) == Allowance(312)


def test_a_downtime_allowed_for_a_lifted_cap_is_reduced() -> None:
    assert allowance_for(shrinking_iteration(160, rate=1000 * MIB), KNOWN_LINK, already=6000, cap=0) == Allowance(500)


def test_small_changes_of_the_rate_do_not_change_the_downtime() -> None:
    already = allowance_for(stuck_iteration(8)).milliseconds
    assert allowance_for(stuck_iteration(8, rate=int(CAP * 0.95)), already=already) == Allowance(already)


@pytest.mark.parametrize(("elapsed", "expected"), [(299, 50), (300, 500), (900, 500)])
def test_the_longest_downtime_is_allowed_from_half_of_the_timeout(elapsed: float, expected: int) -> None:
    found = allowance_for(shrinking_iteration(8), dataclasses.replace(ADAPTIVE, full_from_seconds=300), elapsed=elapsed)
    assert found.milliseconds == expected


def test_the_first_iteration_of_a_compressed_stream_is_ignored() -> None:
    compressed = dataclasses.replace(ADAPTIVE, is_compressed=True)
    assert allowance_for(stuck_iteration(8, number=2), compressed) == Allowance(50)
    assert allowance_for(stuck_iteration(8, number=3), compressed).milliseconds > 50


@given(
    left=st.integers(0, 10**12),
    sent=st.integers(0, 10**12),
    rate=st.integers(0, 10**11),
    link=st.integers(0, 10**11),
    cap=st.integers(0, 10**11),
    longest=st.integers(1, 100_000),
    already=st.integers(1, 2_000_000),
    elapsed=st.floats(0, 1000),
)
def test_the_downtime_at_the_link_rate_never_clearly_exceeds_the_longest(
    left: int, sent: int, rate: int, link: int, cap: int, longest: int, already: int, elapsed: float
) -> None:
    schedule = AdaptiveSchedule(min(50, longest), longest, full_from_seconds=500, link_rate_bytes=link)
    seen = Iterations(4, began_with=left, sent=sent, rewritten=left, remaining=left, rate=rate)
    found = allowance_for(seen, schedule, already, elapsed, cap).milliseconds
    assert 1 <= found <= 2_000_000
    most = longest * max(link, rate) / rate if cap and 0 < 0.8 * cap <= rate else longest
    assert found <= max(1.1 * most, longest) + 1
