# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Violations that checks of a fleet find, and states that are no violation."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.soak import looks
from ansible_collections.kvmfleet.migration.tests.soak.looks import OFF, Host, Look, Place
from ansible_collections.kvmfleet.migration.tests.soak.model import CONFIRMED_BY, Guest, Model, Violation

MANY = max(CONFIRMED_BY.values()) + 2


def host(*guests: str, state: str = "running", reason: str = "1", processes: t.Collection[str] | None = None) -> Host:
    """A host that has these guests in this state, with a process each unless said otherwise."""
    there = guests if processes is None else processes
    return Host(True, {name: Place(state, reason) for name in guests}, dict.fromkeys(there, 100))


EMPTY = host()
SILENT = Host(True, None, {"web": 100})
UNSEEN = Host(True, None, None)


def model() -> Model:
    return Model([Guest("web", True, True)])


def judge(judged: Model, *pairs: tuple[Look, Look]) -> None:
    for first, second in pairs:
        judged.judge(first, second)


def judge_repeatedly(judged: Model, look: Look) -> None:
    judge(judged, *[(look, look)] * MANY)


def test_a_guest_that_runs_on_one_host_is_no_violation() -> None:
    judged = model()
    judge_repeatedly(judged, {1: host("web"), 2: EMPTY, 3: OFF})
    assert judged.looked == MANY


def test_a_guest_that_runs_on_two_hosts_is_a_violation_that_names_them() -> None:
    with pytest.raises(Violation, match="web runs on 2 hosts") as found:
        judge_repeatedly(model(), {1: host("web"), 2: EMPTY, 3: host("web")})
    assert (found.value.guest, found.value.hosts) == ("web", [1, 3])


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(host("web", state="paused", reason="migration"), id="incoming"),
        pytest.param(host("web", state="shut off", processes=()), id="inactive definition"),
        pytest.param(host("web", processes=()), id="no process"),
        pytest.param(SILENT, id="libvirt does not answer"),
    ],
)
def test_an_inactive_copy_of_a_guest_is_no_violation(other: Host) -> None:
    judge_repeatedly(model(), {1: host("web"), 2: other, 3: EMPTY})


def test_a_guest_seen_on_source_and_destination_of_its_move_is_no_violation() -> None:
    here, there = {1: host("web"), 2: EMPTY, 3: EMPTY}, {1: EMPTY, 2: host("web"), 3: EMPTY}
    torn = {1: host("web"), 2: host("web"), 3: EMPTY}
    judge(model(), *[(here, torn), (torn, there)] * MANY)


def test_a_guest_seen_once_on_two_hosts_is_no_violation_yet() -> None:
    torn, fine = {1: host("web"), 2: host("web"), 3: EMPTY}, {1: EMPTY, 2: host("web"), 3: EMPTY}
    judge(model(), (torn, torn), (fine, fine), (torn, torn), (fine, fine))


def test_a_guest_that_runs_nowhere_is_a_violation() -> None:
    with pytest.raises(Violation, match="web runs nowhere"):
        judge_repeatedly(model(), {1: EMPTY, 2: host("web", state="shut off", processes=()), 3: OFF})


def test_a_guest_may_run_on_a_host_that_was_not_checked() -> None:
    judge_repeatedly(model(), {1: EMPTY, 2: UNSEEN, 3: EMPTY})


def test_a_guest_of_a_host_without_power_is_excused_until_all_is_settled() -> None:
    judged = model()
    before = {1: EMPTY, 2: host("web"), 3: EMPTY}
    judged.will_kill(before, 1, "host 1 lost its power")
    assert judged.accounted() == {}
    judged.will_kill(before, 2, "host 2 lost its power")
    assert judged.accounted() == {"web": "host 2 lost its power"}
    judge_repeatedly(judged, {1: EMPTY, 2: OFF, 3: EMPTY})
    judged.settled()
    with pytest.raises(Violation):
        judge_repeatedly(judged, {1: EMPTY, 2: OFF, 3: EMPTY})


def test_an_excused_guest_must_not_run_twice() -> None:
    judged = model()
    judged.excuse("web", "its QEMU was killed")
    with pytest.raises(Violation, match="2 hosts"):
        judge_repeatedly(judged, {1: host("web"), 2: host("web"), 3: EMPTY})


def test_a_guest_in_post_copy_is_excused_only_during_a_disturbance() -> None:
    split = {1: host("web", state="paused", reason="post-copy"), 2: host("web", reason="post-copy"), 3: EMPTY}
    judged = model()
    judge_repeatedly(judged, split)
    assert judged.accounted() == {}
    judged.disturb("cable 1", "the cable of 1 was cut")
    judged.disturb("cable 2", "the cable of 2 was cut")
    judged.calm("cable 1")
    judge_repeatedly(judged, split)
    assert judged.accounted() == {"web": "in post-copy: the cable of 2 was cut"}


def test_lost_or_stale_memory_is_a_violation() -> None:
    judged = model()
    judged.judge_memory("web", {"intact": True, "increments": 500, "problem": ""})
    judged.judge_memory("web", {"intact": True, "increments": 500, "problem": ""})
    with pytest.raises(Violation, match="page 3"):
        judged.judge_memory("web", {"intact": False, "increments": 900, "problem": "page 3 is old"})
    with pytest.raises(Violation, match="begun anew"):
        judged.judge_memory("web", {"intact": True, "increments": 499, "problem": ""})


def test_a_guest_without_page_checks_is_judged_by_its_increments() -> None:
    judged = Model([Guest("fast", True, False)])
    judged.judge_memory("fast", {"intact": False, "increments": 500, "problem": "page 3 is old"})
    with pytest.raises(Violation, match="begun anew"):
        judged.judge_memory("fast", {"intact": False, "increments": 7, "problem": "page 3 is old"})


def test_memory_of_an_excused_guest_may_start_again() -> None:
    judged = model()
    judged.judge_memory("web", {"intact": True, "increments": 500, "problem": ""})
    judged.excuse("web", "host 1 lost its power")
    judged.judge_memory("web", {"intact": True, "increments": 7, "problem": ""})


def test_home_prefers_the_running_host_then_a_process_then_a_definition() -> None:
    off, coming, there = host("web", state="shut off", processes=()), host("web", state="paused"), host("web")
    assert looks.home({1: off, 2: coming, 3: there}, "web") == 3
    assert looks.home({1: off, 2: coming, 3: EMPTY}, "web") == 2
    assert looks.home({1: off, 2: EMPTY, 3: EMPTY}, "web") == 1
    assert looks.home({1: EMPTY, 2: UNSEEN, 3: OFF}, "web") is None
