# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each row of the outcome table, and what must hold over every pair of answers."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import outcome as o
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.outcome import MoveState, Verdict, judge_outcome
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states

NOT_THERE, NO_ANSWER = domain_states.NOT_THERE, domain_states.NO_ANSWER


def active_view(state: str = domain_states.RUNNING, reason: str = "booted", job: str = domain_states.JOB_NONE) -> domain_states.DomainView:
    return domain_states.DomainView(True, True, True, True, state, reason, job)


def shut_off_view(reason: str = "shutdown", state: str = domain_states.SHUTOFF) -> domain_states.DomainView:
    return domain_states.DomainView(True, True, False, True, state, reason)


RUNNING, ARRIVED = active_view(), active_view(reason="migrated")
PAUSED_BY_USER = active_view(domain_states.PAUSED, "user")
HANDED_OVER = active_view(domain_states.PAUSED, domain_states.MIGRATION)
INCOMING = active_view(domain_states.PAUSED, domain_states.MIGRATION, domain_states.JOB_INCOMING)
STARTING_UP = active_view(domain_states.PAUSED, domain_states.STARTING_UP, domain_states.JOB_INCOMING)
POST_COPY_HERE, POST_COPY_FAILED_HERE = (
    active_view(domain_states.PAUSED, domain_states.POST_COPY),
    active_view(domain_states.PAUSED, domain_states.POST_COPY_FAILED),
)
POST_COPY_THERE, POST_COPY_FAILED_THERE = (
    active_view(domain_states.RUNNING, domain_states.POST_COPY),
    active_view(domain_states.RUNNING, domain_states.POST_COPY_FAILED),
)
POST_COPY_STOPPED_THERE = active_view(domain_states.PAUSED, domain_states.POST_COPY_FAILED)
CRASHED = shut_off_view("panicked", domain_states.CRASHED)

COMPLETED, NOT_MOVED = Verdict(o.COMPLETED), Verdict(o.NOT_MOVED)
TWICE, DIED, LOST = Verdict(o.ERROR, o.REASON_RUNNING_TWICE), Verdict(o.ERROR, o.REASON_GUEST_DIED), Verdict(o.ERROR, o.REASON_MEMORY_LOST)
UNREACHABLE = Verdict(o.ERROR, o.REASON_UNREACHABLE)

PLAIN, PAUSED, RAN_THERE = MoveState(), MoveState(was_paused=True), MoveState(ran_there=True)
POST_COPY, NEVER_BEGUN = MoveState(post_copy=True), MoveState(job_started=False)


LEAVING = active_view(job=domain_states.JOB_OUTGOING)
WAIT = Verdict(o.WAIT, otherwise=o.REASON_UNCLEAR)


@pytest.mark.parametrize(
    ("source", "runs", "arrives", "verdict"),
    [
        (RUNNING, False, False, NOT_MOVED),
        (PAUSED_BY_USER, False, False, NOT_MOVED),
        (RUNNING, False, True, NOT_MOVED),
        (RUNNING, True, True, TWICE),
        (LEAVING, False, True, WAIT),
        (HANDED_OVER, False, True, WAIT),
        (POST_COPY_HERE, True, True, WAIT),
        (POST_COPY_FAILED_HERE, True, True, WAIT),
        (NOT_THERE, True, True, COMPLETED),
        (NOT_THERE, False, True, WAIT),
        (NOT_THERE, False, False, DIED),
        (shut_off_view("migrated"), False, False, COMPLETED),
        (shut_off_view("destroyed"), True, True, COMPLETED),
        (shut_off_view("destroyed"), False, False, DIED),
        (CRASHED, False, False, DIED),
        (NO_ANSWER, True, True, UNREACHABLE),
    ],
)
def test_a_foreign_job_is_judged_without_its_destination(source: domain_states.DomainView, runs: bool, arrives: bool, verdict: Verdict) -> None:
    assert o.judge_foreign_job(source, runs, arrives) == verdict


@pytest.mark.parametrize("source", [NOT_THERE, shut_off_view("migrated"), shut_off_view("destroyed"), CRASHED])
@pytest.mark.parametrize("destination", [ARRIVED, RUNNING, PAUSED_BY_USER])
@pytest.mark.parametrize("move", [PLAIN, PAUSED, POST_COPY, NEVER_BEGUN])
def test_a_domain_active_only_at_the_destination_is_completed(source: domain_states.DomainView, destination: domain_states.DomainView, move: MoveState) -> None:
    assert judge_outcome(source, destination, move) == COMPLETED


@pytest.mark.parametrize("source", [RUNNING, PAUSED_BY_USER, active_view(reason="migration canceled"), active_view(domain_states.PAUSED, "I/O error")])
@pytest.mark.parametrize("destination", [NOT_THERE, shut_off_view("failed"), CRASHED])
@pytest.mark.parametrize("move", [PLAIN, PAUSED, POST_COPY, NEVER_BEGUN, RAN_THERE])
def test_a_domain_active_only_at_the_source_is_not_moved(source: domain_states.DomainView, destination: domain_states.DomainView, move: MoveState) -> None:
    assert judge_outcome(source, destination, move) == NOT_MOVED


@pytest.mark.parametrize("destination", [ARRIVED, RUNNING, PAUSED_BY_USER])
def test_a_copy_that_the_source_handed_over_is_destroyed(destination: domain_states.DomainView) -> None:
    assert judge_outcome(HANDED_OVER, destination, PLAIN) == Verdict(o.DESTROY_SOURCE)


@pytest.mark.parametrize("destination", [ARRIVED, RUNNING])
def test_no_copy_is_destroyed_after_post_copy(destination: domain_states.DomainView) -> None:
    assert judge_outcome(HANDED_OVER, destination, POST_COPY) == TWICE


@pytest.mark.parametrize("destination", [NOT_THERE, shut_off_view("failed")])
def test_a_domain_handed_over_but_never_active_at_the_destination_is_resumed(destination: domain_states.DomainView) -> None:
    assert judge_outcome(HANDED_OVER, destination, PLAIN) == Verdict(o.RESUME_SOURCE)


@pytest.mark.parametrize("move", [POST_COPY, RAN_THERE])
@pytest.mark.parametrize("destination", [NOT_THERE, shut_off_view("failed")])
def test_a_domain_that_may_have_run_at_the_destination_is_not_resumed(destination: domain_states.DomainView, move: MoveState) -> None:
    assert judge_outcome(HANDED_OVER, destination, move) == Verdict(o.ERROR, o.REASON_UNCLEAR)


@pytest.mark.parametrize("destination", [CRASHED, shut_off_view("crashed")])
def test_a_domain_that_crashed_at_the_destination_is_not_resumed(destination: domain_states.DomainView) -> None:
    assert judge_outcome(HANDED_OVER, destination, PLAIN) == Verdict(o.ERROR, o.REASON_UNCLEAR)


@pytest.mark.parametrize(("reason", "verdict"), [("shutdown", COMPLETED), ("saved", COMPLETED), ("crashed", DIED), ("", DIED)])
def test_a_domain_that_was_stopped_after_it_ran_at_the_destination_was_moved(reason: str, verdict: Verdict) -> None:
    assert judge_outcome(NOT_THERE, shut_off_view(reason), RAN_THERE) == verdict
    assert judge_outcome(NOT_THERE, shut_off_view(reason), PLAIN) == DIED


NEW_THERE = MoveState(was_at_destination=False)


@pytest.mark.parametrize("reason", ["shutdown", "destroyed", "saved", "migrated", "from snapshot", "daemon", "crashed", ""])
def test_a_domain_that_got_its_definition_at_the_destination_may_have_run_there(reason: str) -> None:
    """Libvirt defines it when all of its memory has arrived, right before the guest runs."""
    assert judge_outcome(HANDED_OVER, shut_off_view(reason), NEW_THERE) == Verdict(o.ERROR, o.REASON_UNCLEAR)


def test_a_domain_whose_start_at_the_destination_failed_is_resumed() -> None:
    assert judge_outcome(HANDED_OVER, shut_off_view("failed"), NEW_THERE) == Verdict(o.RESUME_SOURCE)
    assert judge_outcome(HANDED_OVER, NOT_THERE, NEW_THERE) == Verdict(o.RESUME_SOURCE)


@pytest.mark.parametrize("reason", ["failed", "destroyed", "daemon", ""])
def test_a_definition_that_was_at_the_destination_before_does_not_prove_that_the_guest_ran(reason: str) -> None:
    assert judge_outcome(HANDED_OVER, shut_off_view(reason), PLAIN) == Verdict(o.RESUME_SOURCE)


@pytest.mark.parametrize("reason", ["shutdown", "saved", "migrated", "from snapshot", "crashed"])
def test_a_domain_that_was_stopped_at_the_destination_has_run_there(reason: str) -> None:
    assert judge_outcome(HANDED_OVER, shut_off_view(reason), PLAIN) == Verdict(o.ERROR, o.REASON_UNCLEAR)


def test_a_guest_that_was_paused_before_stays_paused() -> None:
    assert judge_outcome(HANDED_OVER, NOT_THERE, PAUSED) == NOT_MOVED


@pytest.mark.parametrize("source", [POST_COPY_HERE, POST_COPY_FAILED_HERE])
@pytest.mark.parametrize("destination", [POST_COPY_THERE, POST_COPY_FAILED_THERE, POST_COPY_STOPPED_THERE])
@pytest.mark.parametrize("move", [PLAIN, POST_COPY])
def test_a_broken_post_copy_with_both_copies_is_recovered(source: domain_states.DomainView, destination: domain_states.DomainView, move: MoveState) -> None:
    assert judge_outcome(source, destination, move) == Verdict(o.RECOVER)


@pytest.mark.parametrize("source", [POST_COPY_HERE, POST_COPY_FAILED_HERE])
@pytest.mark.parametrize("destination", [NOT_THERE, shut_off_view("crashed"), CRASHED])
def test_a_broken_post_copy_without_its_destination_has_lost_its_memory(source: domain_states.DomainView, destination: domain_states.DomainView) -> None:
    assert judge_outcome(source, destination, POST_COPY) == LOST


@pytest.mark.parametrize("source", [NOT_THERE, CRASHED])
@pytest.mark.parametrize("destination", [POST_COPY_THERE, POST_COPY_FAILED_THERE, POST_COPY_STOPPED_THERE])
def test_a_post_copy_without_its_source_is_awaited_before_memory_lost(source: domain_states.DomainView, destination: domain_states.DomainView) -> None:
    assert judge_outcome(source, destination, POST_COPY) == Verdict(o.WAIT, otherwise=o.REASON_MEMORY_LOST)


@pytest.mark.parametrize("source", [RUNNING, PAUSED_BY_USER])
@pytest.mark.parametrize("destination", [RUNNING, ARRIVED, PAUSED_BY_USER, POST_COPY_THERE])
@pytest.mark.parametrize("move", [PLAIN, PAUSED, POST_COPY, NEVER_BEGUN])
def test_a_domain_active_on_both_hosts_is_an_error(source: domain_states.DomainView, destination: domain_states.DomainView, move: MoveState) -> None:
    assert judge_outcome(source, destination, move) == TWICE


@pytest.mark.parametrize("source", [NOT_THERE, shut_off_view(), shut_off_view("crashed"), CRASHED])
@pytest.mark.parametrize("destination", [NOT_THERE, shut_off_view("failed"), CRASHED])
def test_a_domain_active_on_neither_host_after_a_job_has_died(source: domain_states.DomainView, destination: domain_states.DomainView) -> None:
    assert judge_outcome(source, destination, PLAIN) == DIED


def test_a_guest_that_was_shut_down_before_any_job_is_not_moved() -> None:
    assert judge_outcome(shut_off_view(), NOT_THERE, NEVER_BEGUN) == NOT_MOVED
    assert judge_outcome(NOT_THERE, NOT_THERE, NEVER_BEGUN) == DIED


@pytest.mark.parametrize("other", [RUNNING, HANDED_OVER, NOT_THERE, shut_off_view(), POST_COPY_HERE, NO_ANSWER])
def test_a_missing_answer_of_either_host_is_unreachable(other: domain_states.DomainView) -> None:
    assert judge_outcome(NO_ANSWER, other, PLAIN) == UNREACHABLE
    assert judge_outcome(other, NO_ANSWER, PLAIN) == UNREACHABLE


@pytest.mark.parametrize("destination", [INCOMING, STARTING_UP, HANDED_OVER])
@pytest.mark.parametrize("source", [RUNNING, HANDED_OVER, NOT_THERE])
def test_an_incoming_domain_at_the_destination_is_awaited(source: domain_states.DomainView, destination: domain_states.DomainView) -> None:
    assert judge_outcome(source, destination, PLAIN) == Verdict(o.WAIT, otherwise=o.REASON_UNCLEAR)


@pytest.mark.parametrize("destination", [NOT_THERE, INCOMING, ARRIVED, POST_COPY_THERE])
def test_a_job_at_the_source_is_awaited(destination: domain_states.DomainView) -> None:
    assert judge_outcome(active_view(job=domain_states.JOB_OUTGOING), destination, PLAIN).act == o.WAIT


REASONS = [
    "booted",
    "user",
    "migrated",
    "migration canceled",
    "crashed",
    "failed",
    "saved",
    "destroyed",
    domain_states.MIGRATION,
    domain_states.STARTING_UP,
    domain_states.POST_COPY,
    domain_states.POST_COPY_FAILED,
    "I/O error",
]
ALL_VIEWS = st.one_of(
    st.sampled_from([NOT_THERE, NO_ANSWER]),
    st.builds(
        domain_states.DomainView,
        answered=st.just(True),
        present=st.just(True),
        active=st.just(True),
        persistent=st.booleans(),
        state=st.sampled_from([domain_states.RUNNING, domain_states.PAUSED, domain_states.OTHER_STATE]),
        reason=st.sampled_from(REASONS),
        job=st.sampled_from([domain_states.JOB_NONE, domain_states.JOB_OUTGOING, domain_states.JOB_INCOMING, domain_states.JOB_OTHER]),
    ),
    st.builds(shut_off_view, reason=st.sampled_from(REASONS), state=st.sampled_from([domain_states.SHUTOFF, domain_states.CRASHED])),
)
MOVES = st.builds(
    MoveState, was_paused=st.booleans(), post_copy=st.booleans(), ran_there=st.booleans(), job_started=st.booleans(), was_at_destination=st.booleans()
)


@given(source=ALL_VIEWS, destination=ALL_VIEWS, move=MOVES)
@settings(max_examples=1500)
def test_a_copy_is_destroyed_or_resumed_only_under_its_conditions(
    source: domain_states.DomainView, destination: domain_states.DomainView, move: MoveState
) -> None:
    verdict = judge_outcome(source, destination, move)
    handed_over = (
        source.active and source.state == domain_states.PAUSED and source.reason == domain_states.MIGRATION and source.job != domain_states.JOB_OUTGOING
    )
    if verdict.act == o.DESTROY_SOURCE:
        assert handed_over
        assert not move.post_copy
        assert destination.active
        assert not (destination.state == domain_states.PAUSED and destination.reason in (domain_states.MIGRATION, domain_states.STARTING_UP))
        assert destination.reason not in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED)
    if verdict.act == o.RESUME_SOURCE:
        assert handed_over
        assert destination.answered
        assert not destination.active
        assert destination.state != domain_states.CRASHED
        assert (move.post_copy, move.ran_there, move.was_paused) == (False, False, False)
        assert not destination.present or destination.reason == "failed" or (move.was_at_destination and destination.reason == "destroyed")
    if verdict.act == o.COMPLETED:
        assert source.answered
        assert not source.active
        was_stopped = move.ran_there and not move.post_copy and destination.present and destination.reason in domain_states.STOPPED_REASONS
        assert destination.active or was_stopped
        assert destination.reason not in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED)
    if verdict.act == o.NOT_MOVED:
        assert not destination.active
        assert source.present


@given(source=ALL_VIEWS, destination=ALL_VIEWS, move=MOVES)
@settings(max_examples=500)
def test_every_pair_of_answers_has_a_verdict(source: domain_states.DomainView, destination: domain_states.DomainView, move: MoveState) -> None:
    verdict = judge_outcome(source, destination, move)
    if verdict.act == o.WAIT:
        assert verdict.otherwise
    if verdict.act == o.ERROR:
        assert verdict.reason


def test_a_view_of_a_domain_is_described() -> None:
    seen: t.List[str] = [view.describe() for view in (NO_ANSWER, NOT_THERE, RUNNING, HANDED_OVER, shut_off_view(""))]
    assert seen == ["no answer", "not there", "running (booted)", "paused (migration)", "shut off"]
