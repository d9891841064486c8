# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import SchedulerSettings
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, record, request, uuid_of


def test_capacity_is_the_unreserved_size_times_the_ratio() -> None:
    there = host(memory_mib=8192, cpus=16)
    assert (there.capacity_mib, there.capacity_vcpus) == (8192, 64)
    settings = {"ram_allocation_ratio": 1.5, "reserved_memory_mib": 704, "cpu_allocation_ratio": 2, "reserved_cpus": 1}
    there = host(memory_mib=8192, cpus=16, settings=settings)
    assert (there.capacity_mib, there.capacity_vcpus) == (12000, 30)


def test_settings_are_used_as_given_or_validated() -> None:
    assert host(settings=SchedulerSettings(ram_allocation_ratio=2.0)).capacity_mib == 16384
    with pytest.raises(InvalidArgument, match=r"kvmfleet_scheduler\.ram_allocation_ratio of kvm2"):
        host(settings={"ram_allocation_ratio": 0})


def test_only_active_domains_count_as_used() -> None:
    there = host("kvm2", domain("on", 1000, 2), domain("off", 2000, state="shut off", active=False))
    assert (there.used_mib, there.used_vcpus, set(there.guests)) == (1000, 2, {uuid_of("on")})


def test_a_domain_with_a_record_counts_once_with_the_larger_size() -> None:
    booked = [record("web1", "kvm1", "kvm2", memory_mib=300, vcpus=1), record("web2", "kvm1", "kvm2", memory_mib=700, vcpus=3)]
    there = host("kvm2", domain("web1", 256, 2), records=booked)
    assert (there.used_mib, there.used_vcpus) == (300 + 700, 2 + 3)


@pytest.mark.parametrize(
    ("name", "source", "destination", "status"),
    [("a", "kvm1", "kvm2", "failed"), ("a", "kvm1", "kvm2", "cancelled"), ("b", "kvm1", "kvm3", "running"), ("c", "kvm2", "kvm1", "running")],
)
def test_closed_records_and_those_to_other_hosts_do_not_count(name: str, source: str, destination: str, status: str) -> None:
    assert host(records=[record(name, source, destination, status)]).used_mib == 0


@pytest.mark.parametrize("status", ["scheduled", "queued", "preparing", "running", "running (post-copy)", "error", "pre-migrating"])
def test_every_unsettled_record_to_the_host_reserves_its_capacity(status: str) -> None:
    assert host(records=[record("a", "kvm1", "kvm2", status, memory_mib=700)]).used_mib == 700


def test_an_accepted_record_reserves_nothing() -> None:
    """Otherwise two runs that request the last capacity at the same moment would refuse each other."""
    assert host(records=[record("a", "kvm1", "kvm2", "accepted", memory_mib=700)]).used_mib == 0


@pytest.mark.parametrize("host_s_clock", ["2026-11-21T03:00:00.000Z", "2026-11-21T03:05:00.000Z", "2026-11-21T02:55:00.000Z", "soon", None])
def test_a_guest_that_arrived_after_the_facts_counts_whatever_the_host_clock(host_s_clock: str | None) -> None:
    arrived = record("a", "kvm1", "kvm2", "completed", memory_mib=700, updated_at="2026-11-21T03:00:01.000Z")
    assert host(records=[arrived], gathered_at=host_s_clock).used_mib == 700


def test_an_evacuated_guest_that_arrived_after_the_facts_counts() -> None:
    arrived = record("a", "kvm1", "kvm2", "done", memory_mib=700, type="evacuation", updated_at="2026-11-21T03:00:01.000Z")
    assert host(records=[arrived]).used_mib == 700


def test_a_guest_that_arrived_and_left_again_does_not_count() -> None:
    came = record("a", "kvm1", "kvm2", "completed", memory_mib=700, updated_at="2026-11-21T03:00:01.000Z")
    went = record("a", "kvm2", "kvm3", "completed", memory_mib=700, updated_at="2026-11-21T03:00:09.000Z")
    for records in ([came, went], [went, came]):
        assert host(records=records).used_mib == 0
        assert host("kvm3", records=records).used_mib == 700


def test_moves_of_a_guest_are_ordered_by_generation() -> None:
    """Two control nodes may have written them, of which one has a clock that is ahead."""
    came = record("a", "kvm1", "kvm2", "completed", memory_mib=700, generation=4, updated_at="2026-11-21T03:05:00.000Z")
    went = record("a", "kvm2", "kvm3", "completed", memory_mib=700, generation=5, updated_at="2026-11-21T03:00:09.000Z")
    for records in ([came, went], [went, came]):
        assert host(records=records).used_mib == 0
        assert host("kvm3", records=records).used_mib == 700


def test_a_record_matches_a_host_by_uuid_or_else_by_name() -> None:
    booked = record("web1", "kvm1", "kvm2", memory_mib=700)
    assert host("another-name", host_uuid=uuid_of("kvm2"), records=[booked]).used_mib == 700
    booked = dataclasses.replace(booked, destination=HostRef("kvm2", None, None))
    assert host("kvm2", records=[booked]).used_mib == 700
    assert host("kvm3", records=[booked]).used_mib == 0


def test_valid_numbers_of_a_damaged_request_count() -> None:
    spoilt = dataclasses.replace(record("web1", "kvm1", "kvm2"), request={"memory_mib": 700, "vcpus": "many", "pinning": 3, "group": [1]})
    there = host(records=[spoilt])
    assert (there.used_mib, there.used_vcpus) == (700, 0)
    assert host(records=[dataclasses.replace(spoilt, request={})]).used_mib == 0


def test_started_moves_are_listed_by_domain() -> None:
    records = [record("a", "kvm1", "kvm2", "running"), record("b", "kvm2", "kvm1", "preparing"), record("c", "kvm1", "kvm2", "queued")]
    there = host("kvm2", domain("d", job="incoming migration"), domain("e", job="outgoing migration"), records=records)
    assert there.moves_in == {uuid_of("a"), uuid_of("d")}
    assert there.moves_out == {uuid_of("b"), uuid_of("e")}


def test_a_record_that_a_newer_one_has_superseded_does_not_count() -> None:
    """It stays open until its hosts were cleaned up, which may be days later."""
    given_up = record("a", "kvm1", "kvm2", "running", memory_mib=700).supersede("newer")
    assert (host(records=[given_up]).used_mib, host(records=[given_up]).moves_in, host("kvm1", records=[given_up]).moves_out) == (0, set(), set())


def test_an_unasked_or_silent_host_has_the_reason() -> None:
    assert HostState.from_facts("kvm2", None).unanswered == "there are no facts for it"
    there = HostState.from_facts(
        "kvm2", HostFacts(answered=False, msg="no route"), entry=host_entry({"state": "maintenance", "reason": "disk"}), settings={"labels": ["ssd"]}
    )
    assert (there.unanswered, there.state, there.state_reason, there.settings.labels) == ("no route", "maintenance", "disk", {"ssd"})


def test_adding_a_domain_returns_a_new_host_state() -> None:
    there = host("kvm2", domain("db1", 512, 2))
    later = there.with_domain(request(memory_mib=256, vcpus=3))
    assert (there.used_mib, later.used_mib, later.used_vcpus) == (512, 768, 5)
    assert later.without_domain(uuid_of("web1")) == there


def test_a_domain_added_twice_counts_once_with_the_larger_size() -> None:
    there = host().with_domain(request(memory_mib=256, vcpus=3)).with_domain(request(memory_mib=512, vcpus=1))
    assert (there.used_mib, there.used_vcpus) == (512, 3)


def test_removing_a_domain_frees_its_capacity() -> None:
    there = host("kvm2", domain("db1", 512, 2), domain("db2", 100, 1)).without_domain(uuid_of("db1"))
    assert (there.used_mib, there.used_vcpus, there.free_mib()) == (100, 1, 8092)
    assert there.without_domain("nobody") is there


def test_free_capacity_for_a_domain_excludes_the_domain_itself() -> None:
    there = host("kvm2", domain("db1", 512, 2))
    assert (there.free_mib(), there.free_mib(uuid_of("db1"))) == (7680, 8192)
    assert (there.free_vcpus(), there.free_vcpus(uuid_of("db1"))) == (62, 64)
