# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The survey of C(scheduler_check) as a user without rights, over libvirt's read-only connections."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import gather, survey_phases
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import CPU_COMPARISON, PATHS
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet

TO_2 = "qemu+ssh://kvm2/system"
WANTED = {"name": "web1", "uuid": None, "known_uuids": [], "destination_uris": [TO_2], "copy_storage": True}
IMAGE = "/srv/images/web1.raw"


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    fleet = FakeFleet()
    fleet.guest(disks=(domain_states.Disk("vda", "file", IMAGE),))
    fleet.destination.paths[IMAGE] = False
    monkeypatch.setattr(survey_phases, "open_reader", fleet.open)
    monkeypatch.setattr(survey_phases, "open_host", lambda uri: pytest.fail(f"{uri} was opened to act on it"))
    return fleet


def survey_as(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, root: bool) -> t.Tuple[t.Any, t.Any]:
    """Return what is found about the destination and the domain."""
    for machine in fleet.machines.values():
        machine.is_read_only = not root
    for module in (survey_phases, gather):
        monkeypatch.setattr(module, "is_root", lambda: root)
    monkeypatch.setattr(survey_phases, "_inspect_images", lambda uuid, source, destination: [{"uuid": uuid}])
    found = survey_phases.survey_candidates(LOCAL_URI, {"wanted": WANTED})
    assert found["changed"] is False
    (domain,) = t.cast(t.Any, found)["survey"]["domains"]
    return t.cast(t.Any, found)["survey"]["destinations"][TO_2], domain


def test_root_gets_everything(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, domain = survey_as(fleet, monkeypatch, root=True)
    assert (domain["paths"][TO_2], domain["storage"]) == ({IMAGE: False}, {TO_2: [{"uuid": UUID}]})
    assert "unverified_reasons" not in facts


def test_a_user_gets_what_the_read_only_connection_tells_and_the_reasons_for_the_rest(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, domain = survey_as(fleet, monkeypatch, root=False)
    assert (domain["found"], domain["cpu"], domain["paths"][TO_2], domain["storage"]) == (True, {}, {}, {})
    assert {CPU_COMPARISON, PATHS} <= set(facts["unverified_reasons"])
    assert all(host.is_closed for host in fleet.connections)
    assert [machine.calls for machine in fleet.machines.values()] == [[], []]
