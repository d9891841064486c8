# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests against real libvirt hosts, with the distribution's Python packages and a lab."""

from __future__ import annotations

from . import places, pytest
from .lab import labs
from .results import Results


def run(results: Results) -> None:
    """Run tests/integration; labs that its tests leave up are taken down."""
    with labs("kvt", places.INTEGRATION_VENV) as env:
        pytest.run(results, "lab", places.tool("python", places.INTEGRATION_VENV), ["tests/integration"], env, 900)
