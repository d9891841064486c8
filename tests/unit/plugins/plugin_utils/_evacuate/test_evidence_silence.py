# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The silence of a dead host is checked in parallel with other work, and again before it is too old."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evidence import SILENCE_FRESH_SECONDS, SilenceRenewal, do_at_once
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


def test_a_fresh_proof_of_silence_is_not_renewed() -> None:
    door, clock = Door(), FakeClock()
    renewal = SilenceRenewal(door, clock(), clock)
    renewal.require_proof()
    assert door.knocks == 0
    clock.sleep(SILENCE_FRESH_SECONDS + 1)
    renewal.require_proof()
    assert door.knocks == 1


def test_silence_is_probed_at_once_without_a_proof() -> None:
    door = Door()
    SilenceRenewal(door).require_proof()
    assert door.knocks == 1


def test_a_probe_in_progress_is_awaited_and_counts() -> None:
    door = Door()
    renewal = SilenceRenewal(door)
    renewal.start_proof(0)
    assert door.knocked.wait(30)
    renewal.require_proof()
    assert door.knocks == 1


def test_a_scheduled_probe_runs_at_once_when_it_is_required() -> None:
    door = Door()
    renewal = SilenceRenewal(door)
    renewal.start_proof(3600)
    renewal.require_proof()
    assert door.knocks == 1


def test_an_answer_overrides_an_older_proof_of_silence() -> None:
    door, clock = Door(), FakeClock()
    renewal = SilenceRenewal(door, clock(), clock)
    door.answers = True
    renewal.start_proof(0)
    with pytest.raises(Unsafe):
        renewal.require_proof()


def test_a_dropped_probe_does_not_run() -> None:
    door = Door()
    renewal = SilenceRenewal(door)
    renewal.start_proof(3600)
    renewal.cancel_proof()
    assert door.knocks == 0


def test_agents_are_asked_at_once_and_all_have_ended_before_an_error_is_raised() -> None:
    """Each call waits until the other one has started."""
    both, ended = threading.Barrier(2, timeout=30), list[str]()

    def ask(host: str) -> str:
        both.wait()
        ended.append(host)
        if host == "kvm1":
            raise Unsafe("It is on.")
        return host

    with pytest.raises(Unsafe, match="It is on"):
        do_at_once(ask, ["kvm1", "kvm2"])
    assert sorted(ended) == ["kvm1", "kvm2"]
    assert (do_at_once(str.upper, ["a"]), do_at_once(str.upper, [])) == (["A"], [])
