# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose turn it is, over records that are made up."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.queue import Limits, limits_of, what_is_full
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.settings import SchedulerSettings
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import record

NOW = datetime.datetime(2026, 11, 21, 3, 0, 30, tzinfo=datetime.UTC)
SEEN = "2026-11-21T03:00:25.000Z"
Record = dict[str, t.Any]


def settings(**limits: int) -> SchedulerSettings:
    return SchedulerSettings.of({"limits": limits}, "kvm1")


def opened(name: str, second: int, source: str = "kvm1", destination: str = "kvm2", status: str = "queued", **turn: t.Any) -> Record:
    """A record that was opened at a second; with limits it waits for its turn."""
    made = {**record(name, source, destination, status), "created_at": f"2026-11-21T03:00:{second:02d}.000Z"}
    return {**made, "turn": {"seen_at": SEEN, **turn}} if turn else made


def full(own: Record, *others: Record, **limits: int) -> list[str]:
    """The limits for which it has to wait, and who is in its way: those that move before a bar, those that go first behind it."""
    found = what_is_full([*others, own], own, limits, NOW)
    return [f"{one.name} {','.join(one.moving)}|{','.join(one.first)}" for one in found]


@pytest.mark.parametrize(
    ("source", "destination", "limits"),
    [
        ({}, {}, {}),
        ({"moves_in": 1, "domains": 9}, {"moves_out": 1}, {}),
        ({"moves_out": 1}, {"moves_in": 2}, {"moves_out": 1, "moves_in": 2}),
        ({"moves_total": 8}, {}, {"moves_total": 8}),
        ({"moves_total": 8}, {"moves_total": 4}, {"moves_total": 4}),
    ],
)
def test_a_move_is_under_the_limits_of_both_ends(source: Limits, destination: Limits, limits: Limits) -> None:
    assert limits_of(settings(**source), settings(**destination)) == limits


@pytest.mark.parametrize("status", ["preparing", "running", "running (post-copy)"])
def test_what_has_begun_counts_whoever_began_it(status: str) -> None:
    running = opened("a", 0, "kvm3", "kvm2", status)
    assert full(opened("b", 1), running, moves_in=1) == ["moves_in a|"]
    assert full(opened("b", 1), running, moves_in=2) == []
    assert full(opened("b", 1, "kvm3", "kvm4"), running, moves_out=1, moves_total=1) == ["moves_out a|", "moves_total a|"]
    assert full(opened("b", 1, "kvm1", "kvm4"), running, moves_in=1, moves_out=1) == []


@pytest.mark.parametrize("status", ["accepted", "scheduled", "queued", "error"])
def test_what_has_not_begun_or_stands_still_does_not_count(status: str) -> None:
    assert full(opened("b", 1), opened("a", 0, status=status), moves_in=1, moves_total=1) == []


def test_an_evacuation_neither_counts_nor_waits() -> None:
    started = {**opened("a", 0, status="pre-migrating"), "type": "evacuation"}
    assert full(opened("b", 1), started, moves_in=1, moves_total=1) == []


def test_those_that_came_before_go_first() -> None:
    first, second = opened("a", 1, "kvm3", limits={"moves_in": 2}), opened("b", 2, "kvm4", limits={"moves_in": 2})
    running = opened("x", 0, "kvm5", status="running")
    assert full(first, running, second, moves_in=2) == []
    assert full(second, running, first, moves_in=2) == ["moves_in x|a"]
    assert full(second, first, moves_in=2) == []
    same_time = opened("c", 1, "kvm6", limits={"moves_in": 2})
    assert sorted([full(first, running, same_time, moves_in=2), full(same_time, running, first, moves_in=2)]) == [
        [],
        ["moves_in x|" + "ca"[first["id"] < same_time["id"]]],
    ]


def test_a_host_that_is_full_does_not_hold_up_a_move_elsewhere() -> None:
    full_host = opened("x", 0, "kvm5", "kvm2", status="running")
    waiting = opened("a", 1, "kvm1", "kvm2", limits={"moves_in": 1, "moves_out": 1, "moves_total": 2})
    assert full(opened("b", 2, "kvm1", "kvm3"), full_host, waiting, moves_in=1, moves_out=1, moves_total=2) == []
    assert full(opened("b", 2, "kvm1", "kvm2"), full_host, waiting, moves_in=1) == ["moves_in x|"]


def test_three_wait_for_two_places() -> None:
    waiting = [opened(name, second, limits={"moves_total": 2}) for second, name in enumerate("abc")]
    assert [full(own, *(other for other in waiting if other is not own), moves_total=2) for own in waiting] == [[], [], ["moves_total |a,b"]]


@pytest.mark.parametrize("seen_at", ["2026-11-21T02:59:59.000Z", "2026-11-21T03:01:01.000Z", "yesterday", None, 5])
def test_a_run_that_is_silent_keeps_nobody_waiting(seen_at: t.Any) -> None:
    assert full(opened("b", 2), opened("a", 1, limits={"moves_in": 1}, seen_at=seen_at), moves_in=1) == []


@pytest.mark.parametrize("turn", [None, [], {}, {"limits": None}, {"limits": {"moves_in": "1"}, "seen_at": SEEN}, {"limits": [], "seen_at": SEEN}])
def test_what_was_edited_into_no_turn_waits_for_none(turn: t.Any) -> None:
    assert full(opened("b", 2), {**opened("a", 1), "turn": turn}, moves_in=1) == []


def test_hosts_are_known_by_uuid_and_by_name_where_there_is_none() -> None:
    running = opened("a", 0, "kvm3", "kvm2", "running")
    renamed = {**running, "destination": {**running["destination"], "host": "other-name"}}
    nameless = {**running, "destination": {**running["destination"], "host_uuid": None}}
    assert full(opened("b", 1), renamed, moves_in=1) == ["moves_in a|"]
    assert full({**opened("b", 1), "destination": nameless["destination"]}, nameless, moves_in=1) == ["moves_in a|"]


def test_the_sentence_says_who_is_in_the_way() -> None:
    running, first = opened("x", 0, "kvm5", status="running"), opened("a", 1, "kvm3", limits={"moves_in": 2})
    told = [str(one) for one in what_is_full([running, first], opened("b", 2), {"moves_in": 2, "moves_total": 0, "moves_out": 0}, NOW)]
    assert told == [
        "no move away from kvm1 is permitted; the limit is 0 (kvmfleet_scheduler.limits.moves_out)",
        "1 is moving to kvm2 (x) and 1 has come before (a); the limit is 2 (kvmfleet_scheduler.limits.moves_in)",
        "1 is moving in the fleet (x) and 1 has come before (a); the limit is 0 (kvmfleet_scheduler.limits.moves_total)",
    ]
