# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.cpu import newest_of_family
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, judge_with, request

VERSIONS = {"libvirt": 9000000, "hypervisor": 7002005}


def test_an_existing_machine_type_passes() -> None:
    assert judge_with("machine_type", request(machine="pc-q35-7.2"), host()).reason is None


def test_a_newer_machine_type_is_refused_with_the_newest_of_its_family() -> None:
    reason = judge_with("machine_type", request(machine="pc-q35-8.1"), host()).reason
    assert reason == "It does not have the machine type pc-q35-8.1: the newest of that family is pc-q35-7.2."


def test_a_machine_type_of_an_unknown_family_is_refused() -> None:
    assert "it has none of that family" in str(judge_with("machine_type", request(machine="microvm"), host()).reason)


def test_the_newest_machine_type_of_a_family_is_compared_by_number() -> None:
    assert newest_of_family("pc-q35-11.0", ["pc-q35-9.2", "pc-q35-10.0", "pc-i440fx-10.1", "q35"]) == "pc-q35-10.0"
    assert newest_of_family("pc-q35-rhel9.6.0", ["pc-q35-rhel9.4.0", "pc-q35-rhel8.6.0", "pc-q35-9.6"]) == "pc-q35-rhel9.4.0"


def test_a_host_without_the_platform_is_refused_with_those_it_has() -> None:
    reason = judge_with("machine_type", request(virt_type="qemu", arch="aarch64"), host()).reason
    assert reason == "It cannot run guests of qemu for aarch64; it has kvm for x86_64."


@pytest.mark.parametrize("unsaid", [{"arch": None}, {"virt_type": None}, {"machine": None}])
def test_a_saved_request_without_a_machine_type_passes(unsaid: dict[str, None]) -> None:
    assert judge_with("machine_type", request(**unsaid), host()).reason is None


def test_unknown_platforms_of_a_host_are_a_warning() -> None:
    finding = judge_with("machine_type", request(), host(platforms=None))
    assert finding.reason is None
    assert len(finding.warnings) == 1


@pytest.mark.parametrize(
    ("runs_on", "refused", "warned"),
    [(7002005, False, False), (7002004, False, False), (6000000, False, False), (7002006, False, True), (7003000, True, False), (8000000, True, False)],
)
def test_an_older_minor_version_of_qemu_is_refused_and_a_patch_version_is_a_warning(runs_on: int, refused: bool, warned: bool) -> None:
    finding = judge_with("hypervisor", request(hypervisor=runs_on), host(versions=VERSIONS))
    assert (bool(finding.reason), bool(finding.warnings)) == (refused, warned)


def test_the_reason_names_both_versions_of_qemu() -> None:
    assert judge_with("hypervisor", request(hypervisor=8002001), host(versions=VERSIONS)).reason == "Its QEMU is older: 7.2.5, and web1 runs on 8.2.1."


def test_an_unknown_version_of_qemu_passes_or_is_a_warning() -> None:
    assert judge_with("hypervisor", request(hypervisor=None), host(versions=VERSIONS)).reason is None
    assert judge_with("hypervisor", request(), host(versions={})).warnings == ("The QEMU version of kvm2 is not known.",)
