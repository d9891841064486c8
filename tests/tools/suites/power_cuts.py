# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""So many power cuts (CUTS) of hosts of the lab, with a real ansible-rulebook; their figures are written into docs/benchmarks.md."""

from __future__ import annotations

import os

from . import eda, places
from .lab import labs
from .results import Results

CUTS = "50"
PAGE = places.ROOT / "docs" / "benchmarks.md"
# For hangs only: a cut prints a line at its end.
CUT_SECONDS = 1800
_MODULE = "ansible_collections.kvmfleet.migration.bench.power_cuts"


def run(results: Results) -> None:
    """Count one check: all guests were up in time, and none ran twice."""
    if not eda.make_environment():
        results.add("no virtual environment with ansible-rulebook", passed=False)
        return
    cuts = os.environ.get("CUTS") or CUTS
    argv = [places.tool("python", eda.VENV), "-m", _MODULE, "--cuts", cuts, "--page", str(PAGE)]
    with labs("kvb", eda.VENV) as env:
        results.check(f"{cuts} power cuts", argv, env=env, hang_seconds=CUT_SECONDS)
