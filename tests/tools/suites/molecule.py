# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Molecule scenarios, each with fresh lab hosts."""

from __future__ import annotations

from . import lab, places
from .results import Results

PREFIX = "kvm"
SCENARIOS = places.COPY / "extensions" / "molecule"
SCENARIO_SECONDS = 420


def run(results: Results) -> None:
    """Run each scenario by itself, so that one that fails does not hide the others."""
    scenarios = sorted(path.parent.name for path in SCENARIOS.glob("*/molecule.yml"))
    env = places.environment(places.VENV, KVMFLEET_LAB_PREFIX=PREFIX)
    for scenario in scenarios:
        argv = [places.tool("molecule"), "test", "--scenario-name", scenario]
        with lab.torn_down(PREFIX):
            results.check(scenario, argv, env=env, timeout_seconds=SCENARIO_SECONDS)
