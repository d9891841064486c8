# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""So many power cuts (CUTS) of hosts of the lab, with a real ansible-rulebook; their figures are written into docs/benchmarks.md."""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import eda, places
from .lab import labs
from .results import Results

CUTS = "50"
PAGE = places.ROOT / "docs" / "benchmarks.md"
# For hangs only: a cut prints a line at its end.
CUT_SECONDS = 1800
_PACKAGE = "ansible_collections.kvmfleet.migration.bench"


def run(results: Results) -> None:
    """Count one check: all guests were up in time, and none ran twice."""
    if has_rulebook(results):
        with labs("kvb", eda.VENV) as env:
            cut(results, "power_cuts", ["--cuts", os.environ.get("CUTS") or CUTS], env, CUT_SECONDS)


def has_rulebook(results: Results) -> bool:
    """Make the environment of the suite C(eda); one that cannot be made is a failure."""
    is_made = eda.make_environment()
    if not is_made:
        results.add("no virtual environment with ansible-rulebook", passed=False)
    return is_made


def cut(results: Results, bench: str, options: list[str], env: Mapping[str, str], hang_seconds: float) -> None:
    """Count one check: this bench of cuts has reached its goals."""
    argv = [places.tool("python", eda.VENV), "-m", f"{_PACKAGE}.{bench}", *options, "--page", str(PAGE)]
    results.check(f"{bench} {' '.join(options)}", argv, env=env, hang_seconds=hang_seconds)
