# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk that is booted without the fleet's network, so that something can be done on it before others see the machine."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from ...lab.kvmlab.commands import run
from ...lab.kvmlab.errors import LabError
from . import qemu, readiness
from .sockets import Agent, Monitor

MIB = 1536
BOOT_SECONDS = 900
# Of QEMU's network for one machine.
ADDRESS, GATEWAY = "10.0.2.15", "10.0.2.2"


@contextlib.contextmanager
def booted(folder: pathlib.Path, image: pathlib.Path, accelerator: str, name: str, *more: str) -> t.Iterator[Agent]:
    """Boot C(disk.qcow2) of a folder, give the machine's agent, and shut the machine down. What a machine leaves beside its disk is removed.

    :arg image: the folder of kernel and initial RAM disk.
    :arg more: words for QEMU's command line.
    :raises LabError: it does not boot, or does not end.
    """
    append = f"root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off systemd.hostname={name} {qemu.network_words(ADDRESS, GATEWAY, name)}"
    command = qemu.base_command(image, folder, accelerator, MIB, append)
    run(*command, "-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net", *more)
    monitor, agent = Monitor(folder / "monitor.sock"), Agent(folder / "agent.sock")
    try:
        readiness.wait_until_running(agent, folder, BOOT_SECONDS, lambda: _is_running(monitor))
        yield agent
        agent.shut_down()
        readiness.wait_for(lambda: not _is_running(monitor), f"{name} switches itself off", BOOT_SECONDS)
    finally:
        qemu.kill_in(folder)
    for leftover in ("serial.log", "monitor.sock", "agent.sock", "agent.lock", "qemu.pid"):
        (folder / leftover).unlink(missing_ok=True)


def _is_running(monitor: Monitor) -> bool:
    try:
        return bool(monitor.execute("query-status")["running"])
    except LabError:
        return False
