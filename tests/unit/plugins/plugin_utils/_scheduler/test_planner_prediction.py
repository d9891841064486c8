# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import SWITCHOVER_MS, downtime_steps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler import planner as p
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import record


def done(memory_mib: int, elapsed_ms: int, status: str = "completed") -> MoveRecord:
    made = record("web1", "kvm1", "kvm2", status, memory_mib)
    return dataclasses.replace(made, result=dataclasses.replace(made.result, elapsed_ms=elapsed_ms))


def test_the_rate_is_the_median_of_completed_moves() -> None:
    history = [done(1000, 11_500), done(2000, 11_500), done(9000, 11_500), done(1, 60_000, "failed")]
    assert p.rate_mib(history) == pytest.approx(200)


def test_the_rate_without_history_is_the_default_and_respects_a_cap() -> None:
    assert p.rate_mib([]) == p.DEFAULT_RATE_MIB
    assert p.rate_mib([], cap_mib=32) == 32
    assert p.rate_mib([done(9000, 11_500)], cap_mib=2000) == pytest.approx(900)


def test_a_known_link_overrides_the_history_and_is_shared() -> None:
    history = [done(1000, 11_500)]
    assert p.rate_mib(history, link_mib=1000) == 1000
    assert p.rate_mib(history, link_mib=1000, together=4) == 250
    assert p.rate_mib(history, together=4) == pytest.approx(100)
    assert p.rate_mib([], together=2) == p.DEFAULT_RATE_MIB / 2
    assert p.rate_mib([], cap_mib=10, link_mib=1000, together=4) == 10


RAMP = downtime_steps(500, 10, 75, 4.0)


def test_a_prediction_without_a_dirty_rate_has_no_downtime() -> None:
    assert p.predict_move(1100, 110.0, None, RAMP) == p.Prediction(11.5)
    assert p.predict_move(1100, 110.0, None, RAMP, copied_mib=1100) == p.Prediction(21.5)


def test_an_idle_guest_is_predicted_to_need_one_iteration() -> None:
    assert p.predict_move(1100, 110.0, 0, RAMP) == p.Prediction(11.5, SWITCHOVER_MS, converges=True)


def test_a_busy_guest_is_predicted_to_take_longer_with_a_downtime() -> None:
    # 8 MiB/s measured are 20 in truth: 10 s leave 200 MiB, those 1.8 s leave 36, those 0.33 s leave 6.6, and that crosses in 60 ms; the next in 11 ms.
    found = p.predict_move(1100, 110.0, 8, RAMP)
    assert found.converges is True
    assert found.seconds == pytest.approx(1.5 + 1100 / (110 - 20), abs=0.2)
    assert found.downtime_ms == SWITCHOVER_MS + 10


def test_a_guest_faster_than_the_link_is_predicted_not_to_converge() -> None:
    assert p.predict_move(1100, 110.0, 60, RAMP, timeout_seconds=3200) == p.Prediction(3201.5, None, converges=False)
    assert p.predict_move(1100, 110.0, 60, RAMP).converges is False


def test_a_guest_that_fits_into_the_downtime_always_converges() -> None:
    assert p.predict_move(5, 110.0, 900, RAMP).converges is True


def test_a_timeout_before_the_predicted_end_prevents_convergence() -> None:
    assert p.predict_move(110_000, 110.0, 10, RAMP, timeout_seconds=600) == p.Prediction(601.5, None, converges=False)


def test_records_without_statistics_do_not_affect_the_rate() -> None:
    assert p.rate_mib([done(0, 1000), record("web1", "kvm1", "kvm2", "completed")]) == p.DEFAULT_RATE_MIB


def test_the_seconds_of_a_move_are_memory_divided_by_rate_plus_overhead() -> None:
    assert p.move_seconds(1100, 110.0) == pytest.approx(10 + p.OVERHEAD_SECONDS)


@pytest.mark.parametrize(("parallel", "seconds"), [(1, 10.0), (2, 6.0), (9, 4.0)])
def test_the_seconds_of_a_window_are_those_of_its_longest_slot(parallel: int, seconds: float) -> None:
    assert p.window_seconds([4.0, 3.0, 1.0, 2.0], parallel) == seconds


def test_a_window_without_moves_takes_no_time() -> None:
    assert p.window_seconds([], 4) == 0
