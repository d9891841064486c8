# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import StoragePool
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import GivenPolicy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import SurveyedDomain, UnprovedDevice, UnsharedFile
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.storage import add_copies, check_storage

URIS = {"kvm2": "qemu+tcp://kvm2/system", "kvm3": "qemu+tcp://kvm3/system"}


def request_of(**options: t.Any) -> MoveRequest:
    return MoveRequest(name="web1", uuid=None, destination=None, uris=URIS, migrate_uri=None, options=MoveOptions(**options), policy=GivenPolicy())


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


def domain_of(unshared: Sequence[str], *files: UnsharedFile, **disks: list[dict[str, t.Any]]) -> SurveyedDomain:
    return SurveyedDomain(True, {}, unshared_disks=tuple(unshared), unshared_files=files, storage={URIS[host]: of for host, of in disks.items()})


def record_of() -> MoveRecord:
    return new_record(
        s.LIVE_MIGRATION, DomainRef("u", "web1"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "test", request={"memory_mib": 64}
    )


def test_a_local_disk_needs_copy_storage_or_unsafe() -> None:
    domain = domain_of(["vda"], kvm2=[disk()])
    with pytest.raises(Unsafe, match="disk vda"):
        check_storage(request_of(), domain, "kvm1", "kvm2")
    check_storage(request_of(unsafe=True), domain, "kvm1", "kvm2")
    check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm2")


def test_a_shared_folder_of_a_local_kind_needs_unsafe() -> None:
    domain = domain_of(["vda", "vdb"], kvm2=[disk(), disk("vdb", "shared")])
    with pytest.raises(Unsafe, match=r"disk vdb\)"):
        check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm2")
    check_storage(request_of(copy_storage="auto", unsafe=True), domain, "kvm1", "kvm2")


def test_each_destination_is_judged_by_its_own_disks() -> None:
    domain = domain_of(["vda"], kvm2=[disk()], kvm3=[disk(used_by=["db1"])])
    check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm2")
    with pytest.raises(Conflict, match="db1 uses"):
        check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm3")


def test_the_record_has_the_disks_to_copy_and_their_size() -> None:
    record = record_of()
    domain = domain_of(["vda"], kvm2=[disk(), disk("vdb")], kvm3=[disk(verdict="shared")])
    planned = add_copies(record, request_of(copy_storage="auto"), domain, "kvm2")
    assert [(disk.target, disk.made) for disk in planned.disk_copies] == [("vda", False), ("vdb", False)]
    assert planned.request["copied_disk_bytes"] == {"vda": 1000, "vdb": 1000}
    again = add_copies(planned, request_of(copy_storage="auto", unsafe=True), domain, "kvm3")
    assert "storage" not in encode(again)
    assert again.request == {"memory_mib": 64}


def test_a_failed_inspection_of_storage_is_raised() -> None:
    domain = replace(domain_of([]), storage={URIS["kvm2"]: {"msg": "kvm2 is gone.", "error_code": "unreachable"}})
    with pytest.raises(Unreachable, match="could not be examined: kvm2 is gone"):
        check_storage(request_of(copy_storage="full"), domain, "kvm1", "kvm2")


def test_a_domain_without_an_inspection_copies_nothing() -> None:
    assert add_copies(record_of(), request_of(copy_storage="full"), domain_of([]), "kvm2").disk_copies == ()


BASE = UnsharedFile("vda", "backing", "/images/base", None)


def test_a_local_backing_file_needs_a_full_copy_or_unsafe() -> None:
    domain = domain_of([], BASE, kvm2=[disk(verdict="shared")], kvm3=[disk()])
    for options in ({}, {"copy_storage": "auto"}):
        with pytest.raises(Unsafe, match=r"Disk vda is built on /images/base.*what kvm2 has at that path may be another file"):
            check_storage(request_of(**options), domain, "kvm1", "kvm2")
    check_storage(request_of(copy_storage="auto"), domain, "kvm1", "kvm3")
    check_storage(request_of(unsafe=True), domain, "kvm1", "kvm2")


def test_unknown_backing_files_are_unsafe() -> None:
    unknown = UnsharedFile("vda", None, None, "/images/vda cannot be read")
    with pytest.raises(Unsafe, match="may need files that are not known: /images/vda cannot be read"):
        check_storage(request_of(), domain_of([], unknown), "kvm1", "kvm2")
    data = replace(BASE, role="data")
    with pytest.raises(Unsafe, match="has its data in /images/base"):
        check_storage(request_of(), domain_of([], data), "kvm1", "kvm2")


def test_an_incremental_copy_does_not_permit_a_local_backing_file() -> None:
    domain = domain_of([], BASE)
    with pytest.raises(Unsafe, match="Disk vda is built on /images/base"):
        check_storage(request_of(copy_storage="incremental"), domain, "kvm1", "kvm2")


DEVICE = UnprovedDevice("vdb", "/dev/vg0/web", "lvm:x")


def test_an_unproved_block_device_needs_protect_or_unsafe() -> None:
    domain = replace(domain_of([]), unproved_devices=(DEVICE,), seen_devices={"kvm3": ("/dev/vg0/web",)})
    with pytest.raises(Unsafe, match=r"a device that kvm2 is not known to see \(disk vdb: /dev/vg0/web\).*run the playbook protect for kvm1 and kvm2"):
        check_storage(request_of(), domain, "kvm1", "kvm2")
    check_storage(request_of(), domain, "kvm1", "kvm3")
    check_storage(request_of(unsafe=True), domain, "kvm1", "kvm2")


def test_a_name_that_a_host_assigns_itself_needs_the_facts_of_the_destination_too() -> None:
    domain = replace(domain_of([]), unproved_devices=(UnprovedDevice("vda", "/dev/sdb", "wwn:1"), UnprovedDevice("vdc", "vms/web", "wwn:2"), DEVICE))
    with pytest.raises(Unsafe, match=r"run the playbook protect for kvm1 and kvm2.* For /dev/sdb, that counts until kvm2 boots again, and only with its facts"):
        check_storage(request_of(), domain, "kvm1", "kvm2")


def test_a_volume_with_a_name_that_a_host_assigns_itself_needs_them_too() -> None:
    pools = (StoragePool("san", "mpath", path="/dev/mapper", volumes={"dm-3": "/dev/mapper/mpatha"}), StoragePool("vms", "logical", path="/dev/vg0"))
    domain = replace(domain_of([]), unproved_devices=(UnprovedDevice("vda", "san/dm-3", "mpath:1"), UnprovedDevice("vdc", "vms/web", "lvm:2")))
    with pytest.raises(Unsafe, match=r"run the playbook protect for kvm1 and kvm2.* For san/dm-3, that counts until kvm2 boots again, and only with its facts"):
        check_storage(request_of(), domain, "kvm1", "kvm2", pools)


@pytest.mark.parametrize("store", [None, "drbd:r0/0", "rbd:pool/web"])
def test_a_device_without_an_identity_is_not_said_to_move_after_protect(store: str | None) -> None:
    domain = replace(domain_of([]), unproved_devices=(UnprovedDevice("vda", "/dev/drbd0", store), DEVICE))
    with pytest.raises(Unsafe, match=r"no identity by which /dev/drbd0 could be proved\. Set unsafe: true") as refused:
        check_storage(request_of(), domain, "kvm1", "kvm2")
    assert "protect" not in str(refused.value)
