# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The definitions that a move gives its guest at the destination: in the migrate call and nowhere else."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import Disk
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NO_MAPS, Renaming, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import StartOrder, read_start_order
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import (
    Document,
    acts,
    mover_of,
    order_of,
    record_of,
    state_in,
)

PATH, THERE = "/srv/fast/web.qcow2", "/data/web.qcow2"
RENAMING = Renaming("kvm1", "kvm2", ResourceMaps(images={"fast": "/srv/fast"}), ResourceMaps(images={"fast": "/data"}))
CHANGE = {"path": "devices[1]/disk[1]/source[1]/@file", "before": PATH, "after": THERE}


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def add_guest(fleet: FakeFleet, **how: t.Any) -> None:
    fleet.guest(disks=(Disk("vda", "file", PATH, False, False),), **how)


def order_with(renaming: t.Optional[Renaming] = RENAMING, **how: t.Any) -> StartOrder:
    order = order_of(record_of(), **how)
    return dataclasses.replace(order, renaming=renaming) if renaming else order


def carry_out_order(fleet: FakeFleet, folder: pathlib.Path, order: StartOrder) -> Document:
    mover = mover_of(fleet, order, folder)
    mover.run()
    mover._arrivals.close()
    return state_in(folder)


def test_both_definitions_of_a_persistent_guest_are_in_the_call_and_only_the_changes_in_the_record(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_guest(fleet)
    record = carry_out_order(fleet, tmp_path, order_with())
    assert record["status"] == s.COMPLETED
    (given,) = fleet.given_parameters
    assert set(given) == {"destination_xml", "persistent_xml"}
    assert all(THERE in definition and PATH not in definition for definition in given.values())
    assert record["rewritten"] == [{**CHANGE, "definitions": ["live", "persistent"]}]
    assert record["connection"]["parameters"] == {}
    assert "<domain" not in str(record)


def test_a_transient_guest_has_no_persistent_definition(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_guest(fleet, persistent=False)
    record = carry_out_order(fleet, tmp_path, order_with(persistent=False))
    assert [set(given) for given in fleet.given_parameters] == [{"destination_xml"}]
    assert record["rewritten"] == [{**CHANGE, "definitions": ["live"]}]


def test_without_other_names_libvirt_sends_the_definition_itself(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_guest(fleet)
    record = carry_out_order(fleet, tmp_path, order_with(None))
    assert fleet.given_parameters == [{}]
    assert "rewritten" not in record


def test_a_name_that_was_plugged_in_while_the_move_waited_is_refused_before_the_job(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_guest(fleet)
    record = carry_out_order(fleet, tmp_path, order_with(Renaming("kvm1", "kvm2", RENAMING.before, NO_MAPS)))
    assert record["status"] == s.FAILED
    assert "kvm2 has no folder 'fast' in kvmfleet_image_map" in record["history"][-1]["detail"]
    assert acts(record) == []
    assert fleet.given_parameters == []
    assert fleet.source.domains[UUID].view().describe() == "running (booted)"
    assert fleet.destination.domains == {}


def test_libvirts_refusal_leaves_guest_and_definitions_as_they_were(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    add_guest(fleet)
    before = fleet.source.domains[UUID].xml()
    fleet.refuse_to_migrate = NotSupported("Target network card mac 52:54:00:00:00:02 does not match source 52:54:00:00:00:01")
    record = carry_out_order(fleet, tmp_path, order_with())
    assert record["status"] == s.FAILED
    assert "does not match source" in record["history"][-1]["detail"]
    assert fleet.source.domains[UUID].view().describe() == "running (booted)"
    assert fleet.source.domains[UUID].xml() == before
    assert fleet.destination.domains == {}


def test_the_names_cross_the_wire_with_the_order() -> None:
    order = order_with()
    assert read_start_order(encode(order)).renaming == RENAMING
    assert not read_start_order(encode(order_with(None))).renaming
