# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab that is up: services, identities, names, idempotence."""

from __future__ import annotations

import re
import time
import typing as t

import pytest

if t.TYPE_CHECKING:
    from conftest import Command


def test_all_hosts_are_up_with_libvirtd_and_sshd(lab: Command) -> None:
    rows = lab.status()
    assert list(rows) == [lab.host(1), lab.host(2)]
    assert all((row["power"], row["libvirtd"], row["sshd"], row["cut"]) == ("on", True, True, False) for row in rows.values())


def test_up_again_changes_nothing(lab: Command) -> None:
    before = lab("exec", lab.host(1), "--", "stat", "-c", "%Y %i", "/proc/1", "/run/libvirtd.pid")
    lab("up", "--hosts", "2")
    assert lab("exec", lab.host(1), "--", "stat", "-c", "%Y %i", "/proc/1", "/run/libvirtd.pid") == before


def test_each_host_has_its_own_machine_id_hostname_and_uuid(lab: Command) -> None:
    for question in (["cat", "/etc/machine-id"], ["hostname"], ["virsh", "-c", "qemu:///system", "capabilities"]):
        answers = {lab("exec", lab.host(number), "--", *question) for number in (1, 2)}
        assert len({re.search(r"<uuid>.*</uuid>", answer)[0] if "<uuid>" in answer else answer for answer in answers}) == 2


def test_hosts_reach_each_other_by_name_over_ssh_and_libvirt(lab: Command) -> None:
    for transport in ("ssh", "tcp"):
        uri = f"qemu+{transport}://{lab.host(2)}/system"
        assert lab("ssh", lab.host(1), "virsh", "-c", uri, "hostname").strip() == lab.host(2)


def test_the_unprivileged_user_becomes_root_by_sudo(lab: Command) -> None:
    assert lab("ssh", "--user", "operator", lab.host(1), "id", "-un").strip() == "operator"
    assert lab("ssh", "--user", "operator", lab.host(1), "sudo", "-n", "id", "-un").strip() == "root"


def test_the_unprivileged_user_may_read_from_libvirt_and_not_act(lab: Command) -> None:
    sockets = lab("exec", lab.host(1), "--", "stat", "-c", "%a %U:%G", "/run/libvirt/libvirt-sock", "/run/libvirt/libvirt-sock-ro")
    assert [line.split()[0] for line in sockets.splitlines()] == ["770", "777"]
    assert sockets.splitlines()[0].endswith(" root:libvirt")
    virsh = ("ssh", "--user", "operator", lab.host(1), "virsh", "-c", "qemu:///system")
    assert lab(*virsh, "-r", "hostname").strip() == lab.host(1)
    refused = lab.run(*virsh, "hostname")
    assert (refused.returncode != 0, "Permission denied" in refused.stderr) == (True, True), refused.stderr


def test_homes_and_state_folders_are_not_shared(lab: Command) -> None:
    lab("ssh", lab.host(1), "touch ~/mark /run/kvmfleet/mark /var/lib/kvmfleet/mark /etc/libvirt/mark /etc/systemd/system/mark")
    paths = "~/mark /run/kvmfleet/mark /var/lib/kvmfleet/mark /etc/libvirt/mark /etc/systemd/system/mark"
    assert lab.run("ssh", lab.host(2), f"ls {paths} 2>/dev/null").stdout == ""
    assert len(lab("ssh", lab.host(1), f"ls {paths}").split()) == 5
    lab("ssh", lab.host(1), f"rm {paths}")


def test_the_inventory_names_the_group_and_all_hosts(lab: Command) -> None:
    with open(lab("inventory").strip()) as inventory:
        text = inventory.read()
    assert "kvmfleet_hosts:" in text
    assert all(row["address"] in text for row in lab.status().values())


@pytest.mark.long
def test_only_guests_with_acpi_shut_down_on_request_also_after_a_migration(lab: Command, guest: t.Callable[..., str]) -> None:
    deaf, polite, busy = guest("deaf"), guest("polite", "--acpi"), guest("busy", "--acpi", "--dirty-mib", "16", "--rate", "500")
    assert lab.migrate(busy, 1, 2).returncode == 0
    for name, number in ((deaf, 1), (polite, 1), (busy, 2)):
        lab("virsh", lab.host(number), "shutdown", name)
    deadline = time.monotonic() + 300
    while (lab.state(polite, 1), lab.state(busy, 2)) != ("shut off", "shut off") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert (lab.state(polite, 1), lab.state(busy, 2), lab.state(deaf, 1)) == ("shut off", "shut off", "running")
