# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a lab is like now."""

from __future__ import annotations

import concurrent.futures
import typing as t

from . import faults, guest, releases
from . import host as hosts
from .layout import Lab


def read(lab: Lab) -> t.List[t.Dict[str, t.Any]]:
    """Return a dictionary a host: C(host), C(power), C(libvirtd), C(sshd), C(cut), C(address), C(release), C(guests)."""
    guests = guest.on_hosts(lab)
    with concurrent.futures.ThreadPoolExecutor(len(lab.hosts)) as pool:
        return list(pool.map(lambda host: _read_host(lab, host, guests.get(host, [])), lab.hosts))


def _read_host(lab: Lab, host: str, guests: t.List[t.Dict[str, t.Any]]) -> t.Dict[str, t.Any]:
    on = hosts.is_on(lab, host)
    return {
        "host": host,
        "power": "on" if on else "off",
        "libvirtd": on and hosts.port_answers(lab, host, hosts.PORTS["libvirtd"]),
        "sshd": on and hosts.port_answers(lab, host, hosts.PORTS["sshd"]),
        "cut": faults.is_cut(lab, host),
        "address": lab.host_address(host),
        "release": root.name if (root := lab.release_root(host)) else releases.own(),
        "guests": guests,
    }


def table(rows: t.List[t.Dict[str, t.Any]]) -> str:
    """Return the status as a table for people."""
    lines = [("HOST", "POWER", "LIBVIRTD", "SSHD", "NETWORK", "ADDRESS", "RELEASE", "GUESTS")]
    for row in rows:
        guests = ", ".join(f"{one['name']} ({one['state']})" for one in sorted(row["guests"], key=lambda one: one["name"]))
        services = ["up" if row[name] else "down" for name in ("libvirtd", "sshd")]
        lines.append((row["host"], row["power"], *services, "cut" if row["cut"] else "whole", row["address"], row["release"], guests or "-"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
