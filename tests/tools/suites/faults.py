# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All fault scenarios on real hosts, or those that ONLY names, in lanes; and docs/faults.md with what came of each."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from fnmatch import fnmatch

from . import faults_page, places, pytest
from .lanes import run_together
from .results import Results
from .warnings_gate import scenarios

LANES = ("kvp", "kvq", "kvr")
PAGE = places.ROOT / "docs" / "faults.md"
TEXTS = places.ROOT / "tests" / "faults"
TESTS = "tests/integration/faults"


def run(results: Results) -> None:
    """Run the lanes that there is work for, and write what came of each scenario."""
    texts, only = faults_page.texts_in(TEXTS), os.environ.get("ONLY", "")
    lanes = lanes_for(only, [text.name for text in texts])
    if not lanes:
        results.add(f"ONLY='{only}' names a scenario of tests/faults", passed=False)
        return
    for report in places.RESULTS.glob("faults-*.xml"):
        report.unlink()
    run_together([functools.partial(_lane, results, index, lanes, only) for index in range(len(lanes))])
    outcomes: dict[str, bool] = {}
    for report in sorted(places.RESULTS.glob("faults-*.xml"), key=lambda path: path.stat().st_mtime):
        outcomes |= faults_page.outcomes_in(report)
    faults_page.rewrite(PAGE, texts, outcomes, faults_page.where())
    results.add(f"docs/faults.md has what came of {len(outcomes)} scenarios", passed=bool(outcomes))


def lanes_for(only: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return as many lanes as there are scenarios for: one without any would count as a run that found no test.

    :arg only: patterns of scenarios' names, with blanks between them; all scenarios where it is empty.
    """
    patterns = only.split() or ["*"]
    chosen = [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]
    return LANES[: len(chosen)]


def _lane(results: Results, index: int, lanes: Sequence[str], only: str) -> None:
    label = lanes[index]
    with scenarios(results, label, places.INTEGRATION_VENV) as env:
        chosen = {"KVMFLEET_FAULTS_ONLY": only, "KVMFLEET_FAULTS_LANE": f"{index}/{len(lanes)}"}
        python = places.tool("python", places.INTEGRATION_VENV)
        pytest.run(results, label, python, [TESTS], {**env, **chosen})
