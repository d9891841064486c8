# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report's page in a real browser, and its chart library against the packages that it is made of."""

from __future__ import annotations

from . import places, pytest
from .results import Results


def run(results: Results) -> None:
    """Run tests/browser. What the tests photograph stays in .build/browser."""
    results.check("the chart library is what npm's packages make", [places.tool("python"), str(places.ROOT / "tests" / "tools" / "charts.py"), "--check"])
    env = places.environment(KVMFLEET_NODE_MODULES=str(places.BUILD / "node" / "node_modules"), KVMFLEET_PICTURES=str(places.BUILD / "browser"))
    pytest.run(results, "chromium", places.tool("python"), ["tests/browser"], env)
