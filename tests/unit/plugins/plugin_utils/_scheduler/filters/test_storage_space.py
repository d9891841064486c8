# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import MIB, domain, f, host, judge_with, record, request

IMAGES = "/var/lib/libvirt/images"
MOUNT = {"path": "/var", "kind": "ext4", "store": None, "capacity_bytes": 1000 * MIB, "available_bytes": 400 * MIB}
POOL = {"name": "images", "type": "dir", "active": True, "path": IMAGES, "capacity_bytes": 1000 * MIB, "available_bytes": 400 * MIB}
LOCAL = [f.disk("vda", shared=False)]


@pytest.mark.parametrize(("mib", "passes"), [(400, True), (401, False)])
@pytest.mark.parametrize("places", [{"mounts": [MOUNT]}, {"mounts": None, "pools": [POOL]}, {"mounts": [MOUNT], "pools": [POOL]}])
def test_copied_disks_may_fill_the_free_space_exactly(places: dict[str, object], mib: int, passes: bool) -> None:
    finding = judge_with("disk", request(disks=LOCAL, copied={"vda": mib * MIB}), host(**places))
    assert (finding.reason is None) == passes
    assert passes or "It is 1 MiB short of disk space" in str(finding.reason)
    assert finding.warnings == ()


def test_the_disk_ratio_applies_to_the_capacity() -> None:
    there = host(mounts=[MOUNT], settings={"disk_allocation_ratio": 1.1})
    assert judge_with("disk", request(disks=LOCAL, copied={"vda": 500 * MIB}), there).reason is None
    assert "1 MiB short" in str(judge_with("disk", request(disks=LOCAL, copied={"vda": 500 * MIB + 1}), there).reason)


def test_no_ratio_permits_a_copy_larger_than_the_file_system() -> None:
    there = host(mounts=[{**MOUNT, "available_bytes": 1000 * MIB}], settings={"disk_allocation_ratio": 9})
    assert judge_with("disk", request(disks=LOCAL, copied={"vda": 1000 * MIB}), there).reason is None
    assert "the whole file system /var has 1000 MiB" in str(judge_with("disk", request(disks=LOCAL, copied={"vda": 1001 * MIB}), there).reason)


@pytest.mark.parametrize(("booked", "passes"), [(100, True), (101, False)])
def test_copies_of_other_moves_are_reserved(booked: int, passes: bool) -> None:
    other = record("db1", "kvm3", "kvm2", "running", copies={f"{IMAGES}/db1.qcow2": booked * MIB})
    finding = judge_with("disk", request(disks=LOCAL, copied={"vda": 300 * MIB}), host(mounts=[MOUNT], records=[other]))
    assert (finding.reason is None) == passes


def test_a_copy_that_has_arrived_is_not_counted_twice() -> None:
    came = record("db1", "kvm3", "kvm2", "completed", copies={f"{IMAGES}/db1.qcow2": 300 * MIB}, updated_at="2026-11-21T03:00:01.000Z")
    asked = request(disks=LOCAL, copied={"vda": 400 * MIB})
    assert judge_with("disk", asked, host("kvm2", domain("db1"), mounts=[MOUNT], records=[came])).reason is None
    assert judge_with("disk", asked, host("kvm2", mounts=[MOUNT], records=[came])).reason
    coming = dataclasses.replace(came, status="running")
    assert judge_with("disk", asked, host("kvm2", domain("db1"), mounts=[MOUNT], records=[coming])).reason


def test_a_reserved_copy_with_an_unknown_target_counts_everywhere() -> None:
    other = dataclasses.replace(record("db1", "kvm3", "kvm2", "running"), request={"memory_mib": 1, "vcpus": 1, "copied_disk_bytes": {"vda": 100 * MIB}})
    there = host(mounts=[MOUNT], records=[other])
    assert judge_with("disk", request(disks=LOCAL, copied={"vda": 300 * MIB}), there).reason is None
    assert judge_with("disk", request(disks=LOCAL, copied={"vda": 301 * MIB}), there).reason


def test_a_reserved_copy_on_another_file_system_does_not_count() -> None:
    other = record("db1", "kvm3", "kvm2", "running", copies={"/srv/db1.qcow2": 900 * MIB})
    srv = {**MOUNT, "path": "/srv"}
    assert judge_with("disk", request(disks=LOCAL, copied={"vda": 400 * MIB}), host(mounts=[MOUNT, srv], records=[other])).reason is None


def test_copied_disks_of_one_domain_are_added_up() -> None:
    disks = [f.disk("vda", shared=False), f.disk("vdb", shared=False)]
    assert judge_with("disk", request(disks=disks, copied={"vda": 200 * MIB, "vdb": 201 * MIB}), host(mounts=[MOUNT])).reason


def test_unknown_free_space_is_a_warning() -> None:
    silent = {**MOUNT, "available_bytes": None}
    assert judge_with("disk", request(disks=LOCAL, copied={"vda": MIB}), host(mounts=[silent])).warnings
    finding = judge_with("disk", request(disks=LOCAL, copied={"vda": MIB}), host(mounts=None, pools=None))
    assert finding.reason is None
    assert f"How much space kvm2 has for the copy of {IMAGES}/vda.qcow2 is not known." in finding.warnings


def test_a_logical_volume_is_counted_in_its_volume_group() -> None:
    root = {**MOUNT, "path": "/"}
    group = {**POOL, "name": "vg0", "type": "logical", "path": "/dev/vg0", "available_bytes": 100 * MIB}
    disks = [f.disk("vda", shared=False, kind="block", source="/dev/vg0/web1")]
    assert "pool vg0" in str(judge_with("disk", request(disks=disks, copied={"vda": 101 * MIB}), host(mounts=[root], pools=[group])).reason)
    assert judge_with("disk", request(disks=disks, copied={"vda": 101 * MIB}), host(mounts=[root])).warnings


def test_a_move_without_copies_needs_no_disk_space() -> None:
    assert judge_with("disk", request(disks=LOCAL), host(mounts=[{**MOUNT, "available_bytes": 0}])).reason is None
