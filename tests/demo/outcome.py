# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the demo ended, without times and figures, so that two runs can be compared: what became of each move, and which guest is where.

Its arguments are a report in JSON, and what C(lab status --json) says.
"""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

Document = dict[str, t.Any]


def moves_of(report: Document) -> list[str]:
    """Return a line a move. Moves at the same time end in no promised order, so they are sorted by name."""
    return sorted(f"{move['domain']['name']}: {move['type']} {move['source']} -> {move['destination']} {move['status']}" for move in report["moves"])


def places_of(hosts: list[Document]) -> list[str]:
    """Return a line a guest."""
    return sorted(f"{host['host']}: {guest['name']} {guest['state']}" for host in hosts for guest in host["guests"])


if __name__ == "__main__":
    report, hosts = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:3])
    print(*moves_of(report), *places_of(hosts), sep="\n")
