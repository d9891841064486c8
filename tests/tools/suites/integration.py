# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests against real libvirt hosts, with the distribution's Python packages and a lab."""

from __future__ import annotations

from . import lab, places, pytest
from .results import Results

PREFIX = "kvt"


def run(results: Results) -> None:
    """Run tests/integration with a lab prefix of its own in C(KVMFLEET_LAB_PREFIX)."""
    env = places.environment(places.INTEGRATION_VENV, KVMFLEET_LAB_PREFIX=PREFIX)
    with lab.torn_down(PREFIX):
        pytest.run(results, "lab", places.tool("python", places.INTEGRATION_VENV), ["tests/integration"], env, 900)
