# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host reports of its domains, so that acts of others are found."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import own_moves
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, NotSupported, Unreachable
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost
from ansible_collections.kvmfleet.migration.tests.unit.fakes.hung import hung_libvirt

HOST_ID = "1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01"
Seen = t.Dict[str, t.Any]


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    fleet = FakeFleet()
    monkeypatch.setattr(own_moves, "open_reader", lambda uri: FakeHost(fleet, fleet.machine_of(uri), uri))
    monkeypatch.setattr(own_moves, "read_host_id", lambda: HOST_ID)
    monkeypatch.setattr(own_moves, "read_own_act", lambda uuid: "act" if uuid == UUID else None)
    monkeypatch.setattr(own_moves, "list_remembered", list)
    return fleet


def look() -> Seen:
    return t.cast(Seen, own_moves.report_seen_domains(LOCAL_URI, {}))


def test_a_host_reports_its_identity_and_the_state_of_its_domains(fleet: FakeFleet) -> None:
    fleet.guest()
    answer = look()
    (domain,) = answer["domains"]
    assert (answer["changed"], answer["host_id"], answer["remembered"]) == (False, HOST_ID, [])
    assert answer["host_uuid"]
    assert (domain["uuid"], domain["active"], domain["state"], domain["own_act"]) == (UUID, True, "running", "act")
    assert domain["boot_id"] == pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def test_a_domain_that_is_off_has_the_reason(fleet: FakeFleet) -> None:
    fleet.guest(state=domain_states.SHUTOFF, reason="destroyed")
    (domain,) = look()["domains"]
    assert (domain["active"], domain["state"], domain["reason"]) == (False, "shut off", "destroyed")


def test_a_domain_that_is_moving_to_the_host_is_left_out(fleet: FakeFleet) -> None:
    fleet.guest(job=domain_states.JOB_INCOMING)
    assert look()["domains"] == []


def test_an_identity_that_this_user_may_not_read_is_null(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> t.NoReturn:
        raise Forbidden("Permission denied.")

    monkeypatch.setattr(own_moves, "read_host_id", refuse)
    fleet.guest()
    assert look()["host_id"] is None


def test_another_host_is_not_asked(fleet: FakeFleet) -> None:
    with pytest.raises(NotSupported):
        own_moves.report_seen_domains("qemu+ssh://kvm9/system", {})


def test_a_libvirt_that_hangs_has_a_time_limit(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    with hung_libvirt(monkeypatch, "list_definitions", "list the domains of kvm1") as open_hung:
        monkeypatch.setattr(own_moves, "open_reader", open_hung)
        with pytest.raises(Unreachable, match="Failed to list the domains of kvm1: libvirt did not answer"):
            look()
