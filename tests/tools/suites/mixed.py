# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scenarios on a fleet of two Debian releases. The root of the other release is made first, where the lab's cache does not have it."""

from __future__ import annotations

from . import places, pytest
from .integration import MIXED
from .results import Results
from .warnings_gate import scenarios


def run(results: Results) -> None:
    """Run all of them, one after the other: most are about the whole fleet."""
    with scenarios(results, "kvo", places.INTEGRATION_VENV) as env:
        pytest.run(results, "kvo", places.tool("python", places.INTEGRATION_VENV), [f"tests/integration/{MIXED}"], env)
