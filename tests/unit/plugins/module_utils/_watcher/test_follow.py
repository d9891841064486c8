# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One poll of a running job after another."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, InvalidState, KvmfleetError, NotSupported, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.force import Terms
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.monitor import Limits
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.follow import Follower
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import acts, journal_of, record_of, state_in

TERMS = Terms(post_copy=False, capped=False, suspend_seconds=10, pause_max_seconds=30, downtime_ms=200)
RAMP = ((0.0, 50), (10.0, 100), (20.0, 200))


class Following:
    """A job that does not converge, and what follows it."""

    def __init__(self, folder: pathlib.Path, timeout: float = 0, stall: float = 0) -> None:
        self.fleet = FakeFleet(link_mib=100)
        self.folder = folder
        self.guest = self.fleet.guest(dirty_bytes=512 * MIB, dirty_rate_bytes=500 * MIB)
        self.migration = self.fleet.begin_elsewhere()
        limits = Limits(RAMP, timeout, stall)
        self.follower = Follower(lambda: self.fleet.open(LOCAL_URI), UUID, journal_of(record_of(), folder), limits, TERMS, self.fleet.clock)

    def polls(self, seconds: float) -> t.List[bool]:
        seen = []
        for _poll in range(int(seconds)):
            self.fleet.clock.sleep(1)
            seen.append(self.follower.poll())
        return seen

    @property
    def record(self) -> schema.Record:
        return state_in(self.folder)

    def asked(self, call: str) -> t.List[str]:
        return [one for one in self.fleet.source.calls if one.startswith(call)]


def test_the_ramp_reaches_libvirt_step_by_step(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    assert following.polls(25) == [True] * 25
    assert following.asked("set_max") == [f"set_max_downtime_ms {UUID} {ms}" for ms in (50, 100, 200)]
    assert following.record["status"] == s.RUNNING
    assert following.guest.max_downtime_ms == 200


@pytest.mark.parametrize("error", [InvalidState("no"), TimedOut("job lock"), NotSupported("no")])
def test_a_downtime_that_libvirt_refuses_is_noted_and_tried_again(tmp_path: pathlib.Path, error: KvmfleetError) -> None:
    following = Following(tmp_path)
    following.fleet.source.refuse["set_max_downtime_ms"] = error
    asked: t.List[str] = []
    following.fleet.before_call = lambda machine, call: asked.append(call)
    assert following.polls(3) == [True] * 3
    assert asked.count("set_max_downtime_ms") == 3
    assert [line["status"] for line in following.record["history"]].count("downtime refused") == 1
    del following.fleet.source.refuse["set_max_downtime_ms"]
    following.polls(1)
    assert following.guest.max_downtime_ms == 50


def test_the_end_of_the_job_is_the_end(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.polls(2)
    following.migration.cancel()
    assert following.polls(1) == [False]


def test_no_job_was_never_seen_has_no_age(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.migration.cancel()
    assert following.polls(1) == [False]
    assert following.follower.elapsed_ms is None


def test_the_age_is_the_job_s(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.fleet.clock.sleep(30)
    following.polls(1)
    assert following.follower.elapsed_ms == pytest.approx(31000, abs=100)


def test_an_abort_is_written_before_it_is_asked_for_and_once(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=5)
    seen: t.List[t.List[str]] = []
    following.fleet.before_call = lambda machine, call: seen.append(acts(following.record)) if call == "abort" else None
    following.polls(8)
    assert seen == [["abort: timeout"]]
    assert following.migration.ended.is_set()


@pytest.mark.parametrize("error", [InvalidState("no job is active"), NotSupported("in post-copy")])
def test_an_abort_that_comes_too_late_is_noted(tmp_path: pathlib.Path, error: KvmfleetError) -> None:
    following = Following(tmp_path, timeout=5)
    following.fleet.source.refuse["abort"] = error
    assert following.polls(8) == [True] * 8
    assert [line["status"] for line in following.record["history"]].count("abort: timeout refused") == 1


def test_in_post_copy_nothing_is_done_but_figures_are_kept(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=5, stall=2)
    following.fleet.clock.sleep(1)
    following.migration.start_post_copy()
    following.migration.link_bytes = 10 * MIB
    assert following.polls(20) == [True] * 20
    assert (following.record["status"], following.fleet.source.calls) == (s.RUNNING_POST_COPY, [])
    assert len(following.record["samples"]) == 20


def test_a_post_copy_stream_that_stands_still_is_broken_and_never_aborted(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=5, stall=10)
    following.fleet.clock.sleep(1)
    following.migration.start_post_copy()
    following.polls(3)
    following.migration.link_bytes = 0
    following.polls(8)
    assert (following.follower.is_broken, following.fleet.source.calls) == (False, [])
    following.polls(4)
    assert following.follower.is_broken
    assert acts(following.record) == ["recover: pause"]
    assert following.fleet.source.calls == [f"pause_post_copy {UUID}"]


def test_a_source_that_is_silent_may_still_have_the_job(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.polls(2)
    following.fleet.source.go_dark()
    assert following.polls(3) == [True] * 3
    assert following.follower.answers is False
    assert [line["status"] for line in following.record["history"]].count("source_lost") == 1
    following.fleet.source.come_back()
    assert following.polls(1) == [True]
    assert following.follower.answers is True


def test_a_timeout_that_passed_while_the_source_was_silent_acts_when_it_is_back(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=10)
    following.polls(2)
    following.fleet.source.go_dark()
    following.polls(30)
    following.fleet.source.come_back()
    following.polls(1)
    assert following.record["acts"][-1]["act"] == "abort: timeout"


def test_an_abort_whose_connection_breaks_is_not_forgotten(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=5)

    def cut(machine: t.Any, call: str) -> None:
        if call == "abort" and not machine.outages:
            machine.go_dark()

    following.fleet.before_call = cut
    following.polls(8)
    following.fleet.source.come_back()
    following.polls(3)
    assert following.migration.ended.is_set(), "the job that should have been aborted still runs"
    assert acts(following.record) == ["abort: timeout"]


@pytest.mark.parametrize("error", [TimedOut("job lock"), Internal("QEMU command failed")])
def test_an_abort_that_failed_otherwise_is_tried_again(tmp_path: pathlib.Path, error: KvmfleetError) -> None:
    following = Following(tmp_path, timeout=5)
    following.fleet.source.refuse["abort"] = error
    assert following.polls(8) == [True] * 8
    del following.fleet.source.refuse["abort"]
    following.polls(1)
    assert following.migration.ended.is_set()


@pytest.mark.parametrize("call", ["job", "view"])
def test_an_answer_that_is_an_error_does_not_end_the_watch_and_is_noted_once(tmp_path: pathlib.Path, call: str) -> None:
    following = Following(tmp_path)
    following.polls(1)
    following.fleet.source.refuse[call] = Internal("migration was active, but no RAM info was set")
    assert following.polls(5) == [True] * 5
    assert [line["status"] for line in following.record["history"]].count("source_lost") == 1
    del following.fleet.source.refuse[call]
    assert following.polls(1) == [True]
    assert following.follower.answers is True
