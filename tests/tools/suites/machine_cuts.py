# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""So many power cuts (CUTS) of whole machines, with a real ansible-rulebook; their figures are written into docs/benchmarks.md."""

from __future__ import annotations

import os

from . import eda, machines, places, power_cuts
from .lab import labs
from .results import Results

CUTS = "10"
# For hangs only.
CUT_SECONDS = 4 * 3600
_MODULE = "ansible_collections.kvmfleet.migration.bench.machine_cuts"


def run(results: Results) -> None:
    """Count two checks: the fleet comes up, and no guest ran twice or nowhere."""
    if not eda.make_environment():
        results.add("no virtual environment with ansible-rulebook", passed=False)
        return
    cuts = os.environ.get("CUTS") or CUTS
    argv = [places.tool("python", eda.VENV), "-m", _MODULE, "--cuts", cuts, "--gone-after", "60", "--page", str(power_cuts.PAGE)]
    with labs(machines.PREFIX, eda.VENV) as env, machines.fleet(results, env) as fleet:
        if fleet:
            results.check(f"{cuts} power cuts of machines", argv, env=fleet, hang_seconds=CUT_SECONDS)
