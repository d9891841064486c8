# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The admission of moves, over constructed records."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.admission import MoveLimits, find_full_limits, limits_between
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import SchedulerSettings
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import record

NOW = datetime.datetime(2026, 11, 21, 3, 0, 30, tzinfo=datetime.UTC)
SEEN = "2026-11-21T03:00:25.000Z"


def settings(**limits: int) -> SchedulerSettings:
    return SchedulerSettings.from_variable({"limits": limits}, "kvm1")


def opened_record(name: str, second: int, source: str = "kvm1", destination: str = "kvm2", status: str = "queued", **turn: t.Any) -> MoveRecord:
    """A record that was opened at a second; with limits it waits for its turn."""
    made = record(name, source, destination, status, created_at=f"2026-11-21T03:00:{second:02d}.000Z")
    return with_turn(made, {"since": SEEN, "until": None, "seen_at": SEEN, "waits_for": "", **turn}) if turn else made


def with_turn(made: MoveRecord, turn: t.Any) -> MoveRecord:
    """The record as it is read with this admission."""
    return decode(MoveRecord, {**encode(made), "turn": turn})


def full_limits(own: MoveRecord, *others: MoveRecord, **limits: int) -> list[str]:
    """The limits for which it has to wait, and who is in its way: those that move before a bar, those that go first behind it."""
    found = find_full_limits([*others, own], own, limits, NOW)
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
def test_limits_of_source_and_destination_apply_to_a_move(source: MoveLimits, destination: MoveLimits, limits: MoveLimits) -> None:
    assert limits_between(settings(**source), settings(**destination)) == limits


@pytest.mark.parametrize("status", ["preparing", "running", "running (post-copy)"])
def test_started_moves_of_every_run_count(status: str) -> None:
    running = opened_record("a", 0, "kvm3", "kvm2", status)
    assert full_limits(opened_record("b", 1), running, moves_in=1) == ["moves_in a|"]
    assert full_limits(opened_record("b", 1), running, moves_in=2) == []
    assert full_limits(opened_record("b", 1, "kvm3", "kvm4"), running, moves_out=1, moves_total=1) == ["moves_out a|", "moves_total a|"]
    assert full_limits(opened_record("b", 1, "kvm1", "kvm4"), running, moves_in=1, moves_out=1) == []


@pytest.mark.parametrize("status", ["accepted", "scheduled", "queued", "error"])
def test_queued_moves_and_errors_do_not_count(status: str) -> None:
    assert full_limits(opened_record("b", 1), opened_record("a", 0, status=status), moves_in=1, moves_total=1) == []


def test_an_evacuation_does_not_count_for_limits_of_moves() -> None:
    started = dataclasses.replace(opened_record("a", 0, status="pre-migrating"), type="evacuation")
    assert full_limits(opened_record("b", 1), started, moves_in=1, moves_total=1) == []


def test_a_move_that_an_evacuation_has_superseded_does_not_count() -> None:
    given_up = opened_record("a", 0, status="running").supersede("newer")
    assert full_limits(opened_record("b", 1), given_up, moves_in=1, moves_out=1, moves_total=1) == []


def test_earlier_waiting_moves_go_first() -> None:
    first, second = opened_record("a", 1, "kvm3", limits={"moves_in": 2}), opened_record("b", 2, "kvm4", limits={"moves_in": 2})
    running = opened_record("x", 0, "kvm5", status="running")
    assert full_limits(first, running, second, moves_in=2) == []
    assert full_limits(second, running, first, moves_in=2) == ["moves_in x|a"]
    assert full_limits(second, first, moves_in=2) == []
    same_time = opened_record("c", 1, "kvm6", limits={"moves_in": 2})
    assert sorted([full_limits(first, running, same_time, moves_in=2), full_limits(same_time, running, first, moves_in=2)]) == [
        [],
        ["moves_in x|" + "ca"[first.record_id < same_time.record_id]],
    ]


def test_a_full_host_does_not_delay_moves_to_another() -> None:
    full_host = opened_record("x", 0, "kvm5", "kvm2", status="running")
    waiting = opened_record("a", 1, "kvm1", "kvm2", limits={"moves_in": 1, "moves_out": 1, "moves_total": 2})
    assert full_limits(opened_record("b", 2, "kvm1", "kvm3"), full_host, waiting, moves_in=1, moves_out=1, moves_total=2) == []
    assert full_limits(opened_record("b", 2, "kvm1", "kvm2"), full_host, waiting, moves_in=1) == ["moves_in x|"]


def test_two_of_three_waiting_moves_are_admitted_under_a_limit_of_two() -> None:
    waiting = [opened_record(name, second, limits={"moves_total": 2}) for second, name in enumerate("abc")]
    assert [full_limits(own, *(other for other in waiting if other is not own), moves_total=2) for own in waiting] == [[], [], ["moves_total |a,b"]]


@pytest.mark.parametrize("seen_at", ["2026-11-21T02:59:59.000Z", "2026-11-21T03:01:01.000Z", "yesterday", None, 5])
def test_a_silent_run_does_not_delay_others(seen_at: t.Any) -> None:
    assert full_limits(opened_record("b", 2), opened_record("a", 1, limits={"moves_in": 1}, seen_at=seen_at), moves_in=1) == []


@pytest.mark.parametrize("turn", [None, [], {}, {"limits": None}, {"limits": {"moves_in": "1"}, "seen_at": SEEN}, {"limits": [], "seen_at": SEEN}])
def test_an_invalid_turn_does_not_delay_others(turn: t.Any) -> None:
    assert full_limits(opened_record("b", 2), with_turn(opened_record("a", 1), turn), moves_in=1) == []


def test_hosts_of_records_are_matched_by_uuid_or_else_by_name() -> None:
    running = opened_record("a", 0, "kvm3", "kvm2", "running")
    renamed, nameless = (
        dataclasses.replace(running, destination=dataclasses.replace(running.destination, **change)) for change in ({"host": "other-name"}, {"host_uuid": None})
    )
    assert full_limits(opened_record("b", 1), renamed, moves_in=1) == ["moves_in a|"]
    assert full_limits(dataclasses.replace(opened_record("b", 1), destination=nameless.destination), nameless, moves_in=1) == ["moves_in a|"]


def test_the_reason_names_the_moves_ahead_and_the_limit() -> None:
    running, first = opened_record("x", 0, "kvm5", status="running"), opened_record("a", 1, "kvm3", limits={"moves_in": 2})
    told = [str(one) for one in find_full_limits([running, first], opened_record("b", 2), {"moves_in": 2, "moves_total": 0, "moves_out": 0}, NOW)]
    assert told == [
        "no move away from kvm1 is permitted; the limit is 0 (kvmfleet_scheduler.limits.moves_out)",
        "1 is moving to kvm2 (x) and 1 is queued before it (a); the limit is 2 (kvmfleet_scheduler.limits.moves_in)",
        "1 is moving in the fleet (x) and 1 is queued before it (a); the limit is 0 (kvmfleet_scheduler.limits.moves_total)",
    ]
