# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rungs of a forced move, poll by poll, without a host."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import SWITCHOVER_MS
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.force import (
    ForceAction,
    ForcingPoll,
    ForcingState,
    ForcingTerms,
    SetBandwidth,
    StartPostCopy,
    Suspend,
    decide_forcing,
    latest_rung,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.monitor import Abort, SetDowntime
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JobStats

MIB = 1024**2
BEGAN = 100.0
POLL = 0.25


class Forced:
    """A job with 100 MiB left, that goes at C(rate_mib) once its cap is off; nothing that is asked ends it."""

    def __init__(self, rate_mib: int = 100, capped_mib: int = 0, remaining_mib: int = 100, **terms: t.Any) -> None:
        defaults = {"post_copy": False, "capped": bool(capped_mib), "suspend_seconds": 10, "pause_max_seconds": 30, "downtime_ms": 500}
        self.terms = ForcingTerms(**{**defaults, **terms})
        self.rate, self.cap, self.remaining = rate_mib, capped_mib, remaining_mib * MIB
        self.processed = 0
        self.elapsed = BEGAN
        self.forcing = ForcingState(began_at=BEGAN)
        self.log: t.List[t.Tuple[float, ForceAction]] = []

    def poll(self, paused: bool = False) -> t.List[ForceAction]:
        rate = (min(self.cap, self.rate) if self.cap else self.rate) * MIB
        stats = JobStats(
            memory_total_bytes=1024 * MIB, memory_processed_bytes=self.processed, memory_remaining_bytes=self.remaining, bandwidth_bytes=rate, iteration=3
        )
        seen = ForcingPoll(stats, self.elapsed, paused, since_sync_seconds=0, dirty_set_bytes=0, allowed_ms=50)
        actions, self.forcing = decide_forcing(seen, self.terms, self.forcing)
        self.log += [(round(self.elapsed - BEGAN, 2), action) for action in actions]
        if SetBandwidth(0) in actions:
            self.cap = 0
        self.elapsed += POLL
        self.processed += int(rate * POLL)
        return actions

    def poll_for(self, seconds: float, paused: bool = False) -> t.List[t.Tuple[float, ForceAction]]:
        """Poll for so long; return what was asked in that time, with seconds since forcing began."""
        before = len(self.log)
        for _poll in range(int(seconds / POLL)):
            self.poll(paused)
        return self.log[before:]


def test_rungs_are_tried_in_their_order() -> None:
    forced = Forced(capped_mib=32)
    forced.poll_for(60)
    (at_cap, cap), (at_downtime, downtime), (at_suspend, suspend) = forced.log
    assert (at_cap, cap) == (0, SetBandwidth(0))
    assert 0.5 <= at_downtime <= 1.25, "the link is measured first"
    # 100 MiB at 100 MiB/s is a second, and the guest goes on writing.
    assert isinstance(downtime, SetDowntime)
    assert 2000 <= downtime.milliseconds <= 2100
    assert (at_suspend, suspend) == (10, Suspend())


def test_without_a_cap_the_downtime_is_raised_at_once() -> None:
    assert [type(action) for action in Forced().poll()] == [SetDowntime]


def test_a_known_link_rate_is_used_for_the_prediction() -> None:
    forced = Forced(capped_mib=32, link_rate_bytes=400 * MIB)
    forced.poll_for(3)
    assert forced.forcing.predicted_ms == pytest.approx(SWITCHOVER_MS + 250, abs=5)


def test_the_downtime_is_predicted_from_the_rate_without_the_cap() -> None:
    forced = Forced(capped_mib=32)
    forced.poll_for(3)
    assert forced.forcing.rung == "downtime"
    assert forced.forcing.predicted_ms == pytest.approx(1020, rel=0.05)


def test_the_bandwidth_rung_predicts_at_most_the_allowed_downtime() -> None:
    forced = Forced(capped_mib=32)
    forced.poll()
    assert forced.forcing.rung == "bandwidth"
    assert 0 < (forced.forcing.predicted_ms or 0) <= 70


def test_the_downtime_rung_never_sets_less_than_downtime_ms() -> None:
    assert Forced(remaining_mib=1).poll() == [SetDowntime(500)]


def test_the_downtime_rung_never_exceeds_the_limit_of_libvirt() -> None:
    assert Forced(rate_mib=1, remaining_mib=10**7).poll() == [SetDowntime(2_000_000)]


@pytest.mark.parametrize("seconds", [0, 3, 25])
def test_the_guest_is_suspended_only_after_force_suspend_seconds(seconds: int) -> None:
    forced = Forced(suspend_seconds=seconds)
    forced.poll_for(40)
    suspended = [at for at, action in forced.log if isinstance(action, Suspend)]
    assert len(suspended) == 1
    assert seconds <= suspended[0] <= seconds + 2 * POLL
    assert isinstance(forced.log[0][1], SetDowntime), "never the first thing"


def test_post_copy_is_the_first_rung_and_requested_until_it_begins() -> None:
    forced = Forced(capped_mib=32, post_copy=True)
    assert {type(action) for _at, action in forced.poll_for(30)} == {StartPostCopy}
    assert len(forced.log) == 120
    assert forced.forcing.rung == "post_copy"


def test_a_job_that_cannot_switch_to_post_copy_uses_the_other_rungs() -> None:
    forced = Forced(post_copy=True)
    forced.poll()
    forced.terms = dataclasses.replace(forced.terms, post_copy=False)
    forced.forcing = dataclasses.replace(forced.forcing, rung=None)
    forced.poll_for(15)
    assert [type(action) for _at, action in forced.log] == [StartPostCopy, SetDowntime, Suspend]


@pytest.mark.parametrize(("predicted_mib", "limit"), [(100, 30), (2000, 60), (10000, 300)], ids=["configured minimum", "three times 20 s", "three times 100 s"])
def test_a_suspend_is_aborted_after_three_times_its_prediction_or_the_minimum(predicted_mib: int, limit: int) -> None:
    forced = Forced(remaining_mib=predicted_mib, suspend_seconds=0)
    forced.poll_for(1)
    assert forced.forcing.predicted_ms == pytest.approx(predicted_mib * 10 + SWITCHOVER_MS, rel=0.01)
    paused_at = forced.elapsed
    forced.poll_for(limit + 10, paused=True)
    aborts = [BEGAN + at - paused_at for at, action in forced.log if action == Abort("pause_overrun")]
    assert len(aborts) == 1, "asked for once"
    assert limit < aborts[0] <= limit * 1.01 + 1


def test_force_pause_max_seconds_is_the_minimum_before_an_abort() -> None:
    forced = Forced(pause_max_seconds=5, suspend_seconds=0)
    forced.poll_for(1)
    assert forced.poll_for(5.25, paused=True) == []
    assert [action for _at, action in forced.poll_for(1, paused=True)] == [Abort("pause_overrun")]


def test_a_paused_guest_is_not_forced_further() -> None:
    forced = Forced(capped_mib=32)
    assert forced.poll_for(29, paused=True) == []


@pytest.mark.parametrize("rung", ["bandwidth", "downtime"])
def test_a_watcher_that_takes_over_continues_after_the_last_rung(rung: str) -> None:
    forced = Forced(capped_mib=32)
    forced.forcing = ForcingState(began_at=BEGAN, rung=rung, rung_at=BEGAN)
    forced.poll_for(15)
    kinds = [type(action) for _at, action in forced.log]
    assert kinds == ([SetDowntime, Suspend] if rung == "bandwidth" else [Suspend])


@pytest.mark.parametrize(("rung", "repeated"), [("downtime", [SetDowntime, Suspend]), ("suspend", [Suspend])])
def test_an_act_that_may_not_have_been_done_is_repeated_if_the_guest_runs(rung: str, repeated: t.List[type]) -> None:
    forced = Forced(capped_mib=32)
    forced.forcing = ForcingState(began_at=BEGAN, rung=rung, rung_at=BEGAN, in_doubt=True)
    forced.poll_for(15)
    assert [type(action) for _at, action in forced.log] == repeated


@pytest.mark.parametrize(("paused_at", "aborts"), [(BEGAN - 29, True), (BEGAN, False), (BEGAN + 100, False)])
def test_a_pause_that_another_watcher_has_seen_counts_unless_it_cannot_be_of_this_job(paused_at: float, aborts: bool) -> None:
    forced = Forced()
    forced.forcing = ForcingState(began_at=BEGAN, rung="suspend", paused_at=paused_at, in_doubt=True)
    assert [action for _at, action in forced.poll_for(2, paused=True)] == ([Abort("pause_overrun")] if aborts else [])
    assert forced.forcing.rung == "suspend"


@pytest.mark.parametrize(
    ("before", "now", "latest"),
    [
        (None, "bandwidth", "bandwidth"),
        ("post_copy", None, None),
        ("bandwidth", "downtime", "downtime"),
        ("downtime", "bandwidth", "downtime"),
        ("downtime", "suspend", "suspend"),
        ("suspend", "downtime", "suspend"),
        ("suspend", None, "suspend"),
    ],
)
def test_a_record_keeps_the_last_rung_that_may_have_paused_the_guest(before: t.Optional[str], now: t.Optional[str], latest: t.Optional[str]) -> None:
    assert latest_rung(before, now) == latest
