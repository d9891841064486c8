# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running pytest in one of the virtual environments and counting its cases."""

from __future__ import annotations

from collections.abc import Mapping

from . import places, processes
from .results import Results


def run(results: Results, label: str, python: str, paths: list[str], env: Mapping[str, str], timeout_seconds: float) -> None:
    """Count each case; a run that ended without a result, or found no test, counts as one failure."""
    report = places.RESULTS / f"{results.suite}-{label}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    argv = [python, "-m", "pytest", "-q", "--durations=8", "-p", "no:cacheprovider", "--import-mode=importlib", f"--junitxml={report}", *paths]
    code = processes.run(argv, places.COPY, env, timeout_seconds)
    failed_before = results.failed
    counted = results.add_junit(report, prefix=f"{label}: ") if report.is_file() else 0
    if not counted or (code != 0 and results.failed == failed_before):
        results.add(f"{label}: pytest ended with {code} after {counted} cases", passed=False)
