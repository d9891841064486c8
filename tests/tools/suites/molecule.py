# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Molecule scenarios, each with fresh lab hosts."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from . import places
from .results import Results
from .warnings_gate import scenarios

SCENARIOS = places.COPY / "extensions" / "molecule"
INVENTORY = SCENARIOS / "inventory" / "lab.yml"
STATE = places.BUILD / "molecule"
# The others are run with what takes long.
SHOWN = ("default", "drain")


def run(results: Results) -> None:
    """Run the first scenarios."""
    _run_each(results, SHOWN)


def run_long(results: Results) -> None:
    """Run all further scenarios."""
    _run_each(results, sorted({path.parent.name for path in SCENARIOS.glob("*/molecule.yml")} - set(SHOWN)))


def _run_each(results: Results, names: Iterable[str]) -> None:
    """Run each scenario by itself, so that one that fails does not hide the others."""
    for scenario in names:
        _forget()
        with scenarios(results, "mol", label=scenario) as env:
            argv = [places.tool("molecule"), "test", "--scenario-name", scenario]
            results.check(scenario, argv, env={**env, "ANSIBLE_HOME": str(STATE)}, quiet=True)


def _forget() -> None:
    """Remove what a run that was ended has left, or molecule would take its hosts for created."""
    INVENTORY.unlink(missing_ok=True)
    shutil.rmtree(STATE, ignore_errors=True)
