# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.host_state import HostState, is_towards
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import GIB, record, uuid_of

MIB = 1024**2


def survey(*roster: dict[str, object], total: int = 8 * GIB) -> dict[str, object]:
    return {"answered": True, "host_uuid": uuid_of("kvm2"), "memory": {"total_bytes": total}, "roster": list(roster)}


def entry(name: str, mib: int, active: bool = True) -> dict[str, object]:
    return {"uuid": uuid_of(name), "name": name, "active": active, "memory_bytes": mib * MIB, "vcpus": 1}


def test_capacity_is_what_is_not_reserved_times_the_ratio() -> None:
    assert HostState.from_survey("kvm2", survey()).capacity_mib == 8192 - 512
    settings = {"ram_allocation_ratio": 1.5, "reserved_memory_mib": 1024}
    assert HostState.from_survey("kvm2", survey(), settings=settings).capacity_mib == int((8192 - 1024) * 1.5)


def test_only_active_domains_take_memory() -> None:
    host = HostState.from_survey("kvm2", survey(entry("on", 1000), entry("off", 2000, active=False)))
    assert host.used_mib() == 1000


def test_a_domain_that_is_there_and_has_a_record_counts_once_with_the_larger_need() -> None:
    booked = [record("web1", "kvm1", "kvm2", memory_mib=300), record("web2", "kvm1", "kvm2", "scheduled", memory_mib=700)]
    host = HostState.from_survey("kvm2", survey(entry("web1", 256)), booked)
    assert host.used_mib() == 300 + 700


def test_records_that_are_closed_or_go_elsewhere_take_nothing() -> None:
    booked = [record("a", "kvm1", "kvm2", "completed"), record("b", "kvm1", "kvm3"), record("c", "kvm2", "kvm1")]
    assert HostState.from_survey("kvm2", survey(), booked).used_mib() == 0


def test_a_domain_does_not_stand_in_its_own_way() -> None:
    host = HostState.from_survey("kvm2", survey(), [record("web1", "kvm1", "kvm2", "accepted", memory_mib=700)])
    assert host.free_mib(uuid_of("web1")) == host.capacity_mib


def test_a_record_without_the_host_s_uuid_is_matched_by_name() -> None:
    booked = record("web1", "kvm1", "kvm2")
    booked["destination"]["host_uuid"] = None
    assert is_towards(booked, "kvm2", uuid_of("kvm2"))
    assert not is_towards(booked, "kvm3", uuid_of("kvm3"))


def test_the_uuid_decides_over_the_name() -> None:
    assert is_towards(record("web1", "kvm1", "kvm2"), "another-name", uuid_of("kvm2"))


def test_a_host_that_did_not_answer_says_why_and_keeps_its_state() -> None:
    host = HostState.from_survey("kvm2", {"answered": False, "msg": "no route"}, entry={"state": "maintenance", "reason": "disk"})
    assert (host.unanswered, host.state, host.state_reason) == ("no route", "maintenance", "disk")


def test_a_host_with_a_domain_placed_on_it_is_another_value() -> None:
    host = HostState.from_survey("kvm2", survey())
    later = host.taking(Request(uuid_of("web1"), "web1", "kvm1", uuid_of("kvm1"), 256))
    assert (host.used_mib(), later.used_mib()) == (0, 256)


@pytest.mark.parametrize("value", ["much", -1, True, None, float("inf"), float("nan")])
def test_a_ratio_that_is_no_number_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"kvmfleet_scheduler\.ram_allocation_ratio of kvm2"):
        HostState.from_survey("kvm2", survey(), settings={"ram_allocation_ratio": value})
