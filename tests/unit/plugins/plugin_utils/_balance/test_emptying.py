# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import LIVE_MIGRATION, SCHEDULED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.emptying import Emptying, find_emptiable
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.balanced import host_ref
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import Document, guest, host, hosts, inputs_of, states_of


def empty(facts: dict[str, Document], count: t.Any) -> Emptying:
    inputs = inputs_of(facts)
    return find_emptiable(states_of(inputs), inputs, BalanceOptions(), count)


def fleet(*memory_mib: int, size: int = 16384) -> dict[str, Document]:
    """Hosts of one size, each with one guest of this size, or none."""
    named = [(f"kvm{number + 1}", mib) for number, mib in enumerate(memory_mib)]
    return hosts(*(host(name, *([guest(f"g-{name}", 0.1, mib)] if mib else []), memory_mib=size) for name, mib in named))


def test_the_emptiest_hosts_come_first_and_their_guests_find_a_place() -> None:
    found = empty(fleet(4096, 2048, 4096, 4096), 1)
    assert [one.host for one in found.hosts] == ["kvm2"]
    ((name, destination),) = found.hosts[0].moves
    assert name == "g-kvm2"
    assert destination != "kvm2"


def test_a_host_without_guests_is_empty_already() -> None:
    assert empty(fleet(0, 1024, 1024), 1).hosts[0].moves == ()


def test_no_more_hosts_are_emptied_than_leave_room_for_a_loss() -> None:
    # Two hosts hold all guests, but the loss of one of them leaves room for one guest of the four.
    found = empty(fleet(8192, 8192, 8192, 8192), 3)
    assert [one.host for one in found.hosts] == ["kvm1"]
    assert "could not be compensated" in found.refused["kvm2"]


def test_a_guest_without_another_place_keeps_its_host() -> None:
    found = empty(fleet(15000, 15000, 15000), 1)
    assert found.hosts == ()
    assert found.refused["kvm1"] == "There is no other place for g-kvm1."


def test_a_guest_that_stays_keeps_its_host() -> None:
    facts = hosts(host("kvm1", guest("left", 0.1, 1024, drain="leave")), *(host(f"kvm{n}", guest(f"g{n}", 0.1, 2048)) for n in (2, 3, 4)))
    found = empty(facts, 1)
    assert [one.host for one in found.hosts] == ["kvm2"]
    assert found.refused["kvm1"] == "left cannot leave it."


def test_guests_that_must_be_apart_stay_apart() -> None:
    group = {"name": "apart", "policy": "anti-affinity"}
    facts = hosts(*(host(f"kvm{n}", guest(f"g{n}", 0.1, 1024, group=group)) for n in (1, 2, 3)))
    assert empty(facts, 1).hosts == ()


def test_the_group_of_a_guest_that_stays_needs_a_place_after_a_loss() -> None:
    # Without kvm1, the loss of kvm2 or kvm3 would leave both members on one host.
    group = {"name": "apart", "policy": "anti-affinity"}
    members = [guest(f"m{number}", 0.1, 4096, group=group, drain="leave") for number in (2, 3)]
    found = empty(hosts(host("kvm1", guest("g1", 0.1, 1024)), host("kvm2", members[0]), host("kvm3", members[1])), 1)
    assert found.hosts == ()
    assert found.refused["kvm1"] == "Without it, the loss of kvm2, kvm3 could not be compensated: their domains would have no place."


def test_the_storage_of_a_guest_that_stays_needs_a_place_after_a_loss() -> None:
    # Only kvm1 and kvm2 see the storage of the guest that stays.
    mount = {"path": "/srv/other", "kind": "nfs4", "store": "nfs4:nas:/other", "capacity_bytes": 2**44, "available_bytes": 2**43}
    disks = [f.disk("vda", source="/srv/other/a.qcow2", store="nfs4:nas:/other/a.qcow2")]
    facts = hosts(
        host("kvm1", guest("g1", 0.1, 1024)), host("kvm2", guest("stays", 0.1, 4096, drain="leave", disks=disks)), host("kvm3", guest("g3", 0.1, 8192))
    )
    for name in ("kvm1", "kvm2"):
        facts[name]["mounts"] = [*facts[name]["mounts"], mount]
    found = empty(facts, 2)
    assert [one.host for one in found.hosts] == ["kvm3"]
    assert found.refused["kvm1"] == "Without it, the loss of kvm2 could not be compensated: its domains would have no place."


def test_a_guest_that_no_other_host_could_start_is_lost_with_its_host_anyway() -> None:
    local = guest("local", 0.1, 1024, drain="leave", disks=[f.disk("vda", shared=False)])
    facts = hosts(host("kvm1", guest("g1", 0.1, 1024)), host("kvm2", local), *(host(f"kvm{n}", guest(f"g{n}", 0.1, 2048)) for n in (3, 4)))
    found = empty(facts, 1)
    assert [one.host for one in found.hosts] == ["kvm1"]


def test_a_guest_that_is_on_its_way_keeps_its_destination() -> None:
    facts = fleet(1024, 2048, 4096, 4096)
    coming = new_record(LIVE_MIGRATION, DomainRef(f.uuid_of("g-kvm2"), "g-kvm2"), host_ref("kvm2"), host_ref("kvm1"), f.request(2048), by="ann")
    inputs = inputs_of(facts, records=[coming.advance(SCHEDULED, "ann")])
    found = find_emptiable(states_of(inputs), inputs, BalanceOptions(), 1)
    assert found.refused["kvm1"] == "g-kvm2 cannot leave it."


@pytest.mark.parametrize("count", [-1, 2, True, "1"])
def test_an_impossible_number_is_refused(count: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="balance_empty is"):
        empty(fleet(1024, 1024), count)


def test_memory_in_huge_pages_counts_for_the_order_in_which_hosts_are_tried() -> None:
    facts = fleet(0, 4096, 4096, 4096, size=32768)
    in_pages = guest("g-kvm1", 0.1, 8192, hugepages=[{"size_kib": 2048, "mib": 8192}])
    facts["kvm1"] = host("kvm1", in_pages, memory_mib=32768)
    for name, one in facts.items():
        pages = [{"size_kib": 2048, "total": 4096, "free": 0 if name == "kvm1" else 4096}]
        one["numa_cells"] = [{**one["numa_cells"][0], "pages": pages}]
    assert [one.host for one in empty(facts, 1).hosts] == ["kvm2"]
