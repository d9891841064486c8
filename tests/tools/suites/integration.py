# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests against real libvirt hosts, with the distribution's Python packages and a lab. They mostly wait, so several lanes of them run at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from . import places, pytest
from .lanes import run_together
from .results import Results
from .warnings_gate import scenarios

FOLDER = Path("tests", "integration")

# By the prefix of their hosts; balanced by how long they take.
LANES = {
    "kvt": ("moves", "facts", "cleanup"),
    "kvu": ("endings", "faults", "guard", "protect", "recover"),
    "kvv": ("lab", "contract", "storage", "awx"),
    "kvw": ("scheduler", "policy", "shutdown", "guides"),
    "kvx": ("evacuation", "evacuate", "ledger", "fencing"),
}
# Suites of their own: mixed.py needs the root of another release, eda.py needs Java.
MIXED = "mixed"
EDA = "eda"
# What is long of these has a suite of its own, faults.py.
FAULTS = "faults"


def run(results: Results) -> None:
    """Run all but what is marked as long; labs that tests leave up are taken down."""
    _check_complete(results)
    _run_lanes(results, LANES, "not long")


def run_long(results: Results) -> None:
    """Run what is marked as long: further cases of what L(run) shows once."""
    _check_complete(results)
    lanes = {prefix: tuple(folder for folder in folders if folder != FAULTS) for prefix, folders in LANES.items()}
    _run_lanes(results, lanes, "long")


def _run_lanes(results: Results, lanes: Mapping[str, tuple[str, ...]], marked: str) -> None:
    """Run these lanes at once, each with hosts of its own."""
    run_together([functools.partial(_lane, results, prefix, folders, marked) for prefix, folders in lanes.items()])


def _lane(results: Results, prefix: str, folders: tuple[str, ...], marked: str) -> None:
    with scenarios(results, prefix, places.INTEGRATION_VENV) as env:
        python = places.tool("python", places.INTEGRATION_VENV)
        paths = ["-m", marked, *(str(FOLDER / folder) for folder in folders)]
        pytest.run(results, prefix, python, paths, env)


def _folders() -> set[str]:
    found = {path.name for path in (places.COPY / FOLDER).iterdir() if path.is_dir() and list(path.glob("test_*.py"))}
    return found - {MIXED, EDA}


def _check_complete(results: Results) -> None:
    """A folder that no lane runs would be tests that nobody runs."""
    wrong = _folders() ^ {folder for folders in LANES.values() for folder in folders}
    results.add(f"every folder of tests/integration is run ({', '.join(sorted(wrong)) or 'all are'})", passed=not wrong)
