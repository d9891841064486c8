# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import functools
import json
import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import gather as module
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Definition, DefinitionList
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import Surroundings
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import GIB, MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.host import FakeHost

OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
FROM_AFAR = "qemu+tcp://kvm1/system"


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def facts_of(fleet: FakeFleet, uri: str = LOCAL_URI, seconds: int = 0) -> t.Tuple[t.Dict[str, t.Any], t.List[str]]:
    facts, warnings = module.gather_facts(fleet.open(uri), seconds)
    return encode(facts), warnings


def test_domains_are_listed_by_name_with_their_requests(fleet: FakeFleet) -> None:
    fleet.guest(memory_bytes=256 * MIB + 1, disks=(domain_states.Disk("vda", "file", "/x"),))
    fleet.guest("db1", OTHER, state=domain_states.PAUSED, reason=domain_states.MIGRATION, job=domain_states.JOB_INCOMING)
    facts, warnings = facts_of(fleet)
    assert [(domain["name"], domain["state"], domain["job"]) for domain in facts["domains"]] == [
        ("db1", "paused", "incoming migration"),
        ("web1", "running", "none"),
    ]
    web1 = facts["domains"][1]
    assert {key: web1["request"][key] for key in ("memory_mib", "vcpus", "traits", "labels", "group", "priority", "drain")} == {
        "memory_mib": 257,
        "vcpus": 2,
        "traits": [],
        "labels": [],
        "group": None,
        "priority": 0,
        "drain": "migrate",
    }
    assert (web1["disks"][0]["target"], web1["request"]["disks"][0]["source"], web1["dirty_rate_mib"]) == ("vda", "/x", None)
    assert json.loads(json.dumps(facts)) == facts
    assert warnings == []


def test_local_facts_are_null_and_unverified_over_a_remote_connection(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_host_id", lambda: pytest.fail("was read"))
    fleet.guest(disks=(domain_states.Disk("vda", "file", "/x"), domain_states.Disk("vdb", "network", "pool/image")))
    facts, warnings = facts_of(fleet, FROM_AFAR)
    for key in ("host_id", "machine_id", "boot_id", "mounts", "bridges", "interfaces", "interface_details"):
        assert facts[key] is None
        assert key in facts["unverified"]
    assert [disk["shared"] for disk in facts["domains"][0]["request"]["disks"]] == [None, True]
    assert warnings == []


def test_mounts_and_interfaces_of_the_local_host_are_gathered(fleet: FakeFleet) -> None:
    facts, _warnings = facts_of(fleet)
    assert facts["boot_id"] == boot_moment().boot_id
    assert "lo" in facts["interfaces"]
    assert {"name": "lo", "kind": "", "mtu": 65536, "vlan": None, "lower": None, "controller": None} in facts["interface_details"]
    assert any(mount["path"] == "/" and mount["capacity_bytes"] > 0 for mount in facts["mounts"])
    assert not {"mounts", "bridges", "interfaces", "interface_details"} & {*facts["unverified"]}


def test_a_damaged_identity_is_a_warning_and_the_rest_is_gathered(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> str:
        raise Internal("host-id holds nothing.")

    monkeypatch.setattr(module, "read_host_id", damaged)
    fleet.guest()
    facts, warnings = facts_of(fleet)
    assert facts["host_id"] is None
    assert warnings == ["host-id holds nothing."]
    assert len(facts["domains"]) == 1


def test_a_domain_without_a_readable_definition_has_a_blocker(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Definition(fleet.guest(memory_bytes=3 * GIB).info(), None, problem="Its definition could not be read: it is not XML.")
    monkeypatch.setattr(FakeHost, "list_definitions", lambda self: DefinitionList([broken], ["db1"]))
    facts, warnings = facts_of(fleet)
    (domain,) = facts["domains"]
    assert (domain["active"], domain["request"]["memory_mib"]) == (True, 3072)
    assert domain["request"]["blockers"] == ["Its definition could not be read: it is not XML."]
    assert "Domain db1 disappeared" in warnings[0]
    assert "Domain web1" in warnings[1]


def test_the_request_of_an_unreadable_definition_has_all_keys(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    info = fleet.guest().info()
    whole = facts_of(fleet)[0]["domains"][0]["request"]
    monkeypatch.setattr(FakeHost, "list_definitions", lambda self: DefinitionList([Definition(info, None, problem="It is not XML.")]))
    assert set(facts_of(fleet)[0]["domains"][0]["request"]) == set(whole)


def test_facts_without_a_libvirt_driver_are_null_and_unverified(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeHost, "read_surroundings", lambda self: Surroundings(None, (), None, None, None, None))
    facts, _warnings = facts_of(fleet)
    assert {"pools", "devices", "net_devices", "network_filters", "secrets"} <= {*facts["unverified"]}
    assert "networks" not in facts["unverified"]


def test_a_host_that_is_lost_during_gathering_is_unreachable(fleet: FakeFleet) -> None:
    host = fleet.open(LOCAL_URI)
    fleet.source.go_dark()
    with pytest.raises(Unreachable):
        module.gather_facts(host)


def test_the_dirty_rate_is_measured_only_for_running_domains_without_a_job(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: t.List[t.Any] = []
    start = FakeHost.start_dirty_rates
    monkeypatch.setattr(FakeHost, "start_dirty_rates", lambda self, uuids, seconds: asked.append((list(uuids), seconds)) or start(self, uuids, seconds))
    monkeypatch.setattr(module, "DirtyRates", functools.partial(module.DirtyRates, sleep=asked.append))
    fleet.guest(dirty_rate_bytes=40 * MIB)
    fleet.guest("db1", OTHER, job=domain_states.JOB_OUTGOING)
    fleet.guest("db2", OTHER[:-1] + "3", state=domain_states.PAUSED, reason=domain_states.POST_COPY_FAILED)
    fleet.guest("db3", OTHER[:-1] + "4", state=domain_states.SHUTOFF)
    rates = {domain["name"]: domain["dirty_rate_mib"] for domain in facts_of(fleet, seconds=2)[0]["domains"]}
    assert rates == {"web1": 40, "db1": None, "db2": None, "db3": None}
    assert asked[0] == ([UUID], 2)
    assert 1 < asked[1] <= 2
    facts_of(fleet)
    assert len(asked) == 2


def test_an_invalid_definition_is_a_blocker_of_its_own_domain_alone(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    info = fleet.guest().info()
    root = ElementTree.fromstring("<domain><cpu><numa><cell id='first' memory='1'/></numa></cpu></domain>")
    monkeypatch.setattr(FakeHost, "list_definitions", lambda self: DefinitionList([Definition(info, root)]))
    facts, warnings = facts_of(fleet)
    (domain,) = facts["domains"]
    assert "could not be parsed: 'first'" in domain["request"]["blockers"][0]
    assert "will not be moved" in warnings[0]
