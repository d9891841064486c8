# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""So many power cuts (CUTS) of whole machines, with a real ansible-rulebook; their figures are written into docs/benchmarks.md."""

from __future__ import annotations

import os

from . import eda, machines
from .lab import labs
from .power_cuts import cut, has_rulebook
from .results import Results

CUTS = "10"
# For hangs only.
CUT_SECONDS = 4 * 3600


def run(results: Results) -> None:
    """Count two checks: the fleet comes up, and no guest ran twice or nowhere."""
    if has_rulebook(results):
        with labs(machines.PREFIX, eda.VENV) as env, machines.fleet(results, env) as fleet:
            if fleet:
                cut(results, "machine_cuts", ["--cuts", os.environ.get("CUTS") or CUTS, "--gone-after", "60"], fleet, CUT_SECONDS)
