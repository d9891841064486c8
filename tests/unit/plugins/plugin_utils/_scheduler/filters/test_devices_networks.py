# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import Finding, HostState, host, judge_with, request


def judge_network(kind: str, source: str, **facts: t.Any) -> Finding:
    return judge_with("networks", request(networks=[{"type": kind, "source": source}]), host(**facts))


@pytest.mark.parametrize(
    ("kind", "source"), [("network", "default"), ("bridge", "br0"), ("bridge", "virbr0"), ("direct", "eth0"), ("user", ""), ("vhostuser", "/run/sock")]
)
def test_existing_networks_bridges_and_interfaces_pass(kind: str, source: str) -> None:
    finding = judge_network(kind, source)
    assert (finding.reason, finding.warnings) == (None, ())


@pytest.mark.parametrize(
    ("kind", "reason"), [("network", "It has no network br9."), ("bridge", "It has no bridge br9."), ("direct", "It has no network interface br9.")]
)
def test_a_missing_network_bridge_or_interface_is_refused(kind: str, reason: str) -> None:
    assert judge_network(kind, "br9").reason == reason


def test_an_inactive_network_or_its_bridge_is_refused() -> None:
    networks = [{"name": "default", "active": False, "bridge": "virbr0"}]
    assert judge_network("network", "default", networks=networks).reason == "Its network default is not active."
    assert judge_network("bridge", "virbr0", networks=networks).reason == "It has no bridge virbr0."


def judge_port_group(**network: t.Any) -> Finding:
    needs = request(networks=[{"type": "network", "source": "front", "portgroup": "dmz"}])
    return judge_with("networks", needs, host(networks=[{"name": "front", "active": True, "bridge": None, **network}]))


def test_a_network_without_the_port_group_is_refused() -> None:
    """libvirt would connect the guest all the same: without the VLAN of the group."""
    assert judge_port_group(portgroups=["office", "dmz"]).reason is None
    assert judge_port_group(portgroups=["office"]).reason == "Its network front has no port group dmz."
    assert judge_port_group().warnings == ("Whether kvm2 has the port group dmz of the network front is not known.",)


def judge_filter(**facts: t.Any) -> Finding:
    needs = request(networks=[{"type": "bridge", "source": "br0", "network_filter": "own-rules"}])
    return judge_with("networks", needs, host(**facts))


def test_a_host_without_the_network_filter_is_refused() -> None:
    """libvirt would refuse the guest on arrival and at a start."""
    assert judge_filter(network_filters=["clean-traffic", "own-rules"]).reason is None
    assert judge_filter().reason == "It has no network filter own-rules."
    assert judge_filter(network_filters=None).warnings == ("Whether kvm2 has the network filter own-rules is not known.",)


def judge_switch(kind: str, **facts: t.Any) -> Finding:
    needs = request(networks=[{"type": "bridge", "source": "ovs0", "virtualport": "openvswitch"}])
    details = [{"name": "ovs0", "kind": kind, "mtu": 1500}]
    return judge_with("networks", needs, host(**{"interfaces": ["eth0", "ovs0"], "bridges": [], "interface_details": details, **facts}))


def test_a_bridge_of_another_kind_is_refused() -> None:
    """libvirt can add the port to a bridge of Open vSwitch only."""
    assert judge_switch("openvswitch", bridges=["ovs0"]).reason is None
    assert judge_switch("bridge", bridges=["ovs0"]).reason == "Its bridge ovs0 is not one of Open vSwitch."


def test_a_bridge_of_open_vswitch_with_a_data_path_of_its_own_is_none_of_the_kernel() -> None:
    # The local port is a tap device.
    assert judge_switch("tun", interface_details=[]).reason is None
    assert judge_switch("tun", interfaces=["eth0"]).reason == "It has no bridge ovs0."
    assert judge_switch("tun", interfaces=None, bridges=None).warnings == ("Whether kvm2 has the bridge ovs0 is not known.",)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("bridge", None, "Its network default is isolated, and web1 is on one that is bridged."),
        ("bridge", "nat", "Its network default is translated (NAT), and web1 is on one that is bridged."),
        ("nat", "route", "Its network default is routed, and web1 is on one that is translated (NAT)."),
        ("bridge", "private", None),
        ("route", "open", None),
        ("nat", ..., None),
        (..., "nat", None),
    ],
)
def test_a_network_of_that_name_and_another_kind_is_refused(before: t.Any, after: t.Any, reason: t.Optional[str]) -> None:
    """libvirt would connect the guest all the same."""

    def network(forward: t.Any) -> list[dict[str, t.Any]]:
        return [{"name": "default", "active": True, "bridge": None, **({} if forward is ... else {"forward": forward})}]

    needs = request(networks=[{"type": "network", "source": "default"}])
    assert judge_with("networks", needs, host(networks=network(after)), host("kvm1", networks=network(before))).reason == reason


@pytest.mark.parametrize(
    ("before", "after", "portgroup", "reason"),
    [
        ("office", None, {}, "Its network front has no default port group, and web1 is in that of its network (office)."),
        ("office", "staff", {}, None),
        ("office", None, {"portgroup": "dmz"}, None),
        ("office", ..., {}, None),
        (None, None, {}, None),
        (..., None, {}, None),
    ],
)
def test_a_network_without_a_default_port_group_is_refused(before: t.Any, after: t.Any, portgroup: dict[str, str], reason: t.Optional[str]) -> None:
    """An interface that names no group belongs to the default one, with its VLAN."""

    def network(default: t.Any) -> list[dict[str, t.Any]]:
        return [{"name": "front", "active": True, "bridge": None, "portgroups": ["dmz"], **({} if default is ... else {"default_portgroup": default})}]

    needs = request(networks=[{"type": "network", "source": "front", **portgroup}])
    assert judge_with("networks", needs, host(networks=network(after)), host("kvm1", networks=network(before))).reason == reason


OFFICE, STAFF = {"vlan": None, "vlans": {"office": "42"}}, {"vlan": None, "vlans": {"office": "43"}}


@pytest.mark.parametrize(
    ("before", "after", "need", "reason"),
    [
        ({"vlan": "42"}, {"vlan": "43"}, {}, "Its network front would connect web1 with the VLAN 43 and not with the VLAN 42."),
        ({"vlan": "42"}, {"vlan": None}, {}, "Its network front would connect web1 with no VLAN and not with the VLAN 42."),
        ({"vlan": None}, {"vlan": "trunk 42, 47"}, {}, "Its network front would connect web1 with the VLAN trunk 42, 47 and not with no VLAN."),
        ({"vlan": "42"}, {"vlan": "42"}, {}, None),
        (OFFICE, STAFF, {"portgroup": "office"}, "the VLAN 43 and not with the VLAN 42."),
        (OFFICE, STAFF, {"portgroup": "dmz"}, None),
        (OFFICE, STAFF, {}, None),
        (
            {**OFFICE, "default": "office"},
            {**STAFF, "default": "office"},
            {},
            "the VLAN 43 and not with the VLAN 42.",
        ),
        ({"vlan": "42"}, OFFICE, {"portgroup": "office"}, None),
        ({"vlan": "42"}, {"vlan": "43"}, {"vlan": "42"}, "the VLAN 43 and not with the VLAN 42."),
        ({"vlan": "42"}, {"vlan": "43"}, {"vlan": "7"}, None),
        ({"vlan": None}, {"vlan": "43"}, {"vlan": "7"}, None),
        ({"vlan": "42"}, {}, {}, None),
        ({}, {"vlan": "42"}, {}, None),
    ],
)
def test_a_network_with_other_vlans_is_refused(before: t.Any, after: t.Any, need: dict[str, str], reason: t.Optional[str]) -> None:
    """libvirt connects the guest without an error. Tags of an interface itself replace those of its network, on every host."""

    def network(vlan: t.Any = ..., vlans: t.Optional[dict[str, str]] = None, default: t.Optional[str] = None) -> list[dict[str, t.Any]]:
        known = {} if vlan is ... else {"vlan": vlan, "portgroup_vlans": vlans or {}, "default_portgroup": default}
        return [{"name": "front", "active": True, "bridge": None, "portgroups": ["dmz", "office"], **known}]

    needs = request(networks=[{"type": "network", "source": "front", **need}])
    found = judge_with("networks", needs, host(networks=network(**after)), host("kvm1", networks=network(**before))).reason
    assert found is None if reason is None else str(found).endswith(reason)


def test_the_vlan_of_a_network_on_a_dead_host_is_the_saved_one() -> None:
    def judge_saved(**saved: t.Any) -> t.Optional[str]:
        front = {"name": "front", "active": True, "bridge": None, "portgroups": [], "vlan": "43"}
        return judge_with("networks", request(networks=[{"type": "network", "source": "front", **saved}]), host(networks=[front])).reason

    assert judge_saved(network_vlan="42") == "Its network front would connect web1 with the VLAN 43 and not with the VLAN 42."
    assert judge_saved(network_vlan=None)
    assert judge_saved(network_vlan="43") is None
    assert judge_saved() is None


def test_the_kind_of_a_network_on_a_dead_host_is_the_saved_one() -> None:
    """The source is no host of the fleet any more. While it answers, its own network counts."""

    def judge_saved(forward: t.Any, *others: HostState) -> Finding:
        needs = request(networks=[{"type": "network", "source": "default", "forward": forward}])
        isolated = host(networks=[{"name": "default", "active": True, "bridge": None, "forward": None}])
        return judge_with("networks", needs, isolated, *others)

    assert judge_saved("bridge").reason == "Its network default is isolated, and web1 is on one that is bridged."
    assert judge_saved(None).reason is None
    own = host("kvm1", networks=[{"name": "default", "active": True, "bridge": None, "forward": None}])
    assert judge_saved("bridge", own).reason is None


def test_unknown_networks_and_bridges_are_a_warning() -> None:
    assert judge_network("network", "x", networks=None).warnings == ("Whether kvm2 has the network x is not known.",)
    assert judge_network("bridge", "br9", bridges=None).warnings
    assert judge_network("bridge", "virbr0", bridges=None).warnings == ()
    assert judge_network("direct", "eth9", interfaces=None).warnings


def test_a_missing_bridge_of_two_interfaces_is_named_once() -> None:
    asked = request(networks=[{"type": "bridge", "source": "br9"}] * 2 + [{"type": "bridge", "source": "br8"}])
    assert judge_with("networks", asked, host()).reason == "It has no bridge br9. It has no bridge br8."
