# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a fleet is like now."""

from __future__ import annotations

import typing as t

from . import bmc, guest, network, qemu, snapshot
from .layout import Fleet, Machine

Row = t.Dict[str, t.Any]


def read(fleet: Fleet) -> t.List[Row]:
    """Return a dictionary a machine: C(machine), C(power), C(cut), C(bmc), C(address), C(release), C(guests).

    C(bmc) is null for the NFS server, which has none; C(guests) where libvirt does not answer.
    """
    return snapshot.together(fleet.machines, lambda machine: _read(fleet, machine))


def _read(fleet: Fleet, machine: Machine) -> Row:
    on = qemu.is_on(fleet, machine)
    return {
        "machine": machine.name,
        "power": "on" if on else "off",
        "cut": network.is_cut(fleet, machine),
        "bmc": bmc.describe(fleet, machine) if machine.is_host else None,
        "address": machine.address,
        "release": fleet.release(machine),
        "guests": guest.list_guests(fleet, machine) if on and machine.is_host else None,
    }


def table(rows: t.Sequence[Row]) -> str:
    """Return the status as a table for people."""
    lines = [("MACHINE", "POWER", "BMC", "NETWORK", "ADDRESS", "RELEASE", "GUESTS")]
    for row in rows:
        guests = "-" if row["guests"] is None else ", ".join(f"{name} ({state})" for name, state in sorted(row["guests"].items())) or "none"
        lines.append((row["machine"], row["power"], row["bmc"] or "-", "cut" if row["cut"] else "whole", row["address"], row["release"], guests))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
