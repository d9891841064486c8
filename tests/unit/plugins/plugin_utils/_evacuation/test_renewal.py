# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The silence of a dead host is proved beside other work, and never so long ago that it says nothing."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.renewal import FRESH_SECONDS, Renewal
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock


class Door:
    """Counts the knocks; it can begin to answer."""

    def __init__(self) -> None:
        self.knocks = 0
        self.answers = False
        self.knocked = threading.Event()

    def __call__(self) -> None:
        self.knocks += 1
        self.knocked.set()
        if self.answers:
            raise Unsafe("It answers.")


def test_what_is_fresh_is_not_asked_again() -> None:
    door, clock = Door(), FakeClock()
    renewal = Renewal(door, clock(), clock)
    renewal.insist()
    assert door.knocks == 0
    clock.sleep(FRESH_SECONDS + 1)
    renewal.insist()
    assert door.knocks == 1


def test_without_any_proof_it_is_asked_at_once() -> None:
    door = Door()
    Renewal(door).insist()
    assert door.knocks == 1


def test_what_was_begun_is_waited_for_and_counts() -> None:
    door = Door()
    renewal = Renewal(door)
    renewal.begin(0)
    assert door.knocked.wait(30)
    renewal.insist()
    assert door.knocks == 1


def test_what_was_to_be_asked_later_is_asked_when_it_is_wanted() -> None:
    door = Door()
    renewal = Renewal(door)
    renewal.begin(3600)
    renewal.insist()
    assert door.knocks == 1


def test_an_answer_counts_even_where_an_older_silence_is_fresh() -> None:
    door, clock = Door(), FakeClock()
    renewal = Renewal(door, clock(), clock)
    door.answers = True
    renewal.begin(0)
    with pytest.raises(Unsafe):
        renewal.insist()


def test_what_is_dropped_is_not_asked() -> None:
    door = Door()
    renewal = Renewal(door)
    renewal.begin(3600)
    renewal.drop()
    assert door.knocks == 0
