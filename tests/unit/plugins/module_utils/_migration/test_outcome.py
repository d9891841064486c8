# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each row of the outcome table, and what must hold over every pair of answers."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import outcome as o
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.outcome import Move, Verdict, judge

NOT_THERE, NO_ANSWER = h.NOT_THERE, h.NO_ANSWER


def active(state: str = h.RUNNING, reason: str = "booted", job: str = h.JOB_NONE) -> h.GuestView:
    return h.GuestView(True, True, True, True, state, reason, job)


def off(reason: str = "shutdown", state: str = h.SHUTOFF) -> h.GuestView:
    return h.GuestView(True, True, False, True, state, reason)


RUNNING, ARRIVED = active(), active(reason="migrated")
PAUSED_BY_USER = active(h.PAUSED, "user")
HANDED_OVER = active(h.PAUSED, h.MIGRATION)
INCOMING = active(h.PAUSED, h.MIGRATION, h.JOB_INCOMING)
STARTING_UP = active(h.PAUSED, h.STARTING_UP, h.JOB_INCOMING)
POST_COPY_HERE, POST_COPY_FAILED_HERE = active(h.PAUSED, h.POST_COPY), active(h.PAUSED, h.POST_COPY_FAILED)
POST_COPY_THERE, POST_COPY_FAILED_THERE = active(h.RUNNING, h.POST_COPY), active(h.RUNNING, h.POST_COPY_FAILED)
POST_COPY_STOPPED_THERE = active(h.PAUSED, h.POST_COPY_FAILED)
CRASHED = off("panicked", h.CRASHED)

COMPLETED, NOT_MOVED = Verdict(o.COMPLETED), Verdict(o.NOT_MOVED)
TWICE, DIED, LOST = Verdict(o.ERROR, o.REASON_RUNNING_TWICE), Verdict(o.ERROR, o.REASON_GUEST_DIED), Verdict(o.ERROR, o.REASON_MEMORY_LOST)
UNREACHABLE = Verdict(o.ERROR, o.REASON_UNREACHABLE)

PLAIN, PAUSED, RAN_THERE = Move(), Move(was_paused=True), Move(ran_there=True)
POST_COPY, NEVER_BEGUN = Move(post_copy=True), Move(job_started=False)


@pytest.mark.parametrize("source", [NOT_THERE, off("migrated"), off("destroyed"), CRASHED])
@pytest.mark.parametrize("destination", [ARRIVED, RUNNING, PAUSED_BY_USER])
@pytest.mark.parametrize("move", [PLAIN, PAUSED, POST_COPY, NEVER_BEGUN])
def test_gone_here_and_active_there_is_completed(source: h.GuestView, destination: h.GuestView, move: Move) -> None:
    assert judge(source, destination, move) == COMPLETED


@pytest.mark.parametrize("source", [RUNNING, PAUSED_BY_USER, active(reason="migration canceled"), active(h.PAUSED, "I/O error")])
@pytest.mark.parametrize("destination", [NOT_THERE, off("failed"), CRASHED])
@pytest.mark.parametrize("move", [PLAIN, PAUSED, POST_COPY, NEVER_BEGUN, RAN_THERE])
def test_active_here_and_not_there_is_not_moved(source: h.GuestView, destination: h.GuestView, move: Move) -> None:
    assert judge(source, destination, move) == NOT_MOVED


@pytest.mark.parametrize("destination", [ARRIVED, RUNNING, PAUSED_BY_USER])
def test_handed_over_here_and_active_there_destroys_the_copy_here(destination: h.GuestView) -> None:
    assert judge(HANDED_OVER, destination, PLAIN) == Verdict(o.DESTROY_SOURCE)


@pytest.mark.parametrize("destination", [ARRIVED, RUNNING])
def test_after_post_copy_nothing_is_destroyed(destination: h.GuestView) -> None:
    assert judge(HANDED_OVER, destination, POST_COPY) == TWICE


@pytest.mark.parametrize("destination", [NOT_THERE, off("failed")])
def test_handed_over_here_and_never_active_there_resumes_here(destination: h.GuestView) -> None:
    assert judge(HANDED_OVER, destination, PLAIN) == Verdict(o.RESUME_SOURCE)


@pytest.mark.parametrize("move", [POST_COPY, RAN_THERE])
@pytest.mark.parametrize("destination", [NOT_THERE, off("failed")])
def test_where_it_may_have_run_there_it_is_not_resumed_here(destination: h.GuestView, move: Move) -> None:
    assert judge(HANDED_OVER, destination, move) == Verdict(o.ERROR, o.REASON_UNCLEAR)


@pytest.mark.parametrize("destination", [CRASHED, off("crashed")])
def test_what_crashed_there_may_have_run_there(destination: h.GuestView) -> None:
    assert judge(HANDED_OVER, destination, PLAIN) == Verdict(o.ERROR, o.REASON_UNCLEAR)


def test_a_guest_that_was_paused_before_stays_paused() -> None:
    assert judge(HANDED_OVER, NOT_THERE, PAUSED) == NOT_MOVED


@pytest.mark.parametrize("source", [POST_COPY_HERE, POST_COPY_FAILED_HERE])
@pytest.mark.parametrize("destination", [POST_COPY_THERE, POST_COPY_FAILED_THERE, POST_COPY_STOPPED_THERE])
@pytest.mark.parametrize("move", [PLAIN, POST_COPY])
def test_both_halves_of_a_post_copy_are_recovered(source: h.GuestView, destination: h.GuestView, move: Move) -> None:
    assert judge(source, destination, move) == Verdict(o.RECOVER)


@pytest.mark.parametrize("source", [POST_COPY_HERE, POST_COPY_FAILED_HERE])
@pytest.mark.parametrize("destination", [NOT_THERE, off("crashed"), CRASHED])
def test_one_half_of_a_post_copy_alone_has_lost_its_memory(source: h.GuestView, destination: h.GuestView) -> None:
    assert judge(source, destination, POST_COPY) == LOST


@pytest.mark.parametrize("source", [NOT_THERE, CRASHED])
@pytest.mark.parametrize("destination", [POST_COPY_THERE, POST_COPY_FAILED_THERE, POST_COPY_STOPPED_THERE])
def test_the_other_half_alone_may_be_finishing_and_else_has_lost_its_memory(source: h.GuestView, destination: h.GuestView) -> None:
    assert judge(source, destination, POST_COPY) == Verdict(o.WAIT, otherwise=o.REASON_MEMORY_LOST)


@pytest.mark.parametrize("source", [RUNNING, PAUSED_BY_USER])
@pytest.mark.parametrize("destination", [RUNNING, ARRIVED, PAUSED_BY_USER, POST_COPY_THERE])
@pytest.mark.parametrize("move", [PLAIN, PAUSED, POST_COPY, NEVER_BEGUN])
def test_active_on_both_is_an_error_and_nothing_is_touched(source: h.GuestView, destination: h.GuestView, move: Move) -> None:
    assert judge(source, destination, move) == TWICE


@pytest.mark.parametrize("source", [NOT_THERE, off(), off("crashed"), CRASHED])
@pytest.mark.parametrize("destination", [NOT_THERE, off("failed"), CRASHED])
def test_active_nowhere_after_a_job_means_that_the_guest_died(source: h.GuestView, destination: h.GuestView) -> None:
    assert judge(source, destination, PLAIN) == DIED


def test_a_guest_shut_down_before_any_job_was_not_moved_and_one_that_is_nowhere_died() -> None:
    assert judge(off(), NOT_THERE, NEVER_BEGUN) == NOT_MOVED
    assert judge(NOT_THERE, NOT_THERE, NEVER_BEGUN) == DIED


@pytest.mark.parametrize("other", [RUNNING, HANDED_OVER, NOT_THERE, off(), POST_COPY_HERE, NO_ANSWER])
def test_no_answer_from_either_side_is_unsettled(other: h.GuestView) -> None:
    assert judge(NO_ANSWER, other, PLAIN) == UNREACHABLE
    assert judge(other, NO_ANSWER, PLAIN) == UNREACHABLE


@pytest.mark.parametrize("destination", [INCOMING, STARTING_UP, HANDED_OVER])
@pytest.mark.parametrize("source", [RUNNING, HANDED_OVER, NOT_THERE])
def test_what_libvirt_was_receiving_it_is_given_time_to_clear(source: h.GuestView, destination: h.GuestView) -> None:
    assert judge(source, destination, PLAIN) == Verdict(o.WAIT, otherwise=o.REASON_UNCLEAR)


@pytest.mark.parametrize("destination", [NOT_THERE, INCOMING, ARRIVED, POST_COPY_THERE])
def test_a_job_at_the_source_is_waited_for(destination: h.GuestView) -> None:
    assert judge(active(job=h.JOB_OUTGOING), destination, PLAIN).act == o.WAIT


REASONS = ["booted", "user", "migrated", "migration canceled", "crashed", "failed", h.MIGRATION, h.STARTING_UP, h.POST_COPY, h.POST_COPY_FAILED, "I/O error"]
ALL_VIEWS = st.one_of(
    st.sampled_from([NOT_THERE, NO_ANSWER]),
    st.builds(
        h.GuestView,
        answered=st.just(True),
        present=st.just(True),
        active=st.just(True),
        persistent=st.booleans(),
        state=st.sampled_from([h.RUNNING, h.PAUSED, h.OTHER_STATE]),
        reason=st.sampled_from(REASONS),
        job=st.sampled_from([h.JOB_NONE, h.JOB_OUTGOING, h.JOB_INCOMING, h.JOB_OTHER]),
    ),
    st.builds(off, reason=st.sampled_from(REASONS), state=st.sampled_from([h.SHUTOFF, h.CRASHED])),
)
MOVES = st.builds(Move, was_paused=st.booleans(), post_copy=st.booleans(), ran_there=st.booleans(), job_started=st.booleans())


@given(source=ALL_VIEWS, destination=ALL_VIEWS, move=MOVES)
@settings(max_examples=1500)
def test_a_copy_is_destroyed_or_resumed_under_its_row_s_conditions_alone(source: h.GuestView, destination: h.GuestView, move: Move) -> None:
    verdict = judge(source, destination, move)
    handed_over = source.active and source.state == h.PAUSED and source.reason == h.MIGRATION and source.job != h.JOB_OUTGOING
    if verdict.act == o.DESTROY_SOURCE:
        assert handed_over
        assert not move.post_copy
        assert destination.active
        assert not (destination.state == h.PAUSED and destination.reason in (h.MIGRATION, h.STARTING_UP))
        assert destination.reason not in (h.POST_COPY, h.POST_COPY_FAILED)
    if verdict.act == o.RESUME_SOURCE:
        assert handed_over
        assert destination.answered
        assert not destination.active
        assert destination.state != h.CRASHED
        assert (move.post_copy, move.ran_there, move.was_paused) == (False, False, False)
    if verdict.act == o.COMPLETED:
        assert source.answered
        assert not source.active
        assert destination.active
        assert destination.reason not in (h.POST_COPY, h.POST_COPY_FAILED)
    if verdict.act == o.NOT_MOVED:
        assert not destination.active
        assert source.present


@given(source=ALL_VIEWS, destination=ALL_VIEWS, move=MOVES)
@settings(max_examples=500)
def test_every_pair_of_answers_has_an_end(source: h.GuestView, destination: h.GuestView, move: Move) -> None:
    verdict = judge(source, destination, move)
    if verdict.act == o.WAIT:
        assert verdict.otherwise
    if verdict.act == o.ERROR:
        assert verdict.reason


def test_a_view_reads_as_people_say_it() -> None:
    seen: t.List[str] = [view.describe() for view in (NO_ANSWER, NOT_THERE, RUNNING, HANDED_OVER, off(""))]
    assert seen == ["no answer", "not there", "running (booted)", "paused (migration)", "shut off"]
