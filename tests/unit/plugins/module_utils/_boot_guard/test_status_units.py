# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import status

FILES = status.unit_files("/usr/bin/python3")


def test_every_libvirt_daemon_runs_the_guard_before_it_starts() -> None:
    for daemon in ("libvirtd", "virtqemud"):
        text = FILES[f"etc/systemd/system/{daemon}.service.d/50-kvmfleet-guard.conf"]
        assert "ExecStartPre=+/usr/bin/python3 -I /usr/local/lib/kvmfleet/kvmfleet-guard confirm\n" in text


def test_the_guard_runs_before_the_sockets_of_libvirt() -> None:
    before = re.findall(r"^Before=(.*)$", FILES["etc/systemd/system/kvmfleet-guard.service"], re.MULTILINE)
    held_back = set(" ".join(before).split())
    assert {"libvirtd.service", "virtqemud.service", "libvirt-guests.service", "libvirtd.socket", "libvirtd-tcp.socket"} <= held_back
    assert {"virtqemud.socket", "virtqemud-ro.socket", "virtqemud-admin.socket"} <= held_back


def test_stopping_the_guard_stops_no_other_unit() -> None:
    """Requires, Requisite and BindsTo would pass a stop of the guard on; libvirt-guests shuts guests down when it is stopped."""
    for path, text in FILES.items():
        coupled = re.findall(r"^(?:Requires|Requisite|BindsTo|PartOf)=(.*)$", text, re.MULTILINE)
        assert coupled == (["sysinit.target"] if path.endswith("/kvmfleet-guard.service") else [])


def test_libvirt_guests_waits_for_a_release() -> None:
    text = FILES["etc/systemd/system/libvirt-guests.service.d/50-kvmfleet-guard.conf"]
    assert "ConditionPathExists=/run/kvmfleet/guard/released.json\n" in text


def test_the_token_unit_runs_after_remote_storage_and_before_libvirt() -> None:
    text = FILES["etc/systemd/system/kvmfleet-guard-token.service"]
    assert re.findall(r"^After=(.*)$", text, re.MULTILINE) == ["kvmfleet-guard.service remote-fs.target"]
    assert re.findall(r"^Before=(.*)$", text, re.MULTILINE) == ["libvirtd.service virtqemud.service libvirt-guests.service"]
    for unit in ("libvirtd", "virtqemud", "libvirt-guests"):
        drop_in = FILES[f"etc/systemd/system/{unit}.service.d/50-kvmfleet-guard.conf"]
        assert "Wants=kvmfleet-guard.service kvmfleet-guard-token.service\n" in drop_in
