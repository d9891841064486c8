# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many hosts may be acted on in a window of time."""

from __future__ import annotations

import datetime
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import (
    ISOLATED,
    SILENT_TOGETHER,
    UNREADABLE,
    BrakeDocument,
    BrakeSlot,
    new_brake,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.brake import (
    Slot,
    SlotRequest,
    disarm_reactions,
    note_isolation,
    note_unreadable,
    release_slot,
    request_slot,
    return_slot,
    slots_in_window,
    take_slot,
    with_slots,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.brake_notices import is_in_brake, make_brake_events

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.timezone.utc)
MINUTE = datetime.timedelta(minutes=1)


LEDGER_ID = "33333333-0000-4000-8000-000000000001"
HOST_ID = "11111111-0000-4000-8000-000000000001"
EMPTY = new_brake(LEDGER_ID)


def slot_request(host: str, hosts: int = 1, minutes: int = 60, reaction: str = "evacuate", silent: t.Sequence[str] = ()) -> SlotRequest:
    return SlotRequest(reaction, host, hosts, minutes, tuple(silent))


def kinds_of(before: BrakeDocument, after: BrakeDocument) -> list[str]:
    return [str(event["type"]).removeprefix("io.github.kvmfleet.migration.") for event in make_brake_events(before, after, LEDGER_ID)]


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


def test_more_silent_hosts_than_allowed_stop_the_reaction_for_all_with_one_notice() -> None:
    """A switch that takes three hosts: whichever reaction comes first reports it, on whatever control node."""
    silent = ("kvm1", "kvm2", "kvm3")
    brake, notices = EMPTY, []
    for number, host in enumerate(silent):
        now = NOON + number * MINUTE
        decision = request_slot(brake, slot_request(host, hosts=2, silent=silent), now, "ann@control1")
        assert decision.refusal
        assert "3 hosts are silent at once (kvm1, kvm2, kvm3)" in decision.refusal.message
        assert decision.after.slots == ()
        notices += kinds_of(brake, decision.after)
        brake = decision.after
    assert notices == ["brake.held"]
    (incident,) = brake.incidents
    assert (incident.kind, incident.hosts, incident.since) == (SILENT_TOGETHER, silent, "2026-11-21T12:00:00.000Z")
    assert incident.at == "2026-11-21T12:02:00.000Z"


def test_an_incident_ends_with_the_window_or_when_a_slot_is_taken() -> None:
    first = request_slot(EMPTY, slot_request("kvm1", silent=["kvm2"]), NOON, "ann").after
    within = request_slot(first, slot_request("kvm2", silent=["kvm1", "kvm3"]), NOON + 59 * MINUTE, "ann").after
    assert (len(within.incidents), within.incidents[0].hosts) == (1, ("kvm1", "kvm2", "kvm3"))
    later = request_slot(within, slot_request("kvm1", silent=["kvm2"]), NOON + 119 * MINUTE, "ann").after
    assert kinds_of(within, later) == ["brake.held"]
    # The others are back: the one that is really dead is handled.
    alone = request_slot(within, slot_request("kvm1", silent=["kvm1"]), NOON + 60 * MINUTE, "ann")
    assert (alone.refusal, [slot.host for slot in alone.after.slots], alone.after.incidents) == (None, ["kvm1"], ())
    again = request_slot(return_slot(alone.after, slot_request("kvm1")).after, slot_request("kvm1", silent=["kvm2"]), NOON + 61 * MINUTE, "ann").after
    assert kinds_of(alone.after, again) == ["brake.held"]


def test_other_hosts_are_another_incident() -> None:
    first = request_slot(EMPTY, slot_request("kvm1", silent=["kvm2"]), NOON, "ann").after
    second = request_slot(first, slot_request("kvm8", silent=["kvm9"]), NOON + MINUTE, "ann").after
    assert kinds_of(first, second) == ["brake.held"]


def test_hosts_that_die_beside_one_with_unreadable_documents_have_a_notice_of_their_own() -> None:
    """The first notice says nothing of kvm2, for which nothing is done either."""
    first = note_unreadable(EMPTY, slot_request("kvm1"), NOON, "ann", ["web"])
    assert (first.after.incidents[0].kind, kinds_of(EMPTY, first.after)) == (UNREADABLE, ["brake.held"])
    again = note_unreadable(first.after, slot_request("kvm1"), NOON + MINUTE, "ann", ["web"]).after
    assert kinds_of(first.after, again) == []
    second = request_slot(again, slot_request("kvm2", silent=["kvm1"]), NOON + 2 * MINUTE, "ann")
    assert (second.refusal is None, kinds_of(again, second.after)) == (False, ["brake.held"])


def test_a_host_that_has_a_slot_keeps_it_when_others_fall_silent() -> None:
    """Another control node continues an evacuation that has begun."""
    brake = request_slot(EMPTY, slot_request("kvm1"), NOON, "ann@control1").after
    again = request_slot(brake, slot_request("kvm1", silent=["kvm1", "kvm2"]), NOON + MINUTE, "bob@control2")
    assert (again.refusal, again.after) == (None, brake)


def test_an_isolated_host_is_noted_with_one_notice_and_takes_no_slot() -> None:
    request = slot_request("kvm1")
    first = note_isolation(EMPTY, request, NOON, "ann", "its lease is renewed", HOST_ID).after
    second = note_isolation(first, request, NOON + MINUTE, "ann", "its lease is renewed", HOST_ID).after
    assert (kinds_of(EMPTY, first), kinds_of(first, second)) == (["host.isolated"], [])
    assert (first.slots, first.incidents[0].kind) == ((), ISOLATED)
    (event,) = make_brake_events(None, first, LEDGER_ID)
    assert (event["subject"], event["data"]["detail"]) == (HOST_ID, "its lease is renewed")
    assert is_in_brake("host.isolated", event["time"], second)
    assert not is_in_brake("brake.held", event["time"], second)
    assert not is_in_brake("host.isolated", event["time"], EMPTY)


def test_a_disarmed_brake_gives_no_slot_and_notes_no_incident() -> None:
    disarmed = disarm_reactions(EMPTY, NOON, "ann@control1").after
    assert disarm_reactions(disarmed, NOON + MINUTE, "bob").after == disarmed
    with pytest.raises(Forbidden, match="ann@control1 disarmed them"):
        request_slot(disarmed, slot_request("kvm1", silent=["kvm2"]), NOON, "ann")


def test_what_a_later_version_wrote_into_a_slot_is_kept() -> None:
    slot = BrakeSlot("evacuate", "kvm1", "2026-11-21T12:00:00.000Z", {"later": 1})
    document = BrakeDocument(LEDGER_ID, (slot,), ())
    after = request_slot(document, slot_request("kvm2", hosts=2), NOON, "ann").after
    assert after.slots[0] == slot
    assert with_slots(document, []).slots == ()


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
