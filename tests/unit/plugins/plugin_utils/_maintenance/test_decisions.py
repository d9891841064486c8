# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts may begin, what the others wait for, and where an interrupted host continues."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.decisions import ResumePoint, admit_hosts, resume_point
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import PlannedHost
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import at, done, holder, night, passed


def why(run: MaintenanceRun, host: str, seconds: float = 0) -> str:
    """Return why the host does not begin; empty if it does."""
    _after, admission = admit_hosts(run, [host], at(seconds))
    return "" if host in admission.begun else admission.waits_for or admission.deferred[host]


def test_no_more_hosts_begin_than_may_be_out_of_service() -> None:
    run, admission = admit_hosts(night(max_unavailable=2), ["kvm1", "kvm2", "kvm3"], at())
    assert list(admission.begun) == ["kvm1", "kvm2"]
    assert "kvm1, kvm2 are out of service, and max_unavailable is 2" in admission.deferred["kvm3"]
    assert [one.status for one in run.hosts] == [m.IN_PROGRESS, m.IN_PROGRESS, m.WAITING]


def test_no_host_begins_that_could_not_go_along_with_one_that_is_continued() -> None:
    """A host that follows later would be begun after the window, or after one failure too many."""
    run, admission = admit_hosts(passed(night(max_unavailable=3), "kvm2", m.DRAIN), ["kvm1", "kvm2"], at())
    assert (list(admission.begun), admission.deferred) == (["kvm2"], {"kvm1": "kvm2 is continued first, at its step drain"})
    assert [one.status for one in run.hosts] == [m.WAITING, m.IN_PROGRESS, m.WAITING]
    _after, admission = admit_hosts(transitions.begin_host(night(max_unavailable=3), "kvm2", at()), ["kvm1", "kvm2"], at())
    assert list(admission.begun) == ["kvm2", "kvm1"]


def test_a_host_that_failed_while_it_was_out_of_service_counts_until_it_is_back() -> None:
    failed = transitions.fail_host(passed(night(max_failures=1), "kvm1", m.MAINTAIN), "kvm1", "no", at())
    assert "kvm1 is out of service" in why(failed, "kvm2")
    before = transitions.fail_host(passed(night(max_failures=1), "kvm1", m.BEFORE_DRAIN), "kvm1", "no", at())
    assert why(before, "kvm2") == ""


def test_one_failure_too_many_begins_no_further_host() -> None:
    failed = transitions.fail_host(passed(night(), "kvm1", m.CHECK), "kvm1", "no room", at())
    assert why(failed, "kvm2") == "kvm1 failed, and max_failures is 0"


def test_a_host_with_nothing_to_do_is_never_begun() -> None:
    run, admission = admit_hosts(night(PlannedHost("kvm1", has_work=False), "kvm2"), ["kvm1", "kvm2"], at())
    assert list(admission.begun) == ["kvm2"]
    assert admission.deferred == {}
    assert run.hosts[0].status == m.NOTHING_TO_DO


@pytest.mark.parametrize(("left", "begins"), [(601, True), (600, True), (599, False), (0, False), (-60, False)])
def test_nothing_begins_that_is_not_predicted_to_end_in_the_window(left: int, begins: bool) -> None:
    run = night(PlannedHost("kvm1", predicted_seconds=120), "kvm2", until=at(600).at, expected_seconds=480)
    assert (why(run, "kvm1", seconds=600 - left) == "") is begins


def test_the_slowest_host_so_far_bounds_the_prediction() -> None:
    run = done(night(until=at(1000).at, expected_seconds=10), "kvm1", took=600)
    assert "predicted to take 600 s" in why(run, "kvm2", seconds=601)


def test_the_time_between_two_processes_does_not_count_for_the_prediction() -> None:
    run = transitions.fail_host(passed(night("kvm1", "kvm2", expected_seconds=300), "kvm1", m.VERIFY), "kvm1", "old kernel", at(600))
    again = transitions.take_over(transitions.close_run(run, {}, at(600)), holder(2), at(80_000), until=at(81_000).at)
    again = transitions.complete_host(again, "kvm1", at(80_060))
    assert (again.hosts[0].status, why(again, "kvm2", seconds=80_060)) == (m.DONE, "")


def test_a_pause_does_not_count_for_the_prediction() -> None:
    run = transitions.add_request(passed(night("kvm1", "kvm2", until=at(10_000).at, expected_seconds=300), "kvm1", m.DRAIN), m.PAUSE, None, at(60))
    run = transitions.add_request(transitions.heed_request(run, at(60)), m.RESUME, None, at(8000))
    run = transitions.complete_host(transitions.heed_request(run, at(8000)), "kvm1", at(8060))
    assert why(run, "kvm2", seconds=8060) == ""


def test_what_is_begun_is_finished_after_the_window() -> None:
    run = passed(night(until=at(100).at), "kvm1", m.DRAIN)
    _after, admission = admit_hosts(run, ["kvm1"], at(5000))
    assert admission.begun == {"kvm1": ResumePoint(m.DRAIN, is_repeated=True)}


def test_hosts_after_the_canary_wait_for_a_person() -> None:
    run, admission = admit_hosts(night(canary=True, max_unavailable=3), ["kvm1", "kvm2"], at())
    assert (list(admission.begun), admission.deferred) == (["kvm1"], {"kvm2": "it waits for the canary kvm1"})
    run = done(run, "kvm1")
    assert run.state == m.PAUSED
    assert "the canary kvm1 is done" in why(run, "kvm2", seconds=100_000)
    assert why(transitions.add_request(run, m.RESUME, None, at(100)), "kvm2", seconds=100) == ""


@pytest.mark.parametrize("minutes", [None, 10])
def test_a_run_that_is_stopped_during_its_canary_waits_for_nobody_after_it(minutes: int | None) -> None:
    run = transitions.add_request(passed(night(canary=True, canary_minutes=minutes), "kvm1", m.DRAIN), m.STOP, "enough", at())
    run = done(transitions.heed_request(run, at()), "kvm1")
    assert (run.state, run.is_stopping) == (m.RUNNING, True)
    _after, admission = admit_hosts(run, ["kvm2"], at(100))
    assert (admission.waits_for, admission.deferred) == (None, {"kvm2": f"stopped by {at().by} at {at().at} (enough)"})


def test_a_run_that_was_stopped_after_its_canary_waits_for_a_person_again_when_it_is_continued() -> None:
    stopped = transitions.add_request(done(night(canary=True), "kvm1"), m.STOP, None, at(100))
    closed = transitions.close_run(transitions.heed_request(stopped, at(100)), {}, at(100))
    again = transitions.take_over(closed, holder(2), at(200))
    assert "the canary kvm1 is done" in why(again, "kvm2", seconds=200)
    assert why(transitions.add_request(again, m.RESUME, None, at(300)), "kvm2", seconds=300) == ""


def test_hosts_after_the_canary_wait_for_its_minutes() -> None:
    run = done(night(canary=True, canary_minutes=10), "kvm1")
    assert "waits 10 more minutes" in why(run, "kvm2", seconds=61)
    assert "waits 1 more minutes" in why(run, "kvm2", seconds=60 + 599)
    assert why(run, "kvm2", seconds=60 + 600) == ""


def test_the_minutes_begin_anew_on_another_control_node() -> None:
    run = done(night(canary=True, canary_minutes=10), "kvm1")
    run, admission = admit_hosts(run, ["kvm2"], at(5000, boot="boot-2"))
    assert "waits 10 more minutes" in str(admission.waits_for)
    _after, admission = admit_hosts(run, ["kvm2"], at(5600, boot="boot-2"))
    assert list(admission.begun) == ["kvm2"]


def test_a_failed_canary_stops_whatever_failures_are_permitted() -> None:
    run = transitions.fail_host(passed(night(canary=True, max_failures=3), "kvm1", m.CHECK), "kvm1", "no", at())
    assert why(run, "kvm2") == "the canary kvm1 failed"


def test_the_canary_is_the_first_host_with_something_to_do() -> None:
    run = night(PlannedHost("kvm1", has_work=False), "kvm2", "kvm3", canary=True)
    assert (why(run, "kvm2"), why(run, "kvm3")) == ("", "it waits for the canary kvm2")


def test_a_pause_holds_hosts_in_progress_and_a_stop_finishes_them() -> None:
    run = passed(night(), "kvm1", m.DRAIN)
    assert "paused by ann@control pid 1" in why(transitions.add_request(run, m.PAUSE, "alarm", at()), "kvm1")
    paused, _admission = admit_hosts(transitions.add_request(run, m.PAUSE, None, at()), ["kvm1"], at())
    stopped = transitions.add_request(paused, m.STOP, "enough", at())
    assert why(stopped, "kvm1") == ""
    assert "stopped by ann@control pid 1" in why(stopped, "kvm2")
    assert "(enough)" in why(stopped, "kvm2")


@pytest.mark.parametrize("step", m.STEPS)
def test_an_interrupted_step_is_repeated_and_an_ended_one_is_not(step: str) -> None:
    run = passed(night(), "kvm1", step)
    assert resume_point(run.hosts[0]) == ResumePoint(step, is_repeated=True)
    following = m.STEPS[m.STEPS.index(step) + 1 :]
    ended = transitions.end_step(run, "kvm1", at()).hosts[0]
    assert resume_point(ended) == (ResumePoint(following[0]) if following else None)


def test_a_host_whose_last_step_ended_repeats_it_to_be_completed() -> None:
    run = transitions.end_step(passed(night(), "kvm1"), "kvm1", at())
    _after, admission = admit_hosts(transitions.take_over(run, holder(2), at()), ["kvm1"], at())
    assert admission.begun == {"kvm1": ResumePoint(m.RECOVER, is_repeated=True)}


def test_a_failed_host_continues_where_it_failed_and_one_that_was_never_down_begins_anew() -> None:
    run = transitions.fail_host(passed(night(max_failures=9, max_unavailable=9), "kvm1", m.VERIFY), "kvm1", "old kernel", at())
    run = transitions.fail_host(passed(run, "kvm2", m.CHECK), "kvm2", "no room", at())
    closed = transitions.close_run(run, {"kvm3": "the window has ended"}, at())
    assert (closed.state, closed.holder, closed.hosts[2].error) == (m.STOPPED, None, "the window has ended")
    again = transitions.take_over(closed, holder(2), at(), until=at(900).at)
    assert (again.state, again.term, again.options.until) == (m.RUNNING, 2, at(900).at)
    assert [(one.status, one.error) for one in again.hosts] == [(m.IN_PROGRESS, None), (m.WAITING, None), (m.WAITING, None)]
    points = [admit_hosts(again, [host], at())[1].begun[host] for host in again.host_names]
    assert points == [ResumePoint(m.VERIFY, is_repeated=True), ResumePoint(m.CHECK), ResumePoint(m.CHECK)]
