# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.gather import gather_facts
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.survey import survey_hosts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyQuestion
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet

KVM2 = "qemu+tcp://kvm2/system"
SELF = "qemu+tcp://kvm1/system"


@pytest.fixture
def fleet() -> FakeFleet:
    fleet = FakeFleet()
    fleet.guest()
    return fleet


def storage_of(fleet: FakeFleet, examine: t.Any, **wanted: t.Any) -> t.Dict[str, t.Any]:
    source = fleet.open(LOCAL_URI)
    moves = [SurveyQuestion(None, UUID, (KVM2, SELF), copy_storage=wanted.get("copy_storage", True))]
    found = survey_hosts(source, moves, fleet.open, lambda path: True, lambda host: gather_facts(host)[0], examine)
    return t.cast(t.Dict[str, t.Any], found.domains[0].storage)


def test_the_storage_of_destinations_is_inspected_and_not_of_the_source(fleet: FakeFleet) -> None:
    asked: t.List[str] = []

    def examine(uuid: str, source: t.Any, destination: t.Any) -> t.List[t.Dict[str, t.Any]]:
        asked.append(destination.uri)
        return [{"uuid": uuid}]

    assert storage_of(fleet, examine) == {KVM2: [{"uuid": UUID}]}
    assert asked == [KVM2]


def test_storage_is_not_inspected_without_copy_storage(fleet: FakeFleet) -> None:
    def examine(uuid: str, source: t.Any, destination: t.Any) -> t.List[t.Dict[str, t.Any]]:
        raise AssertionError(destination.uri)

    assert storage_of(fleet, examine, copy_storage=False) == {}


def test_a_destination_lost_during_the_inspection_is_unreachable(fleet: FakeFleet) -> None:
    def examine(uuid: str, source: t.Any, destination: t.Any) -> t.List[t.Dict[str, t.Any]]:
        raise Unreachable("kvm2 is gone.")

    assert storage_of(fleet, examine)[KVM2]["error_code"] == "unreachable"
