# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.host_state import HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.settings import SchedulerSettings
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, record, request, uuid_of


def test_capacity_is_what_is_not_reserved_times_the_ratio() -> None:
    there = host(memory_mib=8192, cpus=16)
    assert (there.capacity_mib, there.capacity_vcpus) == (8192, 64)
    settings = {"ram_allocation_ratio": 1.5, "reserved_memory_mib": 704, "cpu_allocation_ratio": 2, "reserved_cpus": 1}
    there = host(memory_mib=8192, cpus=16, settings=settings)
    assert (there.capacity_mib, there.capacity_vcpus) == (12000, 30)


def test_settings_are_taken_as_they_are_or_read_and_checked() -> None:
    assert host(settings=SchedulerSettings(ram_allocation_ratio=2.0)).capacity_mib == 16384
    with pytest.raises(InvalidArgument, match=r"kvmfleet_scheduler\.ram_allocation_ratio of kvm2"):
        host(settings={"ram_allocation_ratio": 0})


def test_only_active_domains_count() -> None:
    there = host("kvm2", domain("on", 1000, 2), domain("off", 2000, state="shut off", active=False))
    assert (there.used_mib, there.used_vcpus, set(there.guests)) == (1000, 2, {uuid_of("on")})


def test_a_domain_that_is_there_and_has_a_record_counts_once_with_the_larger_need() -> None:
    booked = [record("web1", "kvm1", "kvm2", memory_mib=300, vcpus=1), record("web2", "kvm1", "kvm2", memory_mib=700, vcpus=3)]
    there = host("kvm2", domain("web1", 256, 2), records=booked)
    assert (there.used_mib, there.used_vcpus) == (300 + 700, 2 + 3)


@pytest.mark.parametrize(
    ("name", "source", "destination", "status"),
    [("a", "kvm1", "kvm2", "failed"), ("a", "kvm1", "kvm2", "cancelled"), ("b", "kvm1", "kvm3", "running"), ("c", "kvm2", "kvm1", "running")],
)
def test_records_that_are_closed_or_go_elsewhere_take_nothing(name: str, source: str, destination: str, status: str) -> None:
    assert host(records=[record(name, source, destination, status)]).used_mib == 0


@pytest.mark.parametrize("status", ["scheduled", "queued", "preparing", "running", "running (post-copy)", "error", "pre-migrating"])
def test_every_unsettled_record_towards_the_host_books_its_room(status: str) -> None:
    assert host(records=[record("a", "kvm1", "kvm2", status, memory_mib=700)]).used_mib == 700


def test_what_was_only_accepted_has_booked_nothing() -> None:
    """Else two runs that ask for the last room at the same moment would refuse each other."""
    assert host(records=[record("a", "kvm1", "kvm2", "accepted", memory_mib=700)]).used_mib == 0


@pytest.mark.parametrize("host_s_clock", ["2026-11-21T03:00:00.000Z", "2026-11-21T03:05:00.000Z", "2026-11-21T02:55:00.000Z", "soon", None])
def test_a_guest_that_arrived_since_the_host_was_asked_is_not_forgotten_whatever_its_clock_says(host_s_clock: str | None) -> None:
    arrived = record("a", "kvm1", "kvm2", "completed", memory_mib=700, updated_at="2026-11-21T03:00:01.000Z")
    assert host(records=[arrived], gathered_at=host_s_clock).used_mib == 700


def test_an_evacuated_guest_that_arrived_is_not_forgotten_either() -> None:
    arrived = record("a", "kvm1", "kvm2", "done", memory_mib=700, type="evacuation", updated_at="2026-11-21T03:00:01.000Z")
    assert host(records=[arrived]).used_mib == 700


def test_a_guest_that_arrived_and_left_again_takes_nothing() -> None:
    came = record("a", "kvm1", "kvm2", "completed", memory_mib=700, updated_at="2026-11-21T03:00:01.000Z")
    went = record("a", "kvm2", "kvm3", "completed", memory_mib=700, updated_at="2026-11-21T03:00:09.000Z")
    for records in ([came, went], [went, came]):
        assert host(records=records).used_mib == 0
        assert host("kvm3", records=records).used_mib == 700


def test_the_order_of_a_guest_s_moves_is_that_of_their_generations() -> None:
    """Two control nodes may have written them, of which one has a clock that is ahead."""
    came = record("a", "kvm1", "kvm2", "completed", memory_mib=700, generation=4, updated_at="2026-11-21T03:05:00.000Z")
    went = record("a", "kvm2", "kvm3", "completed", memory_mib=700, generation=5, updated_at="2026-11-21T03:00:09.000Z")
    for records in ([came, went], [went, came]):
        assert host(records=records).used_mib == 0
        assert host("kvm3", records=records).used_mib == 700


def test_a_record_without_the_host_s_uuid_is_matched_by_name_and_else_the_uuid_decides() -> None:
    booked = record("web1", "kvm1", "kvm2", memory_mib=700)
    assert host("another-name", host_uuid=uuid_of("kvm2"), records=[booked]).used_mib == 700
    booked["destination"]["host_uuid"] = None
    assert host("kvm2", records=[booked]).used_mib == 700
    assert host("kvm3", records=[booked]).used_mib == 0


def test_of_a_request_that_was_spoilt_the_numbers_count_that_are_some() -> None:
    spoilt = {**record("web1", "kvm1", "kvm2"), "request": {"memory_mib": 700, "vcpus": "many", "pinning": 3, "group": [1]}}
    there = host(records=[spoilt])
    assert (there.used_mib, there.used_vcpus) == (700, 0)
    assert host(records=[{**spoilt, "request": {}}]).used_mib == 0


def test_moves_that_have_begun_are_known_by_domain() -> None:
    records = [record("a", "kvm1", "kvm2", "running"), record("b", "kvm2", "kvm1", "preparing"), record("c", "kvm1", "kvm2", "queued")]
    there = host("kvm2", domain("d", job="incoming migration"), domain("e", job="outgoing migration"), records=records)
    assert there.moves_in == {uuid_of("a"), uuid_of("d")}
    assert there.moves_out == {uuid_of("b"), uuid_of("e")}


def test_a_host_that_was_not_asked_or_did_not_answer_says_so() -> None:
    assert HostState.of("kvm2", None).unanswered == "nothing is known of it"
    there = HostState.of("kvm2", {"answered": False, "msg": "no route"}, entry={"state": "maintenance", "reason": "disk"}, settings={"labels": ["ssd"]})
    assert (there.unanswered, there.state, there.state_reason, there.settings.labels) == ("no route", "maintenance", "disk", {"ssd"})


def test_a_host_with_a_domain_placed_on_it_is_another_value() -> None:
    there = host("kvm2", domain("db1", 512, 2))
    later = there.taking(request(memory_mib=256, vcpus=3))
    assert (there.used_mib, later.used_mib, later.used_vcpus) == (512, 768, 5)
    assert later.without(uuid_of("web1")) == there


def test_taking_a_domain_twice_counts_it_once_with_the_larger_need() -> None:
    there = host().taking(request(memory_mib=256, vcpus=3)).taking(request(memory_mib=512, vcpus=1))
    assert (there.used_mib, there.used_vcpus) == (512, 3)


def test_a_domain_that_leaves_takes_its_room_with_it() -> None:
    there = host("kvm2", domain("db1", 512, 2), domain("db2", 100, 1)).without(uuid_of("db1"))
    assert (there.used_mib, there.used_vcpus, there.free_mib()) == (100, 1, 8092)
    assert there.without("nobody") is there


def test_what_is_free_for_a_domain_is_counted_without_it() -> None:
    there = host("kvm2", domain("db1", 512, 2))
    assert (there.free_mib(), there.free_mib(uuid_of("db1"))) == (7680, 8192)
    assert (there.free_vcpus(), there.free_vcpus(uuid_of("db1"))) == (62, 64)
