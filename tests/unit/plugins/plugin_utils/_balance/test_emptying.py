# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.emptying import Emptying, find_emptiable
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
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


@pytest.mark.parametrize("count", [-1, 2, True, "1"])
def test_an_impossible_number_is_refused(count: t.Any) -> None:
    with pytest.raises(InvalidArgument, match="balance_empty is"):
        empty(fleet(1024, 1024), count)
