# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests against real libvirt hosts, with the distribution's Python packages and a lab. They mostly wait, so four lanes of them run at once."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping

from . import places, pytest
from .lab import labs
from .results import Results

TIMEOUT_SECONDS = 2400

# Prefix of the hosts' names to the folders under tests/integration; every folder stands in exactly one lane of one suite. Most of a move is
# waiting, so four lanes at once keep two cores busy.
LANES = {
    "kvt": ("facts", "policy", "moves", "fencing"),
    "kvu": ("endings",),
    "kvv": ("lab", "contract", "storage", "guard"),
    "kvw": ("shutdown", "scheduler", "protect", "cleanup"),
}

# Of the suite evacuation.
EVACUATION_LANES = {"kvx": ("evacuation",), "kvy": ("evacuate",), "kvz": ("recover",)}


def run(results: Results) -> None:
    """Run all lanes; labs that their tests leave up are taken down."""
    _check_complete(results)
    run_lanes(results, LANES)


def run_lanes(results: Results, lanes: Mapping[str, tuple[str, ...]]) -> None:
    """Run these lanes at once, each with hosts of its own."""
    with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
        for lane in [pool.submit(_lane, results, prefix, folders) for prefix, folders in lanes.items()]:
            lane.result()


def _lane(results: Results, prefix: str, folders: tuple[str, ...]) -> None:
    with labs(prefix, places.INTEGRATION_VENV) as env:
        python = places.tool("python", places.INTEGRATION_VENV)
        pytest.run_with_second_try(results, prefix, python, [f"tests/integration/{folder}" for folder in folders], env, TIMEOUT_SECONDS)


def _check_complete(results: Results) -> None:
    """A folder that no lane runs would be tests that nobody runs."""
    there = {path.name for path in (places.COPY / "tests" / "integration").iterdir() if path.is_dir() and list(path.glob("test_*.py"))}
    missing = there ^ {folder for lanes in (LANES, EVACUATION_LANES) for folders in lanes.values() for folder in folders}
    results.add(f"every folder of tests/integration is run ({', '.join(sorted(missing)) or 'all are'})", passed=not missing)
