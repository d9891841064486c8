# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that return: power off, power on, and what runs then. The lab runs what the installed units want before libvirtd."""

from __future__ import annotations

import json
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.install import leave_tombstones, read_grant
from ansible_collections.kvmfleet.migration.tests.integration.guard.support.host import PROGRAM
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import eventually

if t.TYPE_CHECKING:
    from ansible_collections.kvmfleet.migration.tests.integration.guard.support.host import Host

GRANT = "c1b8e5d4-13f4-44a5-9d43-0b4a6f0f0a01"
OTHER_GRANT = "c1b8e5d4-13f4-44a5-9d43-0b4a6f0f0a02"
TOKEN = "/var/lib/kvmfleet/guard/token.json"


@pytest.mark.long
def test_a_returned_host_without_the_boot_guard_starts_its_guests(host: Host) -> None:
    host.power_cycle()
    assert host.running() == ["auto"]


def test_a_held_host_starts_no_guest_before_or_by_its_release(host: Host) -> None:
    assert host.guard("install")["changed"]
    assert sorted(host.running()) == ["auto", "other"]
    for dummy in range(2):
        host.power_cycle()
        assert host.running() == []
        assert host.guard("state")["held"]["why"]
        for action in ("restart", "kill"):
            host.restart_libvirtd(action)
            assert host.running() == []
        released = host.guard("release")
        assert (released["changed"], released["was_held"]) == (True, True)
        assert released["would_start"] == [{"uuid": host.lab.uuid("auto"), "name": "auto", "why": ["autostart"]}]
        host.restart_libvirtd("restart")
        assert host.running() == []
    again = host.guard("release")
    assert (again["changed"], again["would_start"]) == (False, released["would_start"])


@pytest.mark.long
def test_a_guest_started_after_the_release_is_left_alone(host: Host) -> None:
    host.guard("install")
    host.power_cycle()
    host.guard("release")
    host.lab.virsh(1, "start", "auto")
    host.restart_libvirtd("restart")
    assert not host.guard("install")["changed"]
    host.guard("release")
    assert host.running() == ["auto"]


def test_guests_with_a_managed_save_are_held_and_keep_it(host: Host) -> None:
    host.guard("install")
    host.lab.virsh(1, "managedsave", "auto")
    host.power_cycle()
    assert host.running() == []
    assert host.lab.info("auto", 1)["Managed save"] == "yes"


@pytest.mark.long
def test_guests_that_libvirt_guests_would_start_are_named_and_withheld(host: Host) -> None:
    host.guard("install")
    uuids = {name: host.lab.uuid(name) for name in ("auto", "other")}
    host.write("/var/lib/libvirt/libvirt-guests", f"default {uuids['auto']} {uuids['other']}\n")
    host.power_cycle()
    would_start = {entry["uuid"]: entry["why"] for entry in host.guard("release")["would_start"]}
    assert would_start == {uuids["auto"]: ["autostart", "libvirt-guests"], uuids["other"]: ["libvirt-guests"]}
    assert host.on("sh", "-c", "ls /var/lib/libvirt | grep libvirt-guests").split() == ["libvirt-guests.kvmfleet-held"]


def test_a_clean_shutdown_with_a_grant_releases_one_boot(host: Host) -> None:
    host.guard("install", grant=host.grant(GRANT))
    assert GRANT in host.program("shutdown")
    host.power_cycle()
    assert host.running() == ["auto"]
    state = host.guard("state")
    assert (state["released"]["by"], state["released"]["grant"], state["token"]) == ("token", GRANT, None)
    host.restart_libvirtd("restart")
    assert host.running() == ["auto"]
    host.power_cycle()
    assert host.running() == []


@pytest.mark.long
def test_a_token_that_was_revoked_on_another_host_releases_no_boot(host: Host) -> None:
    grant = host.grant(GRANT)
    host.guard("install", grant=grant)
    assert GRANT in host.program("shutdown")
    host.lab("poweroff", host.name)
    assert leave_tombstones(read_grant(grant)) == ([str(host.shared)], {})
    host.lab("poweron", host.name)
    assert host.running() == []
    state = host.guard("state")
    assert (state["grant"], state["token"]) == (None, None)
    assert "revoked" in state["held"]["why"]
    host.restart_libvirtd("restart")
    assert host.running() == []
    assert host.guard("release")["changed"]


def test_the_guard_waits_for_shared_storage_before_it_releases_a_boot(host: Host) -> None:
    host.guard("install", grant=host.grant(GRANT))
    # A mount of its own hides the folder from the host until some seconds after the guard first looks.
    host.before_the_guard(f"/bin/mount -n -t tmpfs none {host.shared}")
    host.before_the_daemon(f"+/bin/sh -c '(sleep 5; umount {host.shared}) >/dev/null 2>&1 &'")
    assert GRANT in host.program("shutdown")
    host.power_cycle()
    assert host.guard("state")["released"]["by"] == "token"
    assert host.running() == ["auto"]


def test_shared_storage_that_is_not_mounted_in_time_releases_no_boot(host: Host) -> None:
    host.guard("install", grant=host.grant(GRANT))
    host.before_the_guard(f"/bin/mount -n -t tmpfs none {host.shared}")
    host.waits_for_storage(3)
    assert GRANT in host.program("shutdown")
    host.power_cycle()
    assert host.running() == []
    assert str(host.shared) in host.guard("state")["held"]["why"]
    host.on("umount", str(host.shared))
    host.restart_libvirtd("restart")
    assert host.running() == []
    assert host.guard("release")["changed"]


def test_a_power_cut_or_a_shutdown_while_held_leaves_no_token(host: Host) -> None:
    host.guard("install", grant=host.grant(GRANT))
    host.power_cycle()
    assert host.running() == []
    assert "No token" in host.program("shutdown")
    host.power_cycle()
    assert host.running() == []


@pytest.mark.long
def test_a_token_on_a_read_only_disk_does_not_release_the_boot(host: Host) -> None:
    host.guard("install", grant=host.grant(GRANT))
    host.before_the_guard("/bin/mount -n -o remount,bind,ro /var/lib/kvmfleet")
    host.program("shutdown")
    host.power_cycle()
    assert host.running() == []
    assert "cannot be deleted" in host.guard("state")["held"]["why"]
    assert GRANT in host.on("cat", TOKEN)
    host.restart_libvirtd("restart")
    assert host.running() == []
    assert host.guard("release")["changed"]


@pytest.mark.parametrize(
    ("token", "grant"),
    [
        ("garbage \x00", json.dumps({"grant": GRANT})),
        pytest.param(json.dumps({"token": GRANT, "grant": OTHER_GRANT}), json.dumps({"grant": GRANT}), marks=pytest.mark.long),
        pytest.param(json.dumps({"token": GRANT, "grant": GRANT}), "{", marks=pytest.mark.long),
        pytest.param(json.dumps({"token": GRANT, "grant": None}), json.dumps({"grant": None}), marks=pytest.mark.long),
        pytest.param(json.dumps({"token": GRANT, "grant": GRANT}), json.dumps({"grant": GRANT}), marks=pytest.mark.long),
    ],
)
def test_damaged_or_contradictory_token_and_grant_files_hold_the_host(host: Host, token: str, grant: str) -> None:
    host.guard("install", grant=host.grant(GRANT))
    host.write(TOKEN, token)
    host.write("/var/lib/kvmfleet/guard/grant.json", grant)
    host.power_cycle()
    assert host.running() == []
    assert host.guard("state")["held"] is not None
    assert host.guard("release")["changed"]


def test_the_call_of_the_libvirt_daemon_holds_the_host_when_the_guard_is_killed(host: Host) -> None:
    host.guard("install")
    host.instead_of_the_guard("/bin/sh -c 'kill -9 $$'")
    host.power_cycle()
    assert host.running() == []
    assert host.guard("state")["held"] is not None


@pytest.mark.long
def test_libvirtd_does_not_start_until_the_guard_can_hold_the_host(host: Host) -> None:
    host.guard("install")
    host.power_cycle()
    host.lab("libvirtd", host.name, "stop")
    eventually(lambda: not host.answers(), "libvirtd is away")
    host.on("sh", "-c", "rm /run/libvirt/qemu/autostarted && ln -s /nowhere /run/libvirt/qemu/autostarted && rm -r /run/kvmfleet/guard")
    host.let_libvirtd_start()
    time.sleep(3)
    assert not host.answers()
    host.on("rm", "/run/libvirt/qemu/autostarted")
    eventually(host.answers, "libvirtd answers again")
    assert host.running() == []


def test_libvirtd_does_not_start_without_the_guard_program_until_it_is_installed(host: Host) -> None:
    host.guard("install")
    host.on("rm", PROGRAM)
    host.lab("poweroff", host.name)
    assert host.boots_without_libvirtd()
    assert host.guard("install")["changed"]
    eventually(host.answers, "libvirtd answers")
    assert host.running() == []
    assert host.guard("state")["held"] is not None
