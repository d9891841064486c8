# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fencing a machine by the fence agents' rules. What a machine's BMC does to its power goes through here."""

from __future__ import annotations

import typing as t

from ...lab.kvmlab.errors import UsageError
from ...lab.kvmlab.fence import FAILED, OFF, OK
from . import fleet as fleets
from . import qemu
from .layout import Fleet

ACTIONS = ("on", "off", "reboot", "status", "monitor", "list")


def act(fleet: Fleet, action: str, plug: t.Optional[str]) -> t.Tuple[int, str]:
    """Do what is asked, verify it, and return exit code and message; a machine that is switched on is not waited for.

    :raises UsageError: there is no such action or machine.
    """
    if action not in ACTIONS:
        raise UsageError(f"There is no fencing action {action!r}: it is one of {', '.join(ACTIONS)}.")
    if action == "list":
        return OK, "".join(f"{machine.name},\n" for machine in fleet.machines)
    if not plug:
        raise UsageError(f"The fencing action {action!r} needs a machine: -n MACHINE, or plug=MACHINE on standard input.")
    machine = fleet.require_machine(plug)
    if action in ("off", "reboot"):
        qemu.kill(fleet, machine)
    if action in ("on", "reboot"):
        fleets.power_on(fleet, machine, wait=False)
    on = qemu.is_on(fleet, machine)
    if action in ("status", "monitor"):
        return OK if on else OFF, f"Status: {'ON' if on else 'OFF'}"
    if on == (action == "off"):
        return FAILED, f"Failed: {machine.name} is {'on' if on else 'off'}"
    return OK, "Success: Rebooted" if action == "reboot" else f"Success: Powered {action.upper()}"
