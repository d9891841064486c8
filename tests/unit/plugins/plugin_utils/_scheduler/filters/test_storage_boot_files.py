# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import host, judge_with, request

FILES = [{"what": "loader", "path": "/srv/bios"}, {"what": "kernel", "path": "/boot/vmlinuz"}]


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ({"/srv/bios": True, "/boot/vmlinuz": True}, None),
        ({}, None),
        ({"/srv/bios": False, "/boot/vmlinuz": True}, "The firmware /srv/bios is not there."),
        ({"/srv/bios": False, "/boot/vmlinuz": False}, "The firmware /srv/bios is not there. The kernel /boot/vmlinuz is not there."),
    ],
    ids=["there", "not known", "one absent", "both absent"],
)
def test_missing_boot_files_refuse_the_host(paths: dict[str, bool], reason: str | None) -> None:
    finding = judge_with("boot_files", request(boot_files=FILES), host(paths=paths))
    assert (finding.reason, finding.warnings) == (reason, ())


def test_firmware_variables_need_only_their_folder() -> None:
    nvram = "/srv/nvram/web.fd"
    assert judge_with("boot_files", request(nvram=nvram), host(paths={"/srv/nvram": True, nvram: False})).reason is None
    assert "The folder /srv/nvram" in str(judge_with("boot_files", request(nvram=nvram), host(paths={"/srv/nvram": False})).reason)


def test_a_guest_without_boot_files_passes() -> None:
    assert judge_with("boot_files", request(), host(paths={"/srv/bios": False})).reason is None


def test_boot_files_that_a_user_may_not_look_for_are_a_warning() -> None:
    asked = request(boot_files=FILES, nvram="/srv/nvram/web.fd")
    finding = judge_with("boot_files", asked, host(paths={"/srv/bios": True}, unverified_reasons={"paths": "libvirt withholds it"}))
    assert finding.reason is None
    assert finding.warnings == ("Whether kvm2 has /boot/vmlinuz, /srv/nvram, with which web1 boots, is not known: libvirt withholds it.",)
    absent = judge_with("boot_files", asked, host(paths={"/srv/bios": False}, unverified_reasons={"paths": "libvirt withholds it"}))
    assert (absent.reason, len(absent.warnings)) == ("The firmware /srv/bios is not there.", 1)
