# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that are ended over a shared disk: one reads its message, another one hangs and is reset by its watchdog, both before the message counts.

Units and settings of the hosts are those of docs/watchdog.md.
"""

from __future__ import annotations

import datetime
import pathlib
import re
import subprocess
import threading
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import FencingConfig, parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import confirm_evidence, fence_host
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.leased import Resets, write_figures
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/watchdog.md"
DISK_OF_PAGE = "/dev/disk/by-id/wwn-0x5000c500a0b1c2d3"
DISK = "/dev/disk/by-id/virtio-shared"
WATCHDOG, MSGWAIT = 20, 40
BY = "root@control"


def block_of_page(language: str, word: str) -> str:
    """Return the block of the page in that language that has that word."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if word in block]
    return str(block).replace(DISK_OF_PAGE, DISK)


@pytest.fixture
def disk(machines: Machines) -> t.Iterator[str]:
    """The shared disk as the control node sees it."""
    path = subprocess.run(["losetup", "--find", "--show", str(machines.fleet.shared_disk)], check=True, capture_output=True, text=True).stdout.strip()
    yield path
    subprocess.run(["losetup", "--detach", path], check=True)


def create(disk: str, watchdog: int, msgwait: int) -> None:
    subprocess.run(["sbd", "-d", disk, "-1", str(watchdog), "-4", str(msgwait), "create"], check=True, capture_output=True)


def fencing(machines: Machines, disk: str, number: int) -> FencingConfig:
    options = {"devices": disk, "plug": machines.host(number)}
    config = parse_fencing({"agent": "fence_sbd", "options": options, "timeout_seconds": 200}, machines.host(number))
    assert config
    return config


def start_sbd(machines: Machines, disk: str, number: int) -> None:
    settings, unit = block_of_page("sh", "SBD_PACEMAKER"), block_of_page("ini", "sbd")
    machines.on(number, f"cat >/etc/default/sbd <<'EOF'\n{settings}EOF\ncat >/etc/systemd/system/sbd-disk.service <<'EOF'\n{unit}EOF")
    machines.on(number, "systemctl daemon-reload; systemctl -q enable sbd-disk; systemctl start sbd-disk", seconds=600)

    def is_listed() -> bool:
        listed = subprocess.run(["sbd", "-d", disk, "list"], check=True, capture_output=True, text=True).stdout
        return any(line.split()[1:3] == [machines.host(number), "clear"] for line in listed.splitlines())

    eventually(is_listed, f"sbd runs on m{number}")
    assert machines.on(number, "cat /sys/class/watchdog/watchdog0/state /sys/class/watchdog/watchdog0/nowayout").split() == ["active", "1"]


def test_hosts_end_before_their_message_counts(machines: Machines, disk: str) -> None:
    create(disk, WATCHDOG, 2 * WATCHDOG - 1)
    with pytest.raises(InvalidArgument, match="would still run when the message counts"):
        fence_host(fencing(machines, disk, 2), "id-2", BY)
    create(disk, WATCHDOG, MSGWAIT)
    for number in (2, 3):
        start_sbd(machines, disk, number)
    resets = Resets(machines)
    machines.on(3, "systemctl kill --signal=STOP sbd-disk")
    begun = time.monotonic()
    ended: dict[int, float] = {}
    watch = threading.Thread(target=_watch, args=(machines, ended), daemon=True)
    watch.start()
    evidence = fence_host(fencing(machines, disk, 2), "id-2", BY)
    took = time.monotonic() - begun
    write_figures(
        {
            "message_to_off_seconds": round(ended[2] - begun, 1),
            "fenced_seconds": round(took, 1),
            "hang_to_reset_seconds": [round(at - begun, 1) for at in resets.of("m3")],
        }
    )
    assert took >= MSGWAIT
    assert ended[2] - begun < MSGWAIT
    # One that hangs is reset without having read anything.
    assert resets.of("m3")[0] - begun < MSGWAIT
    assert confirm_evidence(evidence, fencing(machines, disk, 2), datetime.datetime.now(datetime.UTC)).status == "off"
    resets.end()
    # The host clears its message when it starts again: from then on nothing more is started by that evidence.
    machines("poweron", "m2")
    with pytest.raises(Unsafe, match="m2 is on"):
        confirm_evidence(evidence, fencing(machines, disk, 2), datetime.datetime.now(datetime.UTC))


def _watch(machines: Machines, ended: dict[int, float]) -> None:
    while 2 not in ended:
        if not machines.is_on(2):
            ended[2] = time.monotonic()
        time.sleep(0.2)
