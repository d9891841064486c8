# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import prediction as p
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import SWITCHOVER_MS, downtime_steps

RAMP = downtime_steps(500, 10, 75, 4.0)
SETUP = p.SETUP_SECONDS


def load(used_mib: float, dirty_mib: t.Optional[float] = 0, memory_mib: t.Optional[float] = None, **more: t.Any) -> p.MoveLoad:
    return p.MoveLoad(used_mib if memory_mib is None else memory_mib, used_mib, dirty_mib, **{"ramp": RAMP, **more})


def predict(*loads: p.MoveLoad, link: float = 100.0, window: int = 1, **more: t.Any) -> list[p.Prediction]:
    """Return the predictions over a link that carries so many MiB/s of memory."""
    return p.predict_moves(loads, p.Capacity(link / p.PAYLOAD, window, **more))


def test_a_resting_guest_takes_its_used_memory_over_the_link() -> None:
    (found,) = predict(load(1000))
    assert found == p.Prediction(0.0, 10 + SETUP, SWITCHOVER_MS, converges=True)


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, (0.35, 0.71)), (0.9, (0.64, 1.3)), (10.0, (7.1, 14.1))])
def test_the_ends_of_a_range_differ_by_a_factor_of_two_below_a_second_too(seconds: float, expected: tuple[float, float]) -> None:
    assert p.range_of(seconds) == expected


def test_a_guest_that_was_not_measured_has_no_downtime() -> None:
    (found,) = predict(load(1000, None))
    assert (found.seconds, found.downtime_ms, found.converges) == (10 + SETUP, None, None)


def test_pages_of_zeros_take_time_to_find_and_none_on_the_link() -> None:
    (found,) = predict(load(100, memory_mib=100 + 2 * p.SCAN_MIB))
    assert found.seconds == pytest.approx(SETUP + 1 + 2, abs=0.1)


def test_a_busy_guest_sends_again_what_it_writes_meanwhile() -> None:
    (found,) = predict(load(1000, 49.5))
    assert found.converges is True
    assert found.seconds == pytest.approx(SETUP + 1000 / (100 - 50), rel=0.05)
    assert SWITCHOVER_MS < t.cast("int", found.downtime_ms) <= SWITCHOVER_MS + 500


def test_what_is_written_again_is_at_most_what_is_used() -> None:
    (found,) = predict(load(50, 900, ramp=[(0, 1000)]))
    assert found.seconds == pytest.approx(SETUP + 0.5 + 0.5, abs=0.1)


def test_a_guest_faster_than_the_link_does_not_converge() -> None:
    assert predict(load(1000, 300, timeout_seconds=60)) == [p.Prediction(0.0, 60, None, converges=False)]
    assert predict(load(1000, 300))[0].converges is False


def test_a_timeout_before_the_end_prevents_convergence() -> None:
    assert predict(load(10_000, 90, timeout_seconds=200))[0] == p.Prediction(0.0, 200, None, converges=False)


def test_disks_are_copied_first_and_a_cap_limits_the_stream() -> None:
    assert predict(load(1000, copied_mib=500))[0].seconds == pytest.approx(SETUP + 15, abs=0.1)
    assert predict(load(1000, cap_mib=10))[0].seconds == pytest.approx(SETUP + 100, abs=0.1)


def test_moves_of_a_window_share_the_link_and_those_after_it_wait() -> None:
    first, second, third = predict(load(500), load(500), load(500), window=2)
    assert first.seconds == second.seconds == pytest.approx(SETUP + 10, abs=0.1)
    assert third.begins == pytest.approx(first.seconds, abs=0.1)
    assert third.seconds == pytest.approx(SETUP + 5, abs=0.1)
    assert p.drain_seconds([first, second, third]) == pytest.approx(2 * SETUP + 15, abs=0.2)


def test_a_capped_stream_leaves_the_rest_of_the_link_to_the_others() -> None:
    capped, free = predict(load(100, cap_mib=10), load(900), window=2)
    assert capped.seconds == pytest.approx(SETUP + 10, abs=0.1)
    assert free.seconds == pytest.approx(SETUP + 10, abs=0.1)


def test_many_moves_at_once_begin_more_slowly_on_few_processors() -> None:
    idle = [load(1)] * 4
    assert max(one.seconds for one in predict(*idle, window=4, cpus=4)) == pytest.approx(SETUP, abs=0.1)
    assert max(one.seconds for one in predict(*idle, window=4, cpus=2)) == pytest.approx(2 * SETUP, abs=0.1)


def test_the_setup_can_be_learned() -> None:
    assert predict(load(100), setup_seconds=2.0)[0].seconds == pytest.approx(3, abs=0.1)


def test_no_moves_take_no_time() -> None:
    assert predict() == []
    assert p.drain_seconds([]) == 0


def test_the_ends_of_a_range_differ_by_a_factor_of_two() -> None:
    one = p.Prediction(0, 10.0)
    assert one.low < 10 < one.high
    assert one.high / one.low == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize(
    ("wanted", "shares"),
    [
        ([], []),
        ([1e9], [90.0]),
        ([1e9, 1e9, 1e9], [30.0, 30.0, 30.0]),
        ([10.0, 1e9, 1e9], [10.0, 40.0, 40.0]),
        ([1e9, 50.0, 10.0], [40.0, 40.0, 10.0]),
        ([5.0, 5.0], [5.0, 5.0]),
    ],
)
def test_streams_get_equal_shares_and_none_more_than_it_wants(wanted: list[float], shares: list[float]) -> None:
    assert p.share_link(wanted, 90.0) == shares


def test_hundreds_of_moves_are_predicted_quickly() -> None:
    found = predict(*[load(100 + number, number % 40) for number in range(400)], window=4)
    assert len(found) == 400
    assert [one.begins for one in found] == sorted(one.begins for one in found)


BUSY = {"dirty_mib": 28, "memory_mib": 128, "ramp": [(0, 500)]}


def shared(*loads: p.MoveLoad) -> list[p.Prediction]:
    return predict(*loads, link=64, window=p.AUTO)


def test_a_busy_guest_is_sent_alone_and_others_wait_for_it() -> None:
    busy, first, second = shared(load(128, **BUSY), load(200), load(200))
    assert busy.seconds == pytest.approx(predict(load(128, **BUSY), link=62)[0].seconds, abs=0.3)
    assert first.begins == 0
    assert first.seconds == pytest.approx(busy.seconds + 200 / 64, abs=0.3)
    assert p.drain_seconds([busy, first, second]) == pytest.approx(busy.seconds + 400 / 64, abs=0.5)


def test_a_second_busy_guest_begins_when_the_first_has_ended() -> None:
    first, quiet, second = shared(load(128, **BUSY), load(10), load(128, **BUSY))
    assert quiet.begins == 0
    assert second.begins == pytest.approx(first.seconds, abs=0.1)


def test_guests_that_share_the_link_take_it_one_after_the_other() -> None:
    found = shared(*[load(1280)] * 3)
    assert p.drain_seconds(found) == pytest.approx(SETUP + 60, abs=0.5)
    # What the others are sent while they wait is missing here.
    assert found[0].seconds == pytest.approx(SETUP + 20, abs=0.6)
    # The second is prepared while the first connects, the third while the first has 10 s to go.
    assert (found[1].begins, found[2].begins) == (0, pytest.approx(SETUP + 10, abs=0.3))


def test_a_capped_guest_leaves_the_rest_of_a_shared_link() -> None:
    capped, free = shared(load(64, cap_mib=16), load(192))
    assert capped.seconds == pytest.approx(SETUP + 4, abs=0.2)
    assert free.seconds == pytest.approx(SETUP + 4, abs=0.2)


def test_a_guest_that_does_not_converge_holds_no_other_up_for_long() -> None:
    wild, calm = shared(load(640, 900, timeout_seconds=600), load(640, 2))
    assert (wild.converges, calm.converges) == (False, True)
    assert calm.seconds < 60
