# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import domain, host, judge_with, request

ADDRESS = "0000:06:12.0"
NIC = {"kind": "pci", "address": ADDRESS, "vendor": "0x8086", "product": "0x154c"}
HELD = {**NIC, "vendor": None, "product": None}


def test_the_same_device_at_the_same_address_is_a_warning() -> None:
    finding = judge_with("host_devices", request(devices=[HELD]), host(devices=[NIC]), host("kvm1", devices=[NIC]))
    assert finding.reason is None
    assert f"web1 holds pci device {ADDRESS}: only QEMU can say" in finding.warnings[0]


def test_a_missing_device_is_refused() -> None:
    reason = judge_with("host_devices", request(devices=[HELD]), host(devices=[]), host("kvm1", devices=[NIC])).reason
    assert reason == f"It has no pci device 0x8086:0x154c at the address {ADDRESS}."


def test_another_product_at_the_address_is_refused() -> None:
    other: dict[str, t.Any] = {**NIC, "product": "0x1572"}
    for needed in (HELD, NIC):
        reason = judge_with("host_devices", request(devices=[needed]), host(devices=[other]), host("kvm1", devices=[NIC])).reason
        assert "another device at the address" in str(reason)


def test_a_device_in_use_by_another_guest_is_refused() -> None:
    there = host("kvm2", domain("db1", devices=[HELD]), devices=[NIC])
    assert "is held by db1" in str(judge_with("host_devices", request(devices=[HELD]), there).reason)
    assert judge_with("host_devices", request("db1", devices=[HELD]), there).reason is None


def test_a_device_of_a_network_may_be_missing_or_held_because_the_network_gives_another_one() -> None:
    given = {**HELD, "network": "pool"}
    assert judge_with("host_devices", request(devices=[given]), host("kvm2", domain("db1", devices=[given]), devices=[NIC])).reason is None
    assert judge_with("host_devices", request(devices=[given]), host(devices=[])).reason is None
    held = host("kvm2", domain("db1", devices=[given]), devices=[NIC])
    assert "is held by db1" in str(judge_with("host_devices", request(devices=[HELD]), held).reason)


def test_a_device_without_an_address_is_found_by_vendor_and_product() -> None:
    stick = {"kind": "usb", "address": "", "vendor": "0x0951", "product": "0x1666"}
    assert judge_with("host_devices", request(devices=[stick]), host(devices=[{**stick, "address": "1:4"}])).reason is None
    for other in (NIC, {**stick, "kind": "pci"}, {**stick, "product": "0x1667"}):
        assert judge_with("host_devices", request(devices=[stick]), host(devices=[other])).reason == "It has no usb device 0x0951:0x1666."


def test_an_optional_device_may_be_missing_but_not_held_by_another_guest() -> None:
    stick = {"kind": "usb", "address": "1:4", "vendor": "0x0951", "product": "0x1666"}
    for wanted in (stick, {**stick, "address": ""}):
        finding = judge_with("host_devices", request(devices=[{**wanted, "optional": True}]), host(devices=[]))
        reason = judge_with("host_devices", request(devices=[wanted]), host(devices=[])).reason
        assert (finding.reason, finding.warnings[0]) == (None, f"{reason} web1 would be without it there: its startupPolicy allows that.")
    there = host("kvm2", domain("db1", devices=[stick]), devices=[stick])
    assert "is held by db1" in str(judge_with("host_devices", request(devices=[{**stick, "optional": True}]), there).reason)


def test_another_device_at_the_address_of_an_optional_one_is_the_same_as_none() -> None:
    """libvirt adds the address at the start, and compares vendor and product: only without these does it take what is there."""
    keyboard: dict[str, t.Any] = {"kind": "usb", "address": "1:4", "vendor": "0x046d", "product": "0xc31c"}
    stick = {**keyboard, "vendor": "0x0951", "product": "0x1666", "optional": True}
    finding = judge_with("host_devices", request(devices=[stick]), host(devices=[keyboard]))
    assert (finding.reason, "would be without it there" in finding.warnings[0]) == (None, True)
    nameless = {**stick, "vendor": None, "product": None}
    source = host("kvm1", devices=[{**stick, "optional": None}])
    assert "another device at the address" in str(judge_with("host_devices", request(devices=[nameless]), host(devices=[keyboard]), source).reason)


def test_a_device_with_a_different_vendor_than_defined_is_refused() -> None:
    by_vendor = {**HELD, "vendor": "0x10de"}
    assert judge_with("host_devices", request(devices=[by_vendor]), host(devices=[NIC]), host("kvm1", devices=[NIC])).reason


def test_unknown_devices_of_a_host_are_a_warning() -> None:
    finding = judge_with("host_devices", request(devices=[HELD]), host(devices=None))
    assert finding.reason is None
    assert "is not known" in finding.warnings[0]


def test_a_guest_without_devices_passes_without_a_warning() -> None:
    finding = judge_with("host_devices", request(), host(devices=None))
    assert (finding.reason, finding.warnings) == (None, ())
