# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine's power switch, as its BMC has it."""

from __future__ import annotations

import dataclasses
import os
import time

from . import fleet as fleets
from . import qemu
from .layout import Fleet, Machine


@dataclasses.dataclass(frozen=True)
class PowerSwitch:
    """Implements L(chassis.Power) for one machine."""

    fleet: Fleet
    machine: Machine

    def is_on(self) -> bool:
        return qemu.is_on(self.fleet, self.machine)

    def switch(self, on: bool) -> None:
        if on:
            fleets.power_on(self.fleet, self.machine, wait=False)
        else:
            qemu.kill(self.fleet, self.machine)

    def switch_later(self, on: bool, seconds: int) -> None:
        """Leave it to a process of its own: the simulator answers nobody while its program runs."""
        if os.fork():
            return
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        time.sleep(seconds)
        self.switch(on)
        os._exit(0)
