# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.fleet_scan import DOMAIN_TWICE, IMAGE_TWICE, scan_fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import read_facts

WEB = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
DB = "6f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12"
NFS = "nfs4:nas:/images/web.qcow2"

Body = dict[str, t.Any]


def disk(source: str = "/images/web.qcow2", store: str | None = NFS, **changes: t.Any) -> Body:
    return {"target": "vda", "source": source, "store": store, "readonly": False, "shareable": False, **changes}


def domain(uuid: str = WEB, *disks: Body, **changes: t.Any) -> Body:
    state = {"active": True, "state": "running", "reason": "booted", "job": "none"}
    return {"uuid": uuid, "name": "web" if uuid == WEB else "db", **state, **changes, "request": {"memory_mib": 256, "vcpus": 1, "disks": list(disks)}}


def host(number: int, *domains: Body) -> Body:
    return {"host_uuid": f"8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c0{number}", "domains": list(domains)}


def scan(fleet: dict[str, Body | None]) -> Body:
    return t.cast("Body", encode(scan_fleet({name: read_facts(facts) if facts else None for name, facts in fleet.items()})))


def test_a_sound_fleet_has_no_findings() -> None:
    fleet = {"kvm1": host(1, domain(WEB, disk())), "kvm2": host(2, domain(DB, disk(store="nfs4:nas:/images/db.qcow2")))}
    assert scan(fleet) == {"findings": [], "unknown": []}


def test_a_domain_that_runs_twice_is_found() -> None:
    found = scan({"kvm1": host(1, domain()), "kvm2": host(2), "kvm3": host(3, domain())})["findings"]
    assert [(finding["kind"], finding["hosts"], finding["domains"]) for finding in found] == [(DOMAIN_TWICE, ["kvm1", "kvm3"], [WEB])]
    assert "web" in found[0]["msg"]
    assert "kvm1 and kvm3" in found[0]["msg"]


def test_a_second_copy_is_found_on_hosts_that_share_a_uuid() -> None:
    fleet = {"kvm1": {**host(1, domain()), "host_id": "id-1"}, "kvm2": {**host(1, domain()), "host_id": "id-2"}}
    assert [finding["hosts"] for finding in scan(fleet)["findings"]] == [["kvm1", "kvm2"]]


def test_a_second_copy_is_found_on_hosts_with_a_copied_host_id() -> None:
    fleet = {"kvm1": {**host(1, domain()), "host_id": "id-1"}, "kvm2": {**host(2, domain()), "host_id": "id-1"}}
    assert [finding["hosts"] for finding in scan(fleet)["findings"]] == [["kvm1", "kvm2"]]


def test_two_names_of_a_host_with_one_host_id_count_once() -> None:
    assert not scan({"kvm1": {**host(1, domain()), "host_id": "id-1"}, "alias": {**host(1, domain()), "host_id": "id-1"}})["findings"]


def test_a_paused_copy_counts_as_active() -> None:
    assert scan({"kvm1": host(1, domain()), "kvm2": host(2, domain(state="paused", reason="user"))})["findings"]


def test_an_inactive_definition_is_not_a_second_copy() -> None:
    assert not scan({"kvm1": host(1, domain(WEB, disk())), "kvm2": host(2, domain(WEB, disk(), active=False, state="shut off"))})["findings"]


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ({"job": "outgoing migration"}, {"job": "incoming migration", "state": "paused", "reason": "migration"}),
        ({"state": "paused", "reason": "post-copy", "job": "outgoing migration"}, {"reason": "post-copy"}),
        ({"state": "paused", "reason": "post-copy failed"}, {"state": "paused", "reason": "starting up", "job": "incoming migration"}),
        ({"job": "outgoing migration"}, {}),
    ],
)
def test_source_and_destination_of_a_move_are_one_guest(source: Body, destination: Body) -> None:
    fleet = {"kvm1": host(1, domain(WEB, disk(), **source)), "kvm2": host(2, domain(WEB, disk(), **destination))}
    assert scan(fleet)["findings"] == []


def test_a_third_copy_beside_a_move_is_found() -> None:
    fleet = {"kvm1": host(1, domain(job="outgoing migration")), "kvm2": host(2, domain(job="incoming migration")), "kvm3": host(3, domain())}
    assert [finding["hosts"] for finding in scan(fleet)["findings"]] == [["kvm1", "kvm2", "kvm3"]]


def test_two_outgoing_copies_are_not_one_move() -> None:
    assert scan({"kvm1": host(1, domain(job="outgoing migration")), "kvm2": host(2, domain(job="outgoing migration"))})["findings"]


@pytest.mark.parametrize("hosts", [("kvm1", "kvm1"), ("kvm1", "kvm2")])
def test_an_image_that_two_domains_write_is_found(hosts: tuple[str, str]) -> None:
    fleet: dict[str, Body] = {"kvm1": host(1), "kvm2": host(2)}
    fleet[hosts[0]]["domains"].append(domain(WEB, disk("/other", "nfs4:nas:/other"), disk()))
    fleet[hosts[1]]["domains"].append(domain(DB, disk(source="/mnt/web.qcow2")))
    found = scan(fleet)["findings"]
    assert [(finding["kind"], finding["hosts"]) for finding in found] == [(IMAGE_TWICE, sorted(set(hosts)))]
    assert "/images/web.qcow2" in found[0]["msg"]
    assert f"on {hosts[1]}" in found[0]["msg"]


@pytest.mark.parametrize("changes", [{"readonly": True}, {"shareable": True}, {"source": ""}])
def test_read_only_or_shareable_images_may_be_used_twice(changes: Body) -> None:
    fleet = {"kvm1": host(1, domain(WEB, disk(**changes))), "kvm2": host(2, domain(DB, disk(**changes)))}
    assert scan(fleet)["findings"] == []


def test_local_images_are_compared_within_their_host() -> None:
    local = disk(store=None)
    assert not scan({"kvm1": host(1, domain(WEB, local)), "kvm2": host(2, domain(DB, local))})["findings"]
    assert scan({"kvm1": host(1, domain(WEB, local), domain(DB, local))})["findings"][0]["kind"] == IMAGE_TWICE


def test_one_host_under_two_names_counts_once() -> None:
    assert scan({"kvm1": host(1, domain()), "kvm1-alias": host(1, domain())})["findings"] == []


def test_hosts_without_facts_are_unknown() -> None:
    assert scan({"kvm2": None, "kvm1": {}, "kvm3": host(3)})["unknown"] == ["kvm1", "kvm2"]
