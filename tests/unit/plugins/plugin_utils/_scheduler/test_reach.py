# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.reach import REACH_FILTERS, Reach, find_reach
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import check_host
from ansible_collections.kvmfleet.migration.tests.simulator import exhaustive, fleets
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, silent_host, uuid_of


def requests(state: HostState) -> t.List[Request]:
    domains = state.hardware.facts.domains or ()
    return [Request.from_needs(domain.request, domain.uuid, domain.name, state.name, state.host_uuid) for domain in domains if domain.active]


def reach_of(*hosts: HostState) -> t.List[Reach]:
    return find_reach([request for state in hosts for request in requests(state)], Fleet({state.name: state for state in hosts}))


def names(reach: Reach) -> t.List[str]:
    return [request.name for request in reach.guests]


def test_equal_guests_are_judged_together_on_all_hosts_that_answered() -> None:
    disks = [[f.disk("vda", source=f"/srv/images/{name}.qcow2", store=f"nfs4:nas:/images/{name}.qcow2")] for name in ("a", "b")]
    (reach,) = reach_of(host("kvm1", f.domain("web1", disks=disks[0])), host("kvm2", f.domain("web2", disks=disks[1])), silent_host("kvm3"))
    assert names(reach) == ["web1", "web2"]
    assert reach.hosts == ("kvm1", "kvm2")
    assert (reach.refused, reach.unsure, reach.one_way) == ((), (), ())


@pytest.mark.parametrize(
    ("needs", "filters"),
    [
        ({"cpu": {"mode": "custom", "model": "Haswell", "features": {"avx512f": "require"}}}, "cpu_model"),
        ({"networks": [{"type": "bridge", "source": "br20"}]}, "networks"),
        ({"machine": "pc-q35-10.0"}, "machine_type"),
        ({"disks": [f.disk("vda", source="/srv/images/1", store="nfs4:other:/db/1")]}, "storage"),
        ({"devices": [{"kind": "pci", "address": "0000:06:12.0"}]}, "host_devices"),
        ({"memory_mib": 100_000}, "memory"),
    ],
)
def test_the_filter_that_blocks_a_guest_is_named(needs: t.Dict[str, t.Any], filters: str) -> None:
    memory_mib = needs.pop("memory_mib", 1024)
    (reach,) = reach_of(host("kvm1", f.domain("web1", memory_mib, **needs)), host("kvm2"), host("kvm3"))
    (refusal,) = reach.refused
    assert {"kvm2", "kvm3"} <= set(refusal.hosts)
    assert refusal.filters == (filters,)
    assert refusal.reason


def test_hosts_with_other_port_groups_or_network_filters_are_judged_apart() -> None:
    guest = f.domain("web1", networks=[{"type": "network", "source": "default", "portgroup": "dmz", "network_filter": "own-rules"}])
    network = {"name": "default", "active": True, "bridge": "virbr0"}
    grouped = [{**network, "portgroups": ["dmz"]}]
    own = host("kvm1", guest, networks=grouped, network_filters=["own-rules"])
    (reach,) = reach_of(own, host("kvm2", networks=grouped, network_filters=[]), host("kvm3", networks=grouped, network_filters=None), host("kvm4"))
    assert reach.hosts == ("kvm1", "kvm3")
    assert [refusal.hosts for refusal in reach.refused] == [("kvm2", "kvm4")]


def test_guests_of_networks_of_different_kinds_are_judged_apart() -> None:
    def with_network(name: str, guest: str, forward: str | None) -> HostState:
        needs = f.domain(guest, networks=[{"type": "network", "source": "front"}])
        return host(name, needs, networks=[{"name": "front", "active": True, "bridge": None, "forward": forward}])

    found = reach_of(with_network("kvm1", "web1", "bridge"), with_network("kvm2", "web2", None), with_network("kvm3", "web3", "bridge"))
    assert {request.name: reach.hosts for reach in found for request in reach.guests} == {
        "web1": ("kvm1", "kvm3"),
        "web2": ("kvm2",),
        "web3": ("kvm1", "kvm3"),
    }


def test_hosts_are_compared_by_their_own_names_of_networks() -> None:
    """Two hosts with the same map, of which one lacks the network."""
    maps = ResourceMaps(networks={"lan": "lan-b"}, bridges={"br0": "br-b"})
    network = {"name": "lan", "active": True, "bridge": None, "forward": "bridge"}
    there = {"networks": [{**network, "name": "lan-b"}], "bridges": ["br-b"]}
    for need in ({"type": "network", "source": "lan"}, {"type": "bridge", "source": "br0"}):
        own = host(
            "kvm1", f.domain("web1", networks=[need]), networks=[network], bridges=["br0"], maps=ResourceMaps(networks={"lan": "lan"}, bridges={"br0": "br0"})
        )
        (reach,) = reach_of(own, host("kvm2", maps=maps, **there), host("kvm3", maps=maps, networks=[], bridges=[]))
        assert reach.hosts == ("kvm1", "kvm2")


def test_guests_of_which_one_network_is_unknown_on_their_host_are_judged_apart() -> None:
    def with_network(name: str, guest: str, network: str) -> HostState:
        needs = f.domain(guest, networks=[{"type": "network", "source": "back"}, {"type": "network", "source": "front"}])
        return host(name, needs, networks=[{"name": network, "active": True, "bridge": None, "forward": "nat"}])

    kinds = [{"name": name, "active": True, "bridge": None, "forward": forward} for name, forward in (("back", "nat"), ("front", "bridge"))]
    found = reach_of(with_network("kvm1", "web1", "back"), with_network("kvm2", "web2", "front"), host("kvm3", networks=kinds))
    assert {request.name: reach.hosts for reach in found for request in reach.guests} == {"web1": ("kvm3",), "web2": ()}


def test_default_port_groups_divide_guests_and_hosts() -> None:
    def with_network(name: str, default: str | None, *guests: str) -> HostState:
        needs = [f.domain(guest, networks=[{"type": "network", "source": "front"}]) for guest in guests]
        return host(name, *needs, networks=[{"name": "front", "active": True, "bridge": None, "default_portgroup": default}])

    found = reach_of(with_network("kvm1", "office", "web1"), with_network("kvm2", None, "web2"), with_network("kvm3", "office"))
    assert {request.name: reach.hosts for reach in found for request in reach.guests} == {"web1": ("kvm1", "kvm3"), "web2": ("kvm1", "kvm2", "kvm3")}


def test_secrets_divide_hosts() -> None:
    (reach,) = reach_of(
        host("kvm1", f.domain("web1", secrets=["ceph x"]), secrets=["ceph x"]), host("kvm2", secrets=["ceph y"]), host("kvm3", secrets=["ceph x"])
    )
    assert (reach.hosts, [refusal.hosts for refusal in reach.refused]) == (("kvm1", "kvm3"), [("kvm2",)])


def test_vlans_of_networks_divide_guests_and_hosts() -> None:
    def with_network(name: str, vlan: str | None, *guests: str) -> HostState:
        needs = [f.domain(guest, networks=[{"type": "network", "source": "front"}]) for guest in guests]
        return host(name, *needs, networks=[{"name": "front", "active": True, "bridge": None, "vlan": vlan}])

    found = reach_of(with_network("kvm1", "42", "web1"), with_network("kvm2", None, "web2"), with_network("kvm3", "42"))
    assert {request.name: reach.hosts for reach in found for request in reach.guests} == {"web1": ("kvm1", "kvm3"), "web2": ("kvm2",)}


def test_guests_of_pools_of_different_types_are_judged_apart() -> None:
    disks = [f.disk("vda", kind="volume", source="images/vda", store=None)]
    pools = {kind: [{"name": "images", "type": kind, "active": True, "path": None}] for kind in ("rbd", "gluster")}
    hosts = [host(name, f.domain(guest, disks=disks), pools=pools[kind]) for name, guest, kind in (("kvm1", "web1", "rbd"), ("kvm2", "web2", "gluster"))]
    assert {tuple(names(reach)): reach.hosts for reach in reach_of(*hosts)} == {("web1",): ("kvm1",), ("web2",): ("kvm2",)}


def test_volumes_that_are_devices_divide_guests_and_hosts() -> None:
    """A pool of that name may have another device on each host, or none."""

    def with_pool(name: str, volumes: dict[str, str], *guests: str, kind: str = "iscsi", path: str = "/dev/disk/by-path") -> HostState:
        domains = [f.domain(guest, disks=[f.disk("vda", None, kind="volume", source=f"san/{guest}", store=None)]) for guest in guests]
        return host(name, *domains, pools=[{"name": "san", "type": kind, "active": True, "path": path, "volumes": volumes}])

    both = {"web1": "/dev/x", "web2": "/dev/y"}
    reaches = reach_of(with_pool("kvm1", both, "web1", "web2"), with_pool("kvm2", {"web1": "/dev/x"}), with_pool("kvm3", {**both, "web1": "/dev/z"}))
    assert {names(reach)[0]: reach.hosts for reach in reaches} == {"web1": ("kvm1", "kvm2"), "web2": ("kvm1", "kvm3")}
    groups = [with_pool(f"kvm{number}", {}, f"web{number}", kind="logical", path=f"/dev/vg{number % 2}") for number in (1, 2, 3)]
    assert [(names(reach), reach.hosts) for reach in reach_of(*groups)] == [(["web1", "web3"], ("kvm1", "kvm3")), (["web2"], ("kvm2",))]


def with_mount(name: str, *domains: dict[str, t.Any], silent: bool) -> HostState:
    return host(name, *domains, mounts=[{"path": "/srv/images", "kind": "nfs4", "store": "nfs4:nas:/images", **({"silent": True} if silent else {})}])


def domain_on_mount(name: str) -> dict[str, t.Any]:
    return f.domain(name, disks=[f.disk("vda", source=f"/srv/images/{name}.qcow2", store=f"nfs4:nas:/images/{name}.qcow2")])


@pytest.mark.parametrize("silent", ["kvm1", "kvm2"])
def test_a_file_system_that_does_not_answer_divides_equal_hosts(silent: str) -> None:
    empty = [with_mount(name, silent=name == silent) for name in ("kvm1", "kvm2")]
    (reach,) = reach_of(*empty, with_mount("kvm3", domain_on_mount("web1"), silent=False))
    assert [refusal.hosts for refusal in reach.refused] == [(silent,)]
    assert reach.hosts == tuple(sorted({"kvm1", "kvm2", "kvm3"} - {silent}))


@pytest.mark.parametrize("silent", ["kvm1", "kvm2"])
def test_a_file_system_that_does_not_answer_divides_equal_guests(silent: str) -> None:
    guests = {"kvm1": domain_on_mount("web1"), "kvm2": domain_on_mount("web2")}
    found = reach_of(*(with_mount(name, domain, silent=name == silent) for name, domain in guests.items()), with_mount("kvm3", silent=False))
    answering = tuple(sorted({"kvm1", "kvm2", "kvm3"} - {silent}))
    assert {reach.guests[0].source: reach.hosts for reach in found} == {name: () if name == silent else answering for name in guests}


def test_what_else_runs_on_a_host_does_not_matter() -> None:
    full = host("kvm2", f.domain("db1", 8192, group={"name": "set", "policy": "anti-affinity"}), entry={"name": "kvm2", "state": "maintenance"})
    reach = {tuple(names(one)): one for one in reach_of(host("kvm1", f.domain("web1", group={"name": "set", "policy": "anti-affinity"})), full)}
    assert reach["web1",].hosts == ("kvm1", "kvm2")


def test_huge_pages_that_guests_hold_now_count() -> None:
    cells = [{"id": 0, "total_mib": 8704, "free_mib": 8704, "cpus": [0], "pages": [{"size_kib": 2048, "total": 512, "free": 0}]}]
    pages = {"hugepages": [{"size_kib": 2048, "mib": 1024}]}
    here, there = host("kvm1", f.domain("web1", **pages), numa_cells=cells), host("kvm2", f.domain("db1", 1024, 2, **pages), numa_cells=cells)
    assert [reach.hosts for reach in reach_of(here, there)] == [("kvm1", "kvm2"), ("kvm1", "kvm2")]


def test_libvirts_comparison_divides_equal_hosts_and_equal_guests() -> None:
    refused = CpuVerdict(False, "its CPU lacks avx2")
    verdicts = {uuid_of("web1"): refused, uuid_of("web2"): CpuVerdict(True, None)}
    found = reach_of(host("kvm1", f.domain("web1"), f.domain("web2")), host("kvm2", cpu_verdicts=verdicts), host("kvm3"))
    assert {tuple(names(reach)): reach.hosts for reach in found} == {("web1",): ("kvm1", "kvm3"), ("web2",): ("kvm1", "kvm2", "kvm3")}


def test_a_host_with_a_newer_qemu_is_a_one_way_street() -> None:
    newer = host("kvm2", versions={"libvirt": 11003000, "hypervisor": 10_000_000})
    slightly = host("kvm3", versions={"libvirt": 9000000, "hypervisor": f.HYPERVISOR + 9})
    (reach,) = reach_of(host("kvm1", f.domain("web1")), newer, slightly)
    assert reach.hosts == ("kvm1", "kvm2", "kvm3")
    assert reach.one_way == ("kvm2",)


def test_the_reason_for_several_guests_names_none_of_them() -> None:
    cpu = {"mode": "custom", "model": "Haswell", "features": {"avx512f": "require"}}
    (reach,) = reach_of(host("kvm1", f.domain("web1", cpu=cpu), f.domain("web2", cpu=cpu)), host("kvm2"))
    assert reach.refused[0].reason == "Its CPU lacks avx512f, which the guest has been using."


def test_what_is_not_known_is_listed_apart() -> None:
    (reach,) = reach_of(host("kvm1", f.domain("web1")), host("kvm2", platforms=None))
    assert reach.hosts == ("kvm1", "kvm2")
    assert [unsure.hosts for unsure in reach.unsure] == [("kvm2",)]


@pytest.mark.parametrize("seed", range(40))
def test_grouping_changes_no_verdict(seed: int) -> None:
    whole = fleets.whole(seed)
    fleet = exhaustive.whole_fleet_of(whole)
    empty = exhaustive.whole_fleet_of(fleets.Whole({name: {**facts, "domains": []} for name, facts in whole.facts.items()}, whole.settings))
    wanted = [request for name, facts in whole.facts.items() for request in exhaustive.requests_from(name, facts)]
    found = {request.uuid: reach.hosts for reach in find_reach(wanted, fleet) for request in reach.guests}
    for request in wanted:
        assert found[request.uuid] == tuple(sorted(name for name, state in empty.states.items() if check_host(request, state, empty, REACH_FILTERS).passed))
