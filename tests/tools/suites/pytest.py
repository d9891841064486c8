# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running pytest in one of the virtual environments and counting its cases."""

from __future__ import annotations

from collections.abc import Mapping

from . import places, processes
from .results import Results

MOST_TRIED_AGAIN = 5


def run(results: Results, label: str, python: str, paths: list[str], env: Mapping[str, str], timeout_seconds: float) -> None:
    """Count each case; a run that ended without a result, or found no test, counts as one failure."""
    report = places.RESULTS / f"{results.suite}-{label}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    argv = [
        python,
        "-m",
        "pytest",
        "-q",
        "--durations=8",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        "--import-mode=importlib",
        f"--junitxml={report}",
        *paths,
    ]
    code = processes.run(argv, places.COPY, env, timeout_seconds)
    failed_before = results.failed
    counted = results.add_junit(report, prefix=f"{label}: ") if report.is_file() else 0
    if not counted or (code != 0 and results.failed == failed_before):
        results.add(f"{label}: pytest ended with {code} after {counted} cases", passed=False)


def run_with_second_try(results: Results, label: str, python: str, paths: list[str], env: Mapping[str, str], timeout_seconds: float) -> None:
    """Like L(run), and run the few cases that failed once more by themselves: real hosts on a shared machine can be late.

    What passes only then is named, and counts as passed; a broad failure is not tried again.
    """
    first = Results(results.suite)
    run(first, label, python, paths, env, timeout_seconds)
    # A case that fails in its set-up and in its tear-down stands there twice.
    again = list(dict.fromkeys(case_path(name) for name in first.failures))
    second = Results(results.suite)
    if again and len(again) <= MOST_TRIED_AGAIN and all(again):
        run(second, f"{label}-again", python, [path for path in again if path], env, timeout_seconds)
        if second.passed == len(again) and not second.failed:
            for name in first.failures:
                print(f"PASSED ONLY WHEN RUN AGAIN: {name}", flush=True)
            first.passed, first.failed, first.failures = first.passed + second.passed, 0, []
    results.merge(first)


def case_path(name: str) -> str | None:
    """Return the argument for pytest that runs the case that a report names, e.g. C(kvt: tests.integration.lab.test_x::test_y[1]); none for no case."""
    module, colons, case = name.partition(": ")[2].partition("::")
    return f"{module.replace('.', '/')}.py::{case}" if colons and module.startswith("tests.") else None
