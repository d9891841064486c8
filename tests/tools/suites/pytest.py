# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running pytest in one of the virtual environments and counting its cases."""

from __future__ import annotations

from collections.abc import Mapping

from . import hangs, places, processes
from .results import Results

PLUGIN = "ansible_collections.kvmfleet.migration.tests.tools.cases"
CASES = "KVMFLEET_CASES"
# A case that takes this share of the limit shows where its threads are, before the run is ended for it.
STACKS_SHARE = 0.95


def run(results: Results, label: str, python: str, paths: list[str], env: Mapping[str, str], hang_seconds: float | None = None) -> None:
    """Count each case; a run that ended without a result, or found no test, counts as one failure.

    It may take all the time it needs, as long as a case ends now and then. Where none does the run is ended, and the failure names what hung.

    :arg hang_seconds: how long a case may take; C(hangs.HANG_SECONDS) where nothing is given.
    """
    hang_seconds = hangs.HANG_SECONDS if hang_seconds is None else hang_seconds
    report = places.RESULTS / f"{results.suite}-{label}.xml"
    cases = report.with_suffix(".cases")
    report.parent.mkdir(parents=True, exist_ok=True)
    for path in (report, cases):
        path.unlink(missing_ok=True)
    argv = [
        python,
        "-m",
        "pytest",
        "-q",
        "--durations=8",
        "-p",
        "no:cacheprovider",
        "-p",
        PLUGIN,
        "-o",
        f"faulthandler_timeout={STACKS_SHARE * hang_seconds:g}",
        "--strict-markers",
        "--import-mode=importlib",
        f"--junitxml={report}",
        *paths,
    ]
    ended = processes.run(argv, places.COPY, {**env, CASES: str(cases)}, watch=hangs.Cases(cases), hang_seconds=hang_seconds)
    failed_before = results.failed
    counted = results.add_junit(report, prefix=f"{label}: ") if report.is_file() else 0
    if ended.hang:
        results.add(f"{label}: {ended.hang}", passed=False)
    elif not counted or (ended.code != 0 and results.failed == failed_before):
        results.add(f"{label}: pytest ended with {ended.code} after {counted} cases", passed=False)
