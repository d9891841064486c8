# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a host is gone, and when it is back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_source import LONGEST_PAUSE_SECONDS, Presence

GONE_AFTER = 30.0


def test_a_restart_of_the_daemon_is_not_reported_as_gone() -> None:
    presence = Presence(GONE_AFTER, 0)
    assert presence.note_answer(1) is None
    presence.note_loss(100, "closed")
    assert not presence.wants_to_try(100.5)
    assert presence.wants_to_try(101)
    assert presence.report_gone(102) is None
    assert presence.note_answer(103) is None


def test_the_time_before_the_silence_was_noticed_counts() -> None:
    presence = Presence(GONE_AFTER, 0)
    presence.note_answer(1)
    presence.note_loss(100, "silent", silent_seconds=20)
    assert presence.report_gone(109) is None
    assert presence.report_gone(110) == ("silent", 30)
    assert presence.note_answer(400) == 320


def test_a_host_that_never_answered_is_reported_gone() -> None:
    presence = Presence(GONE_AFTER, 0)
    presence.note_failed_try(1, "no route")
    assert presence.report_gone(29) is None
    assert presence.report_gone(30) == ("no route", 30)


def test_pauses_between_attempts_grow_and_are_longer_while_one_hangs() -> None:
    presence, now, pauses = Presence(GONE_AFTER, 0), 0.0, []
    for _try in range(12):
        presence.note_failed_try(now, "no route")
        before = now
        while not presence.wants_to_try(now):
            now += 0.5
        pauses.append(now - before)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, LONGEST_PAUSE_SECONDS)
    presence.note_failed_try(now, "hangs", hanging=2)
    assert not presence.wants_to_try(now + 2 * LONGEST_PAUSE_SECONDS)
    assert presence.wants_to_try(now + 3 * LONGEST_PAUSE_SECONDS)


STEPS = st.lists(st.tuples(st.sampled_from(["heard", "lost", "failed", "look"]), st.floats(0, 100)), max_size=60)


@given(STEPS)
def test_gone_and_back_alternate_and_match_the_silence(steps: list[tuple[str, float]]) -> None:
    presence, now, told, silent_since = Presence(GONE_AFTER, 0), 0.0, [], 0.0
    there = False
    for what, seconds in steps:
        now += seconds
        if what == "heard" and not there:
            back = presence.note_answer(now)
            told += ["back"] if back is not None else []
            assert back is None or back >= GONE_AFTER
            there = True
        elif what == "lost" and there:
            presence.note_loss(now, "closed")
            there, silent_since = False, now
        elif what == "failed" and not there:
            presence.note_failed_try(now, "no route")
        gone = presence.report_gone(now)
        if gone:
            assert not there
            assert now - silent_since >= GONE_AFTER
            told.append("gone")
    assert told == [("gone", "back")[number % 2] for number in range(len(told))]
