# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every rule judges a guest with the names of the host that is judged."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import HostNames, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.loss_rules import make_loss_rules
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.losses import CAN, CANNOT, LossSearch
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.planner import plan_placements
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.reach import find_reach
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS, check_host, hosts_by_weight
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler import builders
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, fleet, host

MAPS = ResourceMaps(bridges={"prod": "br0"}, devices={"gpu": "0000:41:00.0"}, images={"fast": "/srv/fast"}, cpus={"guests": "0-1"})
OTHER = ResourceMaps(bridges={"prod": "br-prod"}, devices={"gpu": "0000:06:12.0"}, images={"fast": "/data"}, cpus={"guests": "2-3"})
GPU = {"kind": "pci", "address": "0000:41:00.0", "vendor": "0x10de", "product": "0x1eb8"}
HELD = {**GPU, "vendor": None, "product": None}
GPU_THERE = {**GPU, "address": "0000:06:12.0"}
DISK = {"target": "vda", "kind": "file", "source": "/srv/fast/web.qcow2", "shared": True, "store": "nas:/vol/web.qcow2"}
BRIDGED = [{"type": "bridge", "source": "br0"}]


def request(name: str = "web1", **needs: t.Any) -> Request:
    return builders.request(name, **{"networks": [], "disks": [], **needs})


def reason_of(asked: Request, there: HostState, home: t.Optional[HostState] = None) -> str:
    return check_host(asked, there, fleet(there, home or host("kvm1", maps=MAPS, devices=[GPU]))).reason


def warnings_of(asked: Request, there: HostState) -> str:
    return " ".join(check_host(asked, there, fleet(there, host("kvm1", maps=MAPS))).warnings)


def test_a_host_with_the_mapped_bridge_passes_and_one_with_the_old_name_does_not() -> None:
    asked = request(networks=BRIDGED)
    assert reason_of(asked, host(maps=OTHER, bridges=["br-prod"])) == ""
    assert reason_of(asked, host(maps=OTHER, bridges=["br0"])) == "It has no bridge br-prod."
    assert reason_of(asked, host(bridges=["br0"]), host("kvm1")) == ""


def test_saved_names_are_those_of_the_host_on_which_they_were_saved() -> None:
    """The host that the guest leaves is dead, and not in the fleet."""
    asked = replace(request(networks=BRIDGED), names=HostNames("kvm9", MAPS))
    for there, reason in ((host(maps=OTHER, bridges=["br-prod"]), ""), (host(maps=MAPS, bridges=["br0"]), "")):
        assert check_host(asked, there, fleet(there)).reason == reason
    plain = host(bridges=["br0"])
    assert check_host(asked, plain, fleet(plain)).reason == "kvm2 has no bridge 'prod' in kvmfleet_bridge_map, and br0 is 'prod' on kvm9."


def test_a_name_that_only_one_host_knows_is_refused_and_force_does_not_help() -> None:
    asked, there = request(networks=BRIDGED), host(bridges=["br0"])
    verdict = check_host(asked, there, fleet(there, host("kvm1", maps=MAPS)), force=True)
    assert [failure["filter"] for failure in verdict.failures] == ["resource_maps"]
    assert verdict.reason == "kvm2 has no bridge 'prod' in kvmfleet_bridge_map, and br0 is 'prod' on kvm1."


def test_a_mapped_device_is_found_at_its_address_there() -> None:
    asked = request(devices=[HELD])
    assert reason_of(asked, host(maps=OTHER, devices=[GPU_THERE])) == ""
    assert reason_of(asked, host(maps=OTHER, devices=[])) == "It has no pci device 0x10de:0x1eb8 at the address 0000:06:12.0."
    other = {**GPU_THERE, "product": "0x0001"}
    assert "It has another device at the address 0000:06:12.0" in reason_of(asked, host(maps=OTHER, devices=[other]))


def test_a_mapped_device_that_another_guest_holds_is_refused() -> None:
    taken = host("kvm2", domain("db1", devices=[{**HELD, "address": "0000:06:12.0"}]), maps=OTHER, devices=[GPU_THERE])
    assert reason_of(request(devices=[HELD]), taken) == "Its pci device 0x10de:0x1eb8 at the address 0000:06:12.0 is held by db1."


def test_a_guest_that_was_placed_holds_the_device_under_its_name_there() -> None:
    there = host(maps=OTHER, devices=[GPU_THERE], memory_mib=65536)
    before = fleet(there, host("kvm1", maps=MAPS, devices=[GPU]))
    after = before.with_domain(request("web1", devices=[HELD]), "kvm2")
    assert after.states["kvm2"].guests[request("web1").uuid].devices == frozenset({("pci", "0000:06:12.0")})
    second = request("web2", devices=[HELD])
    assert "is held by web1" in check_host(second, after.states["kvm2"], after).reason
    placed = plan_placements([request("web1", devices=[HELD]), second], before, ["kvm2"])
    assert [placement.destination for placement in placed] == ["kvm2", None]


def test_pinned_cpus_are_those_of_the_host() -> None:
    asked = request(vcpus=1, pinning={"vcpus": {"0": [1]}, "emulator": None})
    four = [{"id": 0, "total_mib": 8192, "free_mib": 8192, "cpus": [2, 3], "pages": []}]
    assert "CPU" in reason_of(asked, host(maps=OTHER, cpus=2, cpu_ids=[0, 1]))
    assert reason_of(asked, host(maps=OTHER, cpus=2, cpu_ids=[2, 3], numa_cells=four)) == ""


def test_an_image_with_another_path_must_be_proved_to_be_the_same_file() -> None:
    def mounts(path: str, store: str) -> list[dict[str, t.Any]]:
        return [{"path": path, "kind": "nfs", "store": store, "capacity_bytes": 10**12, "available_bytes": 10**12}]

    asked = request(disks=[DISK])
    assert reason_of(asked, host(maps=OTHER, mounts=mounts("/data", "nas:/vol"))) == ""
    assert reason_of(asked, host(maps=OTHER, mounts=mounts("/data", "nas:/other"))) == (
        "It is not proved that the image /data/web.qcow2 of disk vda, which is /srv/fast/web.qcow2 on kvm1, is the same file: "
        "it is on nas:/vol/web.qcow2, and there on nas:/other/web.qcow2."
    )
    assert "is the same file on kvm2 is not known" in warnings_of(asked, host(maps=OTHER, mounts=None))
    assert reason_of(asked, host(maps=OTHER, mounts=None, paths={"/data/web.qcow2": False})) == "The image /data/web.qcow2 of disk vda is not there."


def test_on_storage_without_an_identity_the_kinds_of_both_file_systems_are_compared() -> None:
    def mounts(path: str, kind: str) -> list[dict[str, t.Any]]:
        return [{"path": path, "kind": kind, "store": None, "capacity_bytes": 10**12, "available_bytes": 10**12}]

    asked, home = request(disks=[{**DISK, "store": None}]), host("kvm1", maps=MAPS, mounts=mounts("/srv/fast", "fuse.glusterfs"))
    for kind, refused in (("fuse.glusterfs", False), ("ext4", True)):
        there = host(maps=OTHER, mounts=mounts("/data", kind))
        verdict = check_host(asked, there, fleet(there, home))
        assert bool(verdict.reason) is refused
        assert bool(verdict.warnings) is not refused
    assert verdict.reason.endswith("it is on fuse.glusterfs at /srv/fast, and there on ext4 at /data.")


def test_the_search_for_hosts_and_the_reach_of_a_guest_use_the_same_names() -> None:
    there, without = host(maps=OTHER, bridges=["br-prod"]), host("kvm3", bridges=["br0", "br-prod"])
    hosts = Fleet({state.name: state for state in (host("kvm1", maps=MAPS, bridges=["br0"]), there, without)})
    asked = request(networks=BRIDGED)
    assert list(hosts_by_weight(asked, hosts, ["kvm2", "kvm3"], DEFAULT_FILTERS)) == ["kvm2"]
    (reach,) = find_reach([asked], hosts)
    assert reach.hosts == ("kvm1", "kvm2")


def test_the_guests_of_a_lost_host_are_judged_with_the_names_of_each_other_host() -> None:
    """An evacuation rewrites their definitions, as a move does."""
    there, without = host("kvm2", maps=OTHER, bridges=["br-prod"]), host("kvm3", bridges=["br0"])
    home = host("kvm1", domain("web1", networks=BRIDGED), maps=MAPS, bridges=["br0"])
    for others, verdict in (([without], CANNOT), ([without, there], CAN)):
        search = LossSearch(fleet(home, *others), {"kvm1": [request(networks=BRIDGED)]}, make_loss_rules())
        assert search.judge(["kvm1"]).verdict == verdict
