# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requirements that are not proved and yet no warning: the operator guarantees them, or another host has seen them."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import Finding, f, host, judge_with, request

PATH = f.disk("vda")["source"]
OTHER_NAS = [{"path": "/srv/images", "kind": "nfs4", "store": "nfs4:other:/images"}]


def unsafe(disk: dict[str, t.Any], **there: t.Any) -> Finding:
    return judge_with("storage", dataclasses.replace(request(disks=[disk]), unsafe=True), host(**there))


@pytest.mark.parametrize("shared", [False, None, True])
def test_an_existing_image_is_no_warning_with_unsafe(shared: bool | None) -> None:
    disk = f.disk("vda", shared)
    finding = unsafe(disk, paths={disk["source"]: True}, mounts=OTHER_NAS)
    assert (finding.reason, finding.warnings) == (None, ())


def test_a_missing_image_is_refused_even_with_unsafe() -> None:
    assert unsafe(f.disk("vda"), paths={PATH: False}).reason


def test_a_differently_named_store_is_a_warning_with_unsafe() -> None:
    assert judge_with("storage", request(disks=[f.disk("vda")]), host(mounts=OTHER_NAS)).reason
    finding = unsafe(f.disk("vda"), mounts=OTHER_NAS)
    assert finding.reason is None
    assert "is not known" in finding.warnings[0]
    local = [{"path": "/", "kind": "ext4", "store": None}]
    assert "is not shared" in str(unsafe(f.disk("vda"), mounts=local).reason)


def test_a_pool_of_the_same_name_is_no_warning_with_unsafe() -> None:
    volume = f.disk("vda", None, kind="volume", source="images/vda.qcow2")
    pools = [{"name": "images", "type": "dir", "active": True, "path": "/srv"}]
    assert unsafe(volume, pools=pools).warnings == ()
    assert unsafe(volume, pools=[]).reason


def test_the_warning_of_a_local_image_names_copy_storage_and_unsafe() -> None:
    disk = f.disk("vda", False)
    finding = judge_with("storage", request(disks=[disk]), host(paths={disk["source"]: True}))
    assert finding.warnings[0].endswith("it is on storage of its host alone, and moves only with copy_storage or unsafe.")


@pytest.mark.parametrize(("kind", "source"), [("bridge", "br0"), ("bridge", "br-lan.7"), ("direct", "eth0")])
def test_an_interface_that_libvirt_lists_is_no_warning(kind: str, source: str) -> None:
    asked = request(networks=[{"type": kind, "source": source}])
    from_afar: dict[str, t.Any] = {"bridges": None, "interfaces": None}
    assert judge_with("networks", asked, host(**from_afar, net_devices=["br0", "br_lan_7", "eth0"])).warnings == ()
    for others in (None, [], ["br1"]):
        finding = judge_with("networks", asked, host(**from_afar, net_devices=others))
        assert (finding.reason, len(finding.warnings)) == (None, 1)


def test_own_facts_of_a_host_override_the_interfaces_of_libvirt() -> None:
    asked = request(networks=[{"type": "bridge", "source": "br9"}])
    assert judge_with("networks", asked, host(bridges=["br0"], net_devices=["br9"])).reason == "It has no bridge br9."


def passed_through(had: set[str], has: set[str], given: set[str]) -> Finding:
    (platform, *_others) = f.host("x")["platforms"]
    platforms = [{**platform, "cpu": {**platform["cpu"], "features": sorted(given)}}]
    cpu = {"mode": "host-passthrough", "model": None, "features": {}, "xml": "<cpu/>"}
    source, there = ({"model": "Haswell", "vendor": "Intel", "features": sorted(features)} for features in (had, has))
    return judge_with("cpu_model", request(cpu=cpu), host(host_cpu=there), host("kvm1", host_cpu=source, platforms=platforms))


def test_a_missing_cpu_feature_that_guests_do_not_get_can_be_forced() -> None:
    finding = passed_through({"aes", "smx"}, {"aes"}, given={"aes"})
    assert finding.overridable is True
    assert str(finding.reason).endswith("and here is another: Intel Haswell, without smx.")


def test_a_missing_cpu_feature_that_guests_get_cannot_be_forced() -> None:
    finding = passed_through({"aes", "smx"}, {"smx"}, given={"aes"})
    assert (finding.reason, finding.overridable) == ("Its CPU lacks aes, and web1 has been given the whole CPU of its host.", None)


def test_a_host_that_reserves_more_than_it_has_has_no_capacity() -> None:
    there = host(memory_mib=8192, settings={"reserved_memory_mib": 10**8, "reserved_cpus": 10**4})
    assert (there.capacity_mib, there.capacity_vcpus) == (0, 0)
    assert judge_with("memory", request(memory_mib=512), there).reason == (
        "It is 512 MiB short of memory: 512 MiB are needed, 0 MiB of 0 MiB are free (100000000 MiB are reserved for the host itself)."
    )
