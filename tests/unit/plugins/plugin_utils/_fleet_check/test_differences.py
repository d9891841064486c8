# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fleet_check.differences import (
    ClockOffset,
    find_clock_skew,
    find_network_differences,
    find_old_protection,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet_guests import FleetGuests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, silent_host


def interface(name: str, kind: str = "", mtu: int = 1500, vlan: t.Optional[int] = None, controller: t.Optional[str] = None) -> f.Document:
    return {"name": name, "kind": kind, "mtu": mtu, "vlan": vlan, "lower": None, "controller": controller}


def view(*states: HostState) -> FleetGuests:
    guests = {
        state.name: [Request.from_needs(domain.request, domain.uuid, domain.name, state.name) for domain in state.hardware.facts.domains or ()]
        for state in states
    }
    return FleetGuests(Fleet({state.name: state for state in states}), guests)


def messages(*states: HostState) -> list[tuple[tuple[str, ...], str]]:
    return [(finding.hosts, finding.msg) for finding in find_network_differences(view(*states))]


def test_hosts_that_are_equal_differ_in_nothing() -> None:
    details = [interface("br0", "bridge", 9000), interface("eth0", "", 9000, controller="br0"), interface("lo", "", 65536)]
    assert messages(host("kvm1", f.domain("web1"), interface_details=details), host("kvm2", interface_details=details), silent_host("kvm3")) == []


def test_the_mtu_of_a_bridge_and_of_an_uplink_is_compared_and_that_of_other_interfaces_is_not() -> None:
    first = [interface("br0", "bridge", 9000), interface("eth0", "", 9000), interface("veth1", "veth", 9000), interface("lo", "", 65536)]
    other = [interface("br0", "bridge"), interface("eth0", ""), interface("veth1", "veth"), interface("lo", "", 16436)]
    found = messages(host("kvm1", interface_details=first), host("kvm2", interface_details=first), host("kvm3", interface_details=other))
    assert found == [
        (("kvm3",), "The MTU of br0 differs: 9000 on kvm1, kvm2; 1500 on kvm3."),
        (("kvm3",), "The MTU of eth0 differs: 9000 on kvm1, kvm2; 1500 on kvm3."),
    ]


def test_the_vlan_behind_a_bridge_is_compared() -> None:
    bridge = interface("br20", "bridge")
    there = [[bridge, interface(f"eth0.{vlan}", "vlan", vlan=vlan, controller="br20")] for vlan in (20, 30)]
    (found,) = messages(host("kvm1", interface_details=there[0]), host("kvm2", interface_details=there[0]), host("kvm3", interface_details=there[1]))
    assert found == (("kvm3",), "The VLANs of the bridge br20 differ: 20 on kvm1, kvm2; 30 on kvm3.")


def test_a_bridge_of_guests_that_a_host_lacks_is_named() -> None:
    without = host("kvm2", bridges=[], networks=[])
    assert messages(host("kvm1", f.domain("web1")), without) == [(("kvm2",), "kvm2: there is no bridge br0, which guests of the fleet use.")]
    assert messages(host("kvm1"), without) == []
    assert messages(host("kvm1", f.domain("web1")), host("kvm2", bridges=None)) == []


@pytest.mark.parametrize(
    ("offsets", "is_found"), [([(0.0, 1.0), (2.9, 4.0)], False), ([(0.0, 1.0), (3.2, 4.0)], True), ([(-9.0, -8.0), (0.1, 0.2)], True), ([], False)]
)
def test_clocks_are_compared_by_what_is_certain(offsets: list[tuple[float, float]], is_found: bool) -> None:
    clocks = {f"kvm{number + 1}": ClockOffset(*offset) for number, offset in enumerate(offsets)}
    assert bool(find_clock_skew(clocks, 2)) is is_found


def test_the_host_that_is_ahead_is_named() -> None:
    (finding,) = find_clock_skew({"kvm1": ClockOffset(-1, 1), "kvm2": ClockOffset(60, 61)}, 2)
    assert finding.hosts == ("kvm1", "kvm2")
    assert finding.msg == "The clock of kvm2 is at least 59.0 s ahead of that of kvm1. Check the time service on both."


def test_hosts_that_were_never_protected_or_long_ago_are_named() -> None:
    entries = [protected_host("kvm1", 3), protected_host("kvm2", 30), protected_host("kvm3", None)]
    found = find_old_protection(["kvm1", "kvm2", "kvm3", "kvm4"], entries, 24)
    assert [(finding.kind, finding.hosts) for finding in found] == [("protection", ("kvm3", "kvm4")), ("protection", ("kvm2",))]
    assert "30 h ago" in found[1].msg


def protected_host(name: str, hours: int | None, state: str = "enabled") -> HostEntry:
    at = None if hours is None else (datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours)).isoformat()
    return host_entry({"name": name, "state": state, **({"protected": {"at": at}} if at else {})})


def test_a_protection_from_the_future_is_not_young() -> None:
    entries = [protected_host("kvm1", 3), protected_host("kvm2", -3)]
    (finding,) = find_old_protection(["kvm1", "kvm2"], entries, 24)
    assert (finding.kind, finding.hosts) == ("protection", ("kvm2",))
    assert finding.msg.endswith("which is in the future: a clock was wrong, so its age is not known. Protect it again.")


def test_hosts_that_are_not_in_service_need_not_be_protected() -> None:
    entries = [protected_host("kvm1", 3), protected_host("kvm2", 300, "maintenance"), protected_host("kvm3", None, "fenced")]
    assert find_old_protection(["kvm1", "kvm2", "kvm3"], entries, 24) == []
