# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults: power, network, daemons, fencing."""

from __future__ import annotations

import math
import pathlib
import re
import socket
import subprocess
import time
import typing as t

import pytest

# Most other scenarios use these verbs.
pytestmark = pytest.mark.long

if t.TYPE_CHECKING:
    from conftest import Command

MIGRATE = ("migrate", "--live", "--p2p")
Make = t.Callable[..., str]
CONTROL, SSH = 16509, 22


def answers(lab: Command, number: int, port: int) -> bool:
    try:
        with socket.create_connection((lab.status()[lab.host(number)]["address"], port), 5):
            return True
    except OSError:
        return False


@pytest.fixture
def healed(lab: Command) -> t.Iterator[None]:
    yield
    lab("heal", lab.host(1))


def test_power_off_ends_all_processes_and_keeps_persistent_definitions(lab: Command, guest: Make) -> None:
    guest("off1", "--dirty-mib", "8")
    guest("off2", "--autostart")
    guest("off3", "--transient")
    lab("poweroff", lab.host(1))
    row = lab.status()[lab.host(1)]
    assert (row["power"], row["libvirtd"], row["sshd"]) == ("off", False, False)
    assert subprocess.run(["ip", "netns", "pids", lab.host(1)], capture_output=True, text=True, check=True).stdout == ""
    lab("poweron", lab.host(1))
    wait_for(lambda: lab.state("off2", 1) == "running", "the guest with autostart does not start")
    assert (lab.state("off1", 1), lab.state("off3", 1)) == ("shut off", None)


def test_a_cut_host_answers_again_after_it_is_healed(lab: Command, healed: None) -> None:
    assert answers(lab, 1, SSH)
    lab("cut", lab.host(1))
    assert not answers(lab, 1, SSH)
    assert lab.status()[lab.host(1)]["cut"]
    lab("heal", lab.host(1))
    assert answers(lab, 1, SSH)
    assert not lab.status()[lab.host(1)]["cut"]


def test_one_channel_can_be_cut_alone(lab: Command, healed: None) -> None:
    lab("cut", lab.host(1), "--control")
    assert not answers(lab, 1, CONTROL)
    assert answers(lab, 1, SSH)


def test_a_cut_of_the_data_channel_stalls_a_migration(lab: Command, guest: Make, healed: None) -> None:
    name = guest("stall", "--mib", "256", "--dirty-mib", "224")
    with subprocess.Popen(lab.command("virsh", lab.host(1), *MIGRATE, "--bandwidth", "4", name, lab.uri(2)), stderr=subprocess.DEVNULL) as migration:
        wait_for(lambda: remaining(lab, name) < 250, "the migration does not begin")
        lab("cut", lab.host(1), "--data", "--out", "--peer", lab.host(2))
        # What is in the socket's buffer counts as sent.
        wait_for(lambda: stands_still(lab, name), "the migration goes on")
        assert answers(lab, 1, CONTROL)
        lab("virsh", lab.host(1), "domjobabort", name)
        assert migration.wait(300) != 0
    assert lab.state(name, 1) == "running"


def test_a_cut_between_two_hosts_does_not_affect_the_control_node(lab: Command, healed: None) -> None:
    lab("cut", lab.host(1), "--peer", lab.host(2))
    assert answers(lab, 1, SSH)
    assert lab.run("exec", lab.host(2), "--", "timeout", "3", "bash", "-c", f"echo > /dev/tcp/{lab.host(1)}/22").returncode != 0


def test_a_slow_link_slows_a_migration_down(lab: Command, guest: Make, healed: None) -> None:
    name = guest("slow", "--mib", "64", "--dirty-mib", "24")
    lab("slow", lab.host(1), "--mbit", "80")
    started = time.monotonic()
    assert lab.migrate(name, 1, 2).returncode == 0
    assert time.monotonic() - started > 2


def test_a_killed_libvirtd_is_restarted_and_a_stopped_one_is_not(lab: Command, guest: Make) -> None:
    name = guest("stays")
    pid = lab("exec", lab.host(1), "--", "cat", "/run/libvirtd.pid")
    lab("libvirtd", lab.host(1), "kill")
    wait_for(lambda: lab("exec", lab.host(1), "--", "cat", "/run/libvirtd.pid") != pid, "libvirtd does not come back")
    wait_for(lambda: lab.status()[lab.host(1)]["libvirtd"], "libvirtd does not listen")
    assert lab.state(name, 1) == "running"
    lab("libvirtd", lab.host(1), "stop")
    time.sleep(2)
    assert not lab.status()[lab.host(1)]["libvirtd"]
    lab("libvirtd", lab.host(1), "start")
    assert lab.state(name, 1) == "running"


def test_the_fence_agent_reports_and_switches_the_power_of_a_host(lab: Command) -> None:
    agent = str(pathlib.Path(__file__).resolve().parents[2] / "lab/fence_lab")
    assert lab.run("fence", lab.host(1), "status").returncode == 0
    assert lab.run("fence", lab.host(1), "off").returncode == 0
    assert lab.run("fence", stdin=f"action=status\nplug={lab.host(1)}\n").returncode == 2
    assert subprocess.run([agent, "-o", "status", "-n", lab.host(1)], check=False).returncode == 2
    assert subprocess.run([agent], input=f"action=on\nplug={lab.host(1)}\n", text=True, check=False).returncode == 0
    assert lab.status()[lab.host(1)]["power"] == "on"
    assert subprocess.run([agent, "-o", "off", "-n", f"{lab.prefix}7"], check=False).returncode == 1


def remaining(lab: Command, name: str) -> float:
    """Return the MiB that a migration still has to send; infinite before it begins."""
    found = re.search(r"Memory remaining: +([0-9.]+) MiB", lab.run("virsh", lab.host(1), "domjobinfo", name).stdout)
    return float(found[1]) if found else math.inf


def stands_still(lab: Command, name: str) -> bool:
    """Whether nothing is sent for three seconds, in which 12 MiB could be."""
    before = remaining(lab, name)
    time.sleep(3)
    return remaining(lab, name) == before


def wait_for(condition: t.Callable[[], bool], complaint: str) -> None:
    limit = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < limit, complaint
        time.sleep(0.1)
