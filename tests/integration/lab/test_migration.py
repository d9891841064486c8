# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real live migrations between the lab's hosts, for each kind of storage, and the proof that no memory was lost."""

from __future__ import annotations

import json
import socket
import time
import typing as t

import pytest

# Most other scenarios use these verbs.
pytestmark = pytest.mark.long

if t.TYPE_CHECKING:
    from conftest import Command

Make = t.Callable[..., str]
WRITER = ("--mib", "96", "--dirty-mib", "32", "--rate", "2000")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("none", []),
        ("bindfs", []),
        ("nbd", []),
        ("shared", ["--unsafe"]),
        ("local", ["--copy-storage-all"]),
    ],
)
def test_a_guest_moves_and_keeps_its_memory(lab: Command, guest: Make, kind: str, options: list[str]) -> None:
    name = guest(f"move-{kind}", *WRITER, "--storage", kind, "--integrity")
    before = json.loads(lab("check", name))
    done = lab.migrate(name, 1, 2, *options)
    assert done.returncode == 0, done.stderr
    assert (lab.state(name, 1), lab.state(name, 2)) == (None, "running")
    after = json.loads(lab("check", name))
    assert after["host"] == lab.host(2)
    assert after["intact"]
    assert after["increments"] > before["increments"]


def test_a_guest_boots_from_its_copied_disk_on_the_destination(lab: Command, guest: Make) -> None:
    name = guest("reboot", "--dirty-mib", "8", "--storage", "local")
    lab.migrate(name, 1, 2, "--copy-storage-all")
    lab("exec", lab.host(1), "--", "rm", f"/var/lib/libvirt/images/{name}.qcow2")
    lab("virsh", lab.host(2), "reset", name)
    limit = time.monotonic() + 300
    while not json.loads(lab.run("check", name).stdout)["intact"]:
        assert time.monotonic() < limit, "the guest does not boot from its copied disk"


def test_libvirt_refuses_a_common_folder_without_a_shared_file_system(lab: Command, guest: Make) -> None:
    name = guest("unsafe", "--storage", "shared")
    done = lab.migrate(name, 1, 2)
    assert done.returncode != 0
    assert "without shared storage is unsafe" in done.stderr
    assert lab.state(name, 1) == "running"


def test_an_image_in_use_cannot_be_started_on_a_second_host(lab: Command, guest: Make) -> None:
    name = guest("locked", "--storage", "shared")
    xml = lab("virsh", lab.host(1), "dumpxml", "--migratable", name)
    done = lab.run("virsh", lab.host(2), "create", "/dev/stdin", stdin=xml)
    assert done.returncode != 0
    assert 'Failed to get "write" lock' in done.stderr


def test_the_memory_check_finds_a_single_stale_page(lab: Command, guest: Make) -> None:
    name = guest("hurt", *WRITER)
    assert lab.run("check", name).returncode == 0
    write_memory(lab, name, 2 * 1024 * 1024 + 100 * 4096, b"\0\0\0\0")
    done = lab.run("check", name)
    assert done.returncode == 1
    assert "page 100 " in json.loads(done.stdout)["problem"]


def test_the_dirty_rate_of_a_guest_is_about_the_requested_one(lab: Command, guest: Make) -> None:
    name = guest("rate", "--mib", "96", "--dirty-mib", "64", "--rate", "5000")
    first, started = json.loads(lab("check", name)), time.monotonic()
    time.sleep(3)
    second = json.loads(lab("check", name))
    rate = (second["increments"] - first["increments"]) / (time.monotonic() - started)
    # A machine that has little time for the guest makes it slower, and none makes it faster.
    assert 100 < rate < 6000


def write_memory(lab: Command, name: str, address: int, data: bytes) -> None:
    """Change a guest's memory behind its back, through QEMU's debugger port."""
    lab("virsh", lab.host(1), "qemu-monitor-command", "--hmp", name, "gdbserver tcp:0.0.0.0:1234")
    with socket.create_connection((lab.status()[lab.host(1)]["address"], 1234), 10) as debugger:
        # "D" detaches, which lets the guest run on
        for request in (f"M{address:x},{len(data):x}:{data.hex()}", "D"):
            debugger.sendall(f"+${request}#{sum(request.encode()) % 256:02x}".encode())
            answer = b""
            while b"$OK#" not in answer:  # a note that the guest was stopped may come first
                answer += debugger.recv(100)
                assert answer
    lab("virsh", lab.host(1), "qemu-monitor-command", "--hmp", name, "gdbserver none")
