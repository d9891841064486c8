# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._storage.targets import copies_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.copying import check_storage, plan_storage
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import MoveRequest

URIS = {"kvm2": "qemu+tcp://kvm2/system", "kvm3": "qemu+tcp://kvm3/system"}


def request_of(**options: t.Any) -> MoveRequest:
    return MoveRequest(name="web1", uuid=None, destination=None, uris=URIS, migrate_uri=None, options=MoveOptions(**options), policy={})


def disk(target: str = "vda", verdict: str = "separate", **facts: t.Any) -> dict[str, t.Any]:
    image = {
        "target": target,
        "kind": "file",
        "path": f"/images/{target}",
        "format": "raw",
        "capacity_bytes": 1000,
        "allocation_bytes": 10,
        "shareable": False,
        "has_backing": False,
    }
    return {"image": image, "verdict": verdict, "why": "", "existing": None, "used_by": [], "available_bytes": 5000, "same_file": "", **facts}


def domain_of(unshared: list[str], **disks: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    return {"unshared_disks": unshared, "storage": {URIS[host]: of for host, of in disks.items()}}


def record_of() -> schema.Record:
    return schema.new_record(
        s.LIVE_MIGRATION, {"uuid": "u", "name": "web1"}, schema.place("kvm1"), schema.place("kvm2"), {}, "test", request={"memory_mib": 64}
    )


def test_a_disk_of_one_host_needs_a_copy_or_a_word() -> None:
    domain = domain_of(["vda"], kvm2=[disk()])
    with pytest.raises(Unsafe, match="disk vda"):
        check_storage(request_of(), domain, "kvm1", "kvm2")
    check_storage(request_of(unsafe=True), domain, "kvm1", "kvm2")
    check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm2")


def test_a_store_that_is_one_but_of_no_shared_kind_still_needs_a_word() -> None:
    domain = domain_of(["vda", "vdb"], kvm2=[disk(), disk("vdb", "shared")])
    with pytest.raises(Unsafe, match=r"disk vdb\)"):
        check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm2")
    check_storage(request_of(copy_storage="auto", unsafe=True), domain, "kvm1", "kvm2")


def test_each_destination_is_judged_by_its_own_disks() -> None:
    domain = domain_of(["vda"], kvm2=[disk()], kvm3=[disk(used_by=["db1"])])
    check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm2")
    with pytest.raises(Conflict, match="db1 uses"):
        check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm3")


def test_the_record_says_what_is_copied_and_how_much() -> None:
    record = record_of()
    domain = domain_of(["vda"], kvm2=[disk(), disk("vdb")], kvm3=[disk(verdict="shared")])
    plan_storage(record, request_of(copy_storage="auto"), domain, "kvm2")
    assert [(copy["target"], copy["made"]) for copy in copies_of(record)] == [("vda", False), ("vdb", False)]
    assert record["request"]["copied_disk_bytes"] == {"vda": 1000, "vdb": 1000}
    plan_storage(record, request_of(copy_storage="auto", unsafe=True), domain, "kvm3")
    assert copies_of(record) == []
    assert record["request"] == {"memory_mib": 64}


def test_an_examination_that_failed_is_passed_on() -> None:
    domain = {"unshared_disks": [], "storage": {URIS["kvm2"]: {"msg": "kvm2 is gone.", "error_code": "unreachable"}}}
    with pytest.raises(Unreachable, match="could not be examined: kvm2 is gone"):
        check_storage(request_of(copy_storage="full"), domain, "kvm1", "kvm2")


def test_a_domain_that_was_not_examined_copies_nothing() -> None:
    record = record_of()
    plan_storage(record, request_of(copy_storage="full"), {"unshared_disks": []}, "kvm2")
    assert "storage" not in record


BASE = {"target": "vda", "role": "backing", "path": "/images/base", "why": None}


def test_a_base_of_each_host_needs_shared_storage_a_whole_copy_or_a_word() -> None:
    domain = {**domain_of([], kvm2=[disk(verdict="shared")], kvm3=[disk()]), "unshared_files": [BASE]}
    for options in ({}, {"copy_storage": "auto"}):
        with pytest.raises(Unsafe, match=r"Disk vda is built on /images/base.*what kvm2 has at that path may be another file"):
            check_storage(request_of(**options), domain, "kvm1", "kvm2")
    check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm3")
    check_storage(request_of(unsafe=True), domain, "kvm1", "kvm2")


def test_files_that_cannot_be_told_are_as_bad_as_files_of_one_host() -> None:
    unknown = {"target": "vda", "role": None, "path": None, "why": "/images/vda cannot be read"}
    with pytest.raises(Unsafe, match="may need files that are not known: /images/vda cannot be read"):
        check_storage(request_of(), {**domain_of([]), "unshared_files": [unknown]}, "kvm1", "kvm2")
    data = {**BASE, "role": "data"}
    with pytest.raises(Unsafe, match="has its data in /images/base"):
        check_storage(request_of(), {**domain_of([]), "unshared_files": [data]}, "kvm1", "kvm2")


def test_an_incremental_copy_of_one_disk_permits_nothing_for_another() -> None:
    domain = {**domain_of([]), "unshared_files": [BASE]}
    with pytest.raises(Unsafe, match="Disk vda is built on /images/base"):
        check_storage(request_of(copy_storage="incremental"), domain, "kvm1", "kvm2")


DEVICE = {"target": "vdb", "path": "/dev/vg0/web", "store": "lvm:x"}


def test_a_device_that_the_destination_is_not_known_to_see_needs_a_proof_or_a_word() -> None:
    domain = {**domain_of([]), "unproved_devices": [DEVICE], "seen_devices": {"kvm3": ["/dev/vg0/web"]}}
    with pytest.raises(Unsafe, match=r"a device that kvm2 is not known to see \(disk vdb: /dev/vg0/web\).*run the playbook protect for kvm1 and kvm2"):
        check_storage(request_of(), domain, "kvm1", "kvm2")
    check_storage(request_of(), domain, "kvm1", "kvm3")
    check_storage(request_of(unsafe=True), domain, "kvm1", "kvm2")
