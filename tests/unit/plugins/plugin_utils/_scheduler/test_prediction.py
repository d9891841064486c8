# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler import prediction as p
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import record


def done(memory_mib: int, elapsed_ms: int, status: str = "completed") -> dict[str, object]:
    return record("web1", "kvm1", "kvm2", status, memory_mib, result={"elapsed_ms": elapsed_ms})


def test_the_median_of_completed_moves_is_the_rate() -> None:
    history = [done(1000, 11_500), done(2000, 11_500), done(9000, 11_500), done(1, 60_000, "failed")]
    assert p.rate_mib(history) == pytest.approx(200)


def test_without_a_move_the_link_is_assumed_and_a_cap_is_kept() -> None:
    assert p.rate_mib([]) == p.DEFAULT_RATE_MIB
    assert p.rate_mib([], cap_mib=32) == 32
    assert p.rate_mib([done(9000, 11_500)], cap_mib=2000) == pytest.approx(900)


def test_records_without_figures_say_nothing() -> None:
    assert p.rate_mib([done(0, 1000), record("web1", "kvm1", "kvm2", "completed")]) == p.DEFAULT_RATE_MIB


def test_a_move_is_its_memory_over_the_rate_and_what_it_takes_beside() -> None:
    assert p.move_seconds(1100, 110.0) == pytest.approx(10 + p.OVERHEAD_SECONDS)


@pytest.mark.parametrize(("parallel", "seconds"), [(1, 10.0), (2, 6.0), (9, 4.0)])
def test_a_window_lasts_as_long_as_its_longest_lane(parallel: int, seconds: float) -> None:
    assert p.window_seconds([4.0, 3.0, 1.0, 2.0], parallel) == seconds


def test_no_moves_take_no_time() -> None:
    assert p.window_seconds([], 4) == 0
