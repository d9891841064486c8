# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests against real libvirt hosts, with the distribution's Python packages and a lab. They mostly wait, so several lanes of them run at once."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from . import places, pytest
from .lanes import run_together, take_each
from .results import Results
from .warnings_gate import scenarios

FOLDER = Path("tests", "integration")

# The prefixes of the lanes' hosts.
LANES = ("kvt", "kvu", "kvv", "kvw", "kvx")
# Each lane takes the next of these when it has run the one before. What takes longest comes first, so that all lanes end at about the same time. The
# folders of one group share their labs; in each group, one runs Ansible, whose log is checked for each lane.
GROUPS = (
    ("faults", "protect", "cleanup", "guides"),
    ("guard", "recover", "balance"),
    ("evacuation",),
    ("lab", "facts"),
    ("moves",),
    ("shutdown", "policy", "cold"),
    ("evacuate", "fencing", "ledger"),
    ("awx", "contract", "lease"),
    ("endings",),
    ("storage", "firmware"),
    ("scheduler",),
)
# Suites of their own: mixed.py needs the root of another release, eda.py needs Java.
MIXED = "mixed"
EDA = "eda"
# What is long of these has a suite of its own, faults.py.
FAULTS = "faults"


def run(results: Results) -> None:
    """Run all but what is marked as long; labs that tests leave up are taken down."""
    _check_complete(results)
    _run_lanes(results, GROUPS, "not long")


def run_long(results: Results) -> None:
    """Run what is marked as long: further cases of what L(run) shows once."""
    _check_complete(results)
    groups = [tuple(folder for folder in folders if folder != FAULTS) for folders in GROUPS]
    _run_lanes(results, groups, "long")


def _run_lanes(results: Results, groups: Iterable[tuple[str, ...]], marked: str) -> None:
    """Run these groups of folders in lanes, each with hosts of its own."""
    waiting = deque(groups)
    run_together([functools.partial(_lane, results, prefix, waiting, marked) for prefix in LANES], waiting)


def _lane(results: Results, prefix: str, waiting: deque[tuple[str, ...]], marked: str) -> None:
    with scenarios(results, prefix, places.INTEGRATION_VENV) as env:
        python = places.tool("python", places.INTEGRATION_VENV)
        for folders in take_each(waiting):
            paths = ["-m", marked, *(str(FOLDER / folder) for folder in folders)]
            pytest.run(results, folders[0], python, paths, env)


def _folders() -> set[str]:
    found = {path.name for path in (places.COPY / FOLDER).iterdir() if path.is_dir() and list(path.glob("test_*.py"))}
    return found - {MIXED, EDA}


def _check_complete(results: Results) -> None:
    """A folder that no lane runs would be tests that nobody runs."""
    wrong = _folders() ^ {folder for folders in GROUPS for folder in folders}
    results.add(f"every folder of tests/integration is run ({', '.join(sorted(wrong)) or 'all are'})", passed=not wrong)
