# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many hosts may be acted on in a window of time."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.brake import Slot, SlotRequest, release_slot, slots_in_window, take_slot

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.timezone.utc)
MINUTE = datetime.timedelta(minutes=1)


def slot_request(host: str, hosts: int = 1, minutes: int = 60, reaction: str = "evacuate") -> SlotRequest:
    return SlotRequest(reaction, host, hosts, minutes)


def test_a_second_host_is_refused_within_the_window() -> None:
    places = take_slot([], slot_request("kvm1"), NOON)
    assert places == [Slot("evacuate", "kvm1", NOON)]
    with pytest.raises(Conflict, match="kvm1") as refused:
        take_slot(places, slot_request("kvm2"), NOON + 59 * MINUTE)
    assert "Nothing was done for kvm2" in str(refused.value)
    assert "13:00" in str(refused.value)


def test_the_same_host_keeps_its_slot_and_its_time() -> None:
    places = take_slot([], slot_request("kvm1"), NOON)
    assert take_slot(places, slot_request("kvm1"), NOON + 30 * MINUTE) == places


def test_a_slot_ends_with_the_window() -> None:
    places = take_slot([], slot_request("kvm1"), NOON)
    assert [place.host for place in take_slot(places, slot_request("kvm2"), NOON + 60 * MINUTE)] == ["kvm1", "kvm2"]
    assert slots_in_window(places, slot_request("kvm2"), NOON + 60 * MINUTE) == []


def test_a_clock_that_was_set_back_frees_no_slot() -> None:
    places = take_slot([], slot_request("kvm1"), NOON)
    with pytest.raises(Conflict):
        take_slot(places, slot_request("kvm2"), NOON - 5000 * MINUTE)


def test_reactions_have_separate_slots() -> None:
    places = take_slot([], slot_request("kvm1", reaction="recover"), NOON)
    assert len(take_slot(places, slot_request("kvm2"), NOON)) == 2


def test_a_released_slot_is_free() -> None:
    places = take_slot([], slot_request("kvm1"), NOON)
    assert release_slot(places, slot_request("kvm2")) == places
    assert take_slot(release_slot(places, slot_request("kvm1")), slot_request("kvm2"), NOON)


@pytest.mark.parametrize(
    ("host", "hosts", "minutes", "named"),
    [("", 1, 60, "host"), ("a\x1b[2J", 1, 60, "host"), ("kvm1", 0, 60, "hosts"), ("kvm1", 1, 0, "window_minutes"), ("kvm1", 1, 10**6, "window_minutes")],
)
def test_an_invalid_host_or_limit_is_refused(host: str, hosts: int, minutes: int, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        slot_request(host, hosts, minutes)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5000)), max_size=40), st.integers(1, 4), st.integers(1, 600))
def test_never_more_hosts_than_allowed_in_any_window(tries: list[tuple[int, int]], hosts: int, minutes: int) -> None:
    places: list[Slot] = []
    began: list[tuple[datetime.datetime, str]] = []
    for number, later in sorted(tries, key=lambda one: one[1]):
        now = NOON + later * MINUTE
        before = places
        try:
            places = take_slot(before, slot_request(f"kvm{number}", hosts, minutes), now)
        except Conflict:
            continue
        if places != before:
            began.append((now, f"kvm{number}"))
    for start, _host in began:
        within = {host for at, host in began if start <= at < start + minutes * MINUTE}
        assert len(within) <= hosts
