# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a host is gone, and when it is back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._events.presence import LONGEST_PAUSE_SECONDS, Presence

GONE_AFTER = 30.0


def test_a_daemon_that_restarts_is_not_gone() -> None:
    presence = Presence(GONE_AFTER, 0)
    assert presence.heard(1) is None
    presence.lost(100, "closed")
    assert not presence.wants_to_try(100.5)
    assert presence.wants_to_try(101)
    assert presence.gone(102) is None
    assert presence.heard(103) is None


def test_what_stopped_answering_was_silent_before_that_was_noticed() -> None:
    presence = Presence(GONE_AFTER, 0)
    presence.heard(1)
    presence.lost(100, "silent", silent_seconds=20)
    assert presence.gone(109) is None
    assert presence.gone(110) == ("silent", 30)
    assert presence.heard(400) == 320


def test_a_host_that_never_answered_is_gone_too() -> None:
    presence = Presence(GONE_AFTER, 0)
    presence.failed(1, "no route")
    assert presence.gone(29) is None
    assert presence.gone(30) == ("no route", 30)


def test_tries_grow_rare_and_rarer_where_they_hang() -> None:
    presence, now, pauses = Presence(GONE_AFTER, 0), 0.0, []
    for _try in range(12):
        presence.failed(now, "no route")
        before = now
        while not presence.wants_to_try(now):
            now += 0.5
        pauses.append(now - before)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, LONGEST_PAUSE_SECONDS)
    presence.failed(now, "hangs", hanging=2)
    assert not presence.wants_to_try(now + 2 * LONGEST_PAUSE_SECONDS)
    assert presence.wants_to_try(now + 3 * LONGEST_PAUSE_SECONDS)


STEPS = st.lists(st.tuples(st.sampled_from(["heard", "lost", "failed", "look"]), st.floats(0, 100)), max_size=60)


@given(STEPS)
def test_gone_and_back_take_turns_and_are_told_of_truthfully(steps: list[tuple[str, float]]) -> None:
    presence, now, told, silent_since = Presence(GONE_AFTER, 0), 0.0, [], 0.0
    there = False
    for what, seconds in steps:
        now += seconds
        if what == "heard" and not there:
            back = presence.heard(now)
            told += ["back"] if back is not None else []
            assert back is None or back >= GONE_AFTER
            there = True
        elif what == "lost" and there:
            presence.lost(now, "closed")
            there, silent_since = False, now
        elif what == "failed" and not there:
            presence.failed(now, "no route")
        gone = presence.gone(now)
        if gone:
            assert not there
            assert now - silent_since >= GONE_AFTER
            told.append("gone")
    assert told == [("gone", "back")[number % 2] for number in range(len(told))]
