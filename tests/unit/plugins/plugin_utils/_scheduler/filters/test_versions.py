# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.versions import newest_of_family
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, judged, request

VERSIONS = {"libvirt": 9000000, "hypervisor": 7002005}


def test_a_machine_type_that_is_there_passes() -> None:
    assert judged("machine_type", request(machine="pc-q35-7.2"), host()).reason is None


def test_a_newer_machine_type_is_refused_with_the_newest_of_its_family() -> None:
    reason = judged("machine_type", request(machine="pc-q35-8.1"), host()).reason
    assert reason == "It does not have the machine type pc-q35-8.1: the newest of that family is pc-q35-7.2."


def test_a_machine_type_of_another_family_has_none() -> None:
    assert "it has none of that family" in str(judged("machine_type", request(machine="microvm"), host()).reason)


def test_the_newest_goes_by_number_and_not_by_letter() -> None:
    assert newest_of_family("pc-q35-11.0", ["pc-q35-9.2", "pc-q35-10.0", "pc-i440fx-10.1", "q35"]) == "pc-q35-10.0"
    assert newest_of_family("pc-q35-rhel9.6.0", ["pc-q35-rhel9.4.0", "pc-q35-rhel8.6.0", "pc-q35-9.6"]) == "pc-q35-rhel9.4.0"


def test_a_host_without_the_platform_says_what_it_has() -> None:
    reason = judged("machine_type", request(virt_type="qemu", arch="aarch64"), host()).reason
    assert reason == "It cannot run guests of qemu for aarch64; it has kvm for x86_64."


@pytest.mark.parametrize("unsaid", [{"arch": None}, {"virt_type": None}, {"machine": None}])
def test_what_a_saved_request_does_not_say_is_not_judged(unsaid: dict[str, None]) -> None:
    assert judged("machine_type", request(**unsaid), host()).reason is None


def test_a_host_whose_platforms_are_not_known_is_a_warning() -> None:
    finding = judged("machine_type", request(), host(platforms=None))
    assert finding.reason is None
    assert len(finding.warnings) == 1


@pytest.mark.parametrize(
    ("runs_on", "refused", "warned"),
    [(7002005, False, False), (7002004, False, False), (6000000, False, False), (7002006, False, True), (7003000, True, False), (8000000, True, False)],
)
def test_an_older_hypervisor_is_refused_and_a_little_older_one_is_a_warning(runs_on: int, refused: bool, warned: bool) -> None:
    finding = judged("hypervisor", request(hypervisor=runs_on), host(versions=VERSIONS))
    assert (bool(finding.reason), bool(finding.warnings)) == (refused, warned)


def test_the_versions_are_named() -> None:
    assert judged("hypervisor", request(hypervisor=8002001), host(versions=VERSIONS)).reason == "Its QEMU is older: 7.2.5, and web1 runs on 8.2.1."


def test_a_version_that_is_not_known() -> None:
    assert judged("hypervisor", request(hypervisor=None), host(versions=VERSIONS)).reason is None
    assert judged("hypervisor", request(), host(versions={})).warnings == ("The QEMU version of kvm2 is not known.",)
