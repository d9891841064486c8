# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host knows itself about its lease, and whether it may keep running."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import view as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HELD, NONE

LEASE = 15
OWN = "own"


def test_a_host_has_its_lease_from_when_it_sent_the_renewal() -> None:
    view = m.OwnView().acknowledge(1, sent_at=100.0, now=104.0, lease_seconds=LEASE)
    assert view == m.OwnView(115.0, 1)
    assert [view.is_held(moment) for moment in (104.0, 114.9, 115.0)] == [True, True, False]
    assert [view.since(moment) for moment in (104.0, 115.0)] == [1, 0]


def test_a_renewal_in_time_leaves_no_gap_and_a_late_one_does() -> None:
    first = m.OwnView().acknowledge(1, 100.0, 100.1, LEASE)
    assert first.acknowledge(2, 103.0, 114.9, LEASE) == m.OwnView(118.0, 1)
    assert first.acknowledge(2, 103.0, 115.0, LEASE) == m.OwnView(118.0, 2)


def test_an_acknowledgement_after_the_lease_would_have_ended_gives_none() -> None:
    first = m.OwnView().acknowledge(1, 100.0, 100.1, LEASE)
    assert first.acknowledge(2, 103.0, 118.0, LEASE) == first
    assert m.OwnView().acknowledge(1, 100.0, 115.0, LEASE) == m.OwnView()


def test_an_older_renewal_that_is_acknowledged_late_shortens_nothing() -> None:
    assert m.OwnView(130.0, 3).acknowledge(2, 103.0, 117.0, LEASE) == m.OwnView(130.0, 3)


def test_a_shorter_lease_holds_at_once_and_a_longer_one_with_its_first_renewal() -> None:
    assert m.OwnView(160.0, 3).shorten(100.0, LEASE) == m.OwnView(115.0, 3)
    assert m.OwnView(110.0, 3).shorten(100.0, 60) == m.OwnView(110.0, 3)
    assert m.OwnView().shorten(100.0, LEASE) == m.OwnView()


Renewal = tuple[float, float]
# Pauses before a renewal is sent, and until it is acknowledged; an endless one is never acknowledged.
RENEWALS = st.lists(st.tuples(st.floats(0, 40), st.one_of(st.floats(0, 40), st.just(float("inf")))), max_size=12)


@given(RENEWALS, st.lists(st.floats(0, 500), min_size=1, max_size=20))
def test_held_since_names_a_renewal_since_which_nobody_was_told_that_there_is_no_lease(renewals: list[Renewal], asked: list[float]) -> None:
    """Of each answer: whether the lease was held, judged from the renewals alone; and no gap since the renewal that is named."""
    now, view, begun = 0.0, m.OwnView(), {}
    moments = sorted(asked)
    told: list[tuple[float, bool, int]] = []
    held_from: list[tuple[float, float]] = []
    for count, (pause, wait) in enumerate(renewals, 1):
        sent = now + pause
        end = sent + wait if wait != float("inf") else sent + 1
        while moments and moments[0] < end:
            told.append((moments[0], view.is_held(moments[0]), view.since(moments[0])))
            moments.pop(0)
        if wait != float("inf"):
            view = view.acknowledge(count, sent, end, LEASE)
            held_from.append((end, sent + LEASE))
            begun[count] = end
        now = end
    for moment, is_held, since in told:
        assert is_held == any(begin <= moment < until for begin, until in held_from if begin <= moment)
        assert (since > 0) == is_held
        if since:
            assert all(was_held for before, was_held, _since in told if begun[since] <= before <= moment)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_a_host_without_lease_keeps_running_only_if_a_majority_has_none(size: int) -> None:
    """All answers of all peers: a lease, none, no answer."""
    peers = [f"peer{number}" for number in range(size - 1)]
    lost = m.OwnView(100.0, 7)
    for given_answers in itertools.product((HELD, NONE, None), repeat=size - 1):
        answers = {peer: answer for peer, answer in zip(peers, given_answers) if answer}
        verdict = m.judge(lost, 101.0, OWN, [[OWN, *peers]], answers)
        without = 1 + given_answers.count(NONE)
        assert verdict.keeps_running == (2 * without > size), (given_answers, verdict)
        # The other hosts can prove a reset only if more than half of the fleet has leases.
        assert not (verdict.keeps_running and 2 * given_answers.count(HELD) > size)


@given(
    st.builds(m.OwnView, st.floats(0, 1000), st.integers(0, 100)),
    st.floats(0, 1000),
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([HELD, NONE]), max_size=6),
    st.sets(st.sampled_from("abcdef"), max_size=6),
)
def test_a_host_keeps_running_with_its_lease_and_before_its_first_one(own: m.OwnView, now: float, answers: dict[str, str], peers: set[str]) -> None:
    verdict = m.judge(own, now, OWN, [[OWN, *peers]], answers)
    if own.is_held(now) or own.held_until == 0:
        assert verdict.keeps_running
        assert not m.needs_peers(own, now)
    else:
        fleet = {OWN, *peers}
        assert verdict.keeps_running == (2 * (1 + sum(answers.get(peer) == NONE for peer in peers)) > len(fleet))
        assert m.needs_peers(own, now)


def test_answers_of_hosts_outside_the_fleet_do_not_count() -> None:
    lost = m.OwnView(100.0, 7)
    assert not m.judge(lost, 101.0, OWN, [[OWN, "a", "b"]], {"x": NONE, "y": NONE, "z": NONE}).keeps_running
    # Nor does the answer of something that claims to be the host itself.
    assert not m.judge(lost, 101.0, OWN, [[OWN, "a", "b"]], {OWN: NONE}).keeps_running


def test_each_list_that_a_renewal_may_show_must_agree() -> None:
    """The host was given a list with itself alone, while etcd still has its renewal with the old list."""
    lost = m.OwnView(100.0, 7)
    assert m.judge(lost, 101.0, OWN, [[OWN]], {}).keeps_running
    assert not m.judge(lost, 101.0, OWN, [[OWN, "a", "b"], [OWN]], {}).keeps_running
    assert m.judge(lost, 101.0, OWN, [[OWN, "a", "b"], [OWN]], {"a": NONE}).keeps_running


def test_without_a_list_a_host_whose_lease_has_ended_may_not_run() -> None:
    assert not m.judge(m.OwnView(100.0, 7), 101.0, OWN, [], {"a": NONE}).keeps_running


def test_the_verdict_says_why() -> None:
    lost, fleet = m.OwnView(100.0, 7), [[OWN, "a", "b"]]
    assert m.judge(lost, 95.0, OWN, fleet, {}).why == "The lease is held for another 5.0 s."
    assert m.judge(m.OwnView(), 95.0, OWN, fleet, {}).why == "The host has had no lease since it was started."
    assert m.judge(lost, 102.0, OWN, fleet, {}).why.endswith("only 1 of 3 hosts say that they have none either; 2 are needed.")
    assert "2 of 3 hosts say" in m.judge(lost, 102.0, OWN, fleet, {"a": NONE}).why
