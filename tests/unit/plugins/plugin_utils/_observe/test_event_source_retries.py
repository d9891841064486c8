# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a host is tried again."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_source import LONGEST_PAUSE_SECONDS, Retries


def test_a_lost_connection_is_tried_again_soon() -> None:
    retries = Retries(0)
    assert retries.wants_to_try(0)
    retries.note_answer()
    assert not retries.wants_to_try(100)
    retries.note_loss(100)
    assert not retries.wants_to_try(100.5)
    assert retries.wants_to_try(101)


def test_pauses_between_attempts_grow_and_are_longer_while_one_hangs() -> None:
    retries, now, pauses = Retries(0), 0.0, []
    for _try in range(12):
        retries.note_failed_try(now)
        before = now
        while not retries.wants_to_try(now):
            now += 0.5
        pauses.append(now - before)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, LONGEST_PAUSE_SECONDS)
    retries.note_failed_try(now, hanging=2)
    assert not retries.wants_to_try(now + 2 * LONGEST_PAUSE_SECONDS)
    assert retries.wants_to_try(now + 3 * LONGEST_PAUSE_SECONDS)


def test_a_returning_host_is_tried_soon_however_many_attempts_hang() -> None:
    retries = Retries(0)
    for _try in range(12):
        retries.note_failed_try(0, hanging=2)
    for now in range(6):
        assert retries.wants_to_try(now) == (now == 5)
        retries.note_return(now)
