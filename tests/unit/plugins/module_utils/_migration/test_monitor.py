# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import SteppedSchedule
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.monitor import (
    Abort,
    Action,
    EndIncoming,
    ForceComplete,
    Limits,
    MonitorState,
    SetDowntime,
    decide_actions,
    note_bandwidth,
    note_downtime,
    note_lost_abort,
    watch_post_copy,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JobStats

RAMP = ((0.0, 50), (10.0, 100), (20.0, 500))


class Monitored:
    """A monitor that is asked poll by poll."""

    def __init__(self, timeout: float = 0, stall: float = 0, refuse: bool = False, force: bool = False) -> None:
        self.limits = Limits(SteppedSchedule(RAMP), timeout, stall, force_on_timeout=force)
        self.watched = MonitorState()
        self.refuse = refuse

    def poll(self, elapsed: float, processed: int = 0, remaining: int = 1000) -> t.List[Action]:
        stats = JobStats(data_processed_bytes=processed, memory_remaining_bytes=remaining, memory_total_bytes=1000)
        actions, self.watched = decide_actions(stats, elapsed, self.limits, self.watched)
        for action in actions:
            if isinstance(action, SetDowntime) and not self.refuse:
                self.watched = note_downtime(self.watched, action.milliseconds)
        return actions


def test_each_step_of_the_ramp_is_set_once() -> None:
    monitor = Monitored()
    seen = [monitor.poll(float(second), second + 1) for second in range(25)]
    assert [(second, actions) for second, actions in enumerate(seen) if actions] == [
        (0, [SetDowntime(50)]),
        (10, [SetDowntime(100)]),
        (20, [SetDowntime(500)]),
    ]


def test_the_downtime_is_not_decided_before_the_rate_of_a_new_bandwidth_is_measured() -> None:
    monitor = Monitored(timeout=10.4)
    monitor.poll(9.9, 1)
    monitor.watched = note_bandwidth(monitor.watched, 10.0)
    assert [monitor.poll(elapsed, 1) for elapsed in (10.0, 10.2)] == [[], []]
    assert monitor.poll(10.3, 1) == [SetDowntime(100)]
    monitor.watched = note_bandwidth(monitor.watched, 10.35)
    assert monitor.poll(10.5, 1) == [Abort("timeout")], "all other limits act"


def test_a_monitor_that_starts_late_sets_the_current_step() -> None:
    assert Monitored().poll(15, 1) == [SetDowntime(100)]


def test_a_refused_downtime_is_requested_again() -> None:
    monitor = Monitored(refuse=True)
    assert [monitor.poll(second, 1) for second in (0, 1, 2)] == [[SetDowntime(50)]] * 3
    monitor.refuse = False
    assert [monitor.poll(second, 1) for second in (3, 4)] == [[SetDowntime(50)], []]


@pytest.mark.parametrize(("elapsed", "fires"), [(59.9, False), (60.0, False), (60.001, True), (6000, True)])
def test_the_timeout_is_due_only_after_its_seconds(elapsed: float, fires: bool) -> None:
    assert (Abort("timeout") in Monitored(timeout=60).poll(elapsed, 1)) is fires


def test_the_timeout_aborts_once() -> None:
    monitor = Monitored(timeout=5)
    monitor.poll(0, 1)
    assert monitor.poll(5.1, 2) == [Abort("timeout")]
    assert [monitor.poll(second, 3) for second in (6, 15, 30, 60)] == [[], [], [], []]


def test_zero_disables_timeout_and_stall() -> None:
    monitor = Monitored()
    assert not any(isinstance(action, Abort) for second in range(0, 10**6, 10**4) for action in monitor.poll(second, 1))


def test_a_stall_is_not_counted_before_the_first_byte() -> None:
    monitor = Monitored(stall=60)
    assert not any(isinstance(action, Abort) for second in range(0, 600, 10) for action in monitor.poll(second, 0))


def test_a_stall_is_counted_from_the_last_byte() -> None:
    monitor = Monitored(stall=60)
    assert not any(isinstance(action, Abort) for second in (100, 101, 130, 160.9) for action in monitor.poll(second, 7 if second > 100 else 3))
    assert monitor.poll(161, 7) == [Abort("stalled")]


def test_only_falling_remaining_bytes_are_progress() -> None:
    monitor = Monitored(stall=60)
    monitor.poll(0, 7, 1000)
    monitor.poll(50, 7, 900)
    assert Abort("stalled") not in monitor.poll(100, 7, 950)
    assert monitor.poll(110, 7, 950) == [Abort("stalled")]


def test_a_stall_takes_precedence_over_the_timeout() -> None:
    monitor = Monitored(timeout=10, stall=5)
    monitor.poll(0, 7)
    assert monitor.poll(11, 7) == [Abort("stalled")]
    assert monitor.poll(12, 8) == []


@given(
    polls=st.lists(st.tuples(st.floats(0.01, 100), st.integers(0, 3), st.integers(0, 1000)), max_size=40),
    timeout=st.integers(0, 500),
    stall=st.integers(0, 200),
)
def test_a_monitor_aborts_at_most_once_and_never_before_a_limit(polls: t.List[t.Tuple[float, int, int]], timeout: int, stall: int) -> None:
    monitor = Monitored(timeout, stall)
    elapsed, processed, aborts = 0.0, 0, []
    for seconds, sent, remaining in polls:
        elapsed += seconds
        processed += sent
        aborts += [(elapsed, action) for action in monitor.poll(elapsed, processed, remaining) if isinstance(action, Abort)]
    assert len(aborts) <= 1
    for at, action in aborts:
        assert at > timeout > 0 if action.reason == "timeout" else at >= stall > 0


# -- forcing -------------------------------------------------------------------------------------------------------


def test_a_timeout_with_force_complete_forces_once() -> None:
    monitor = Monitored(timeout=5, force=True)
    monitor.poll(0, 1)
    assert monitor.poll(5.1, 2) == [ForceComplete()]
    later = [action for second in range(6, 3000, 7) for action in monitor.poll(second, second)]
    assert not any(isinstance(action, (ForceComplete, Abort)) for action in later)


def test_a_stall_aborts_a_move_that_is_being_forced() -> None:
    monitor = Monitored(timeout=5, stall=60, force=True)
    monitor.poll(0, 1)
    monitor.poll(6, 2)
    assert Abort("stalled") not in monitor.poll(65, 2)
    assert monitor.poll(66, 2) == [Abort("stalled")]


@pytest.mark.parametrize(("timeout", "stall", "reason"), [(5, 0, "timeout"), (0, 5, "stalled")])
def test_a_lost_abort_is_requested_again(timeout: int, stall: int, reason: str) -> None:
    monitor = Monitored(timeout, stall)
    monitor.poll(0, 1)
    assert monitor.poll(6, 1) == [Abort(reason)]
    assert monitor.poll(7, 1) == []
    monitor.watched = note_lost_abort(monitor.watched)
    assert monitor.poll(8, 1) == [Abort(reason)]


def test_a_stalled_post_copy_stream_is_reported_periodically() -> None:
    limits, watched, told = Limits(SteppedSchedule(RAMP), 1, 60), MonitorState(), []
    for second in range(200):
        stats = JobStats(data_processed_bytes=min(second + 1, 20), memory_remaining_bytes=5)
        stalled, watched = watch_post_copy(stats, second, limits, watched)
        told += [second] if stalled else []
    assert told == [79, 139, 199]


def test_the_dirty_set_is_the_largest_begin_of_an_iteration() -> None:
    limits, watched = Limits(SteppedSchedule(RAMP), 0, 0), MonitorState()
    for second, (iteration, remaining) in enumerate([(1, 1000), (1, 200), (2, 300), (2, 10), (3, 250), (3, 5)]):
        _actions, watched = decide_actions(JobStats(iteration=iteration, memory_remaining_bytes=remaining), second, limits, watched)
    assert (watched.dirty_set_bytes, watched.synced_at) == (300, 4)


def test_a_job_that_does_not_react_to_its_abort_loses_its_destination_once_a_minute() -> None:
    monitor = Monitored(stall=10)
    seen = {second: actions for second in range(200) if (actions := monitor.poll(float(second), 1)) and not isinstance(actions[0], SetDowntime)}
    assert seen == {10: [Abort("stalled")], 71: [EndIncoming()], 131: [EndIncoming()], 191: [EndIncoming()]}


def test_an_aborted_job_that_still_sends_keeps_its_destination() -> None:
    """Then the abort has not been lost, or was ignored: the guest may be needed there."""
    monitor = Monitored(timeout=10)
    seen = [action for second in range(200) for action in monitor.poll(float(second), second + 1)]
    assert Abort("timeout") in seen
    assert EndIncoming() not in seen


def test_an_abort_that_was_lost_is_awaited_anew() -> None:
    monitor = Monitored(stall=10)
    for second in range(40):
        monitor.poll(float(second), 1)
    monitor.watched = note_lost_abort(monitor.watched)
    assert monitor.poll(71.5, 1) == [Abort("stalled")]
    assert [monitor.poll(float(second), 1) for second in (73, 131)] == [[], []]
    assert monitor.poll(134.0, 1) == [EndIncoming()]
