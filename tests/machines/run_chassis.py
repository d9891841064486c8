# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ipmi_sim runs to read and to change a machine's power: CACHE PREFIX MACHINE, then the simulator's own words."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.machines.kvmmachines import chassis, power
from tests.machines.kvmmachines.layout import Fleet


def main(cache: str, prefix: str, name: str, *request: str) -> None:
    fleet = Fleet.named(prefix, cache)
    machine = fleet.require_machine(name)
    sys.stdout.write(chassis.answer(fleet.bmc_folder(machine), request, power.PowerSwitch(fleet, machine)))


if __name__ == "__main__":
    main(*sys.argv[1:])
