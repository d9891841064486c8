# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All fault scenarios on real hosts, or those that ONLY names, in lanes; and docs/faults.md with what came of each."""

from __future__ import annotations

import functools
import os

from . import faults_page, places, pytest
from .lanes import run_together
from .results import Results
from .warnings_gate import scenarios

LANES = ("kvp", "kvq", "kvr")
PAGE = places.ROOT / "docs" / "faults.md"
TEXTS = places.ROOT / "tests" / "faults"
TESTS = "tests/integration/faults"


def run(results: Results) -> None:
    """Run every lane, and write what came of each scenario."""
    run_together([functools.partial(_lane, results, index) for index in range(len(LANES))])
    outcomes: dict[str, bool] = {}
    for report in sorted(places.RESULTS.glob("faults-*.xml"), key=lambda path: path.stat().st_mtime):
        outcomes |= faults_page.outcomes_in(report)
    faults_page.rewrite(PAGE, faults_page.texts_in(TEXTS), outcomes, faults_page.where())
    results.add(f"docs/faults.md has what came of {len(outcomes)} scenarios", passed=bool(outcomes))


def _lane(results: Results, index: int) -> None:
    label = LANES[index]
    (places.RESULTS / f"faults-{label}.xml").unlink(missing_ok=True)
    with scenarios(results, label, places.INTEGRATION_VENV) as env:
        chosen = {"KVMFLEET_FAULTS_ONLY": os.environ.get("ONLY", ""), "KVMFLEET_FAULTS_LANE": f"{index}/{len(LANES)}"}
        python = places.tool("python", places.INTEGRATION_VENV)
        pytest.run(results, label, python, [TESTS], {**env, **chosen})
