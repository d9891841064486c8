# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs suites one after another, all of them even when one fails, and ends with the counts over all.

A suite runs in a process of its own and leaves .build/results/SUITE.json; one that leaves none counts as a failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from types import FrameType
from typing import NoReturn

from suites import places
from suites.results import Results, read

MODULES = {"types": "mypy", "sanity-matrix": "sanity_matrix", "bench-quick": "bench"}


def main() -> int:
    signal.signal(signal.SIGTERM, _leave)
    if sys.argv[1:2] == ["--inside"]:
        return _run_inside(sys.argv[2])
    found = [_run(suite) for suite in sys.argv[1:]]
    return _summarise(found)


def _leave(number: int, dummy_frame: FrameType | None) -> NoReturn:
    """Turn the signal into an exception, so that every lab is taken down."""
    sys.exit(128 + number)


def _run_inside(suite: str) -> int:
    results = Results(suite)
    module = import_module(f"suites.{MODULES.get(suite, suite)}")
    try:
        module.run(results)
    finally:
        results.write()
    return 0


def _run(suite: str) -> tuple[Results, float]:
    """Run one suite in a process of its own; what it found, and how many seconds it took."""
    (places.RESULTS / f"{suite}.json").unlink(missing_ok=True)
    print(f"\n== {suite}", flush=True)
    started = time.monotonic()
    code = _wait(subprocess.Popen([sys.executable, __file__, "--inside", suite]))
    seconds = time.monotonic() - started
    results = read(suite)
    if results is None or code != 0:
        results = results or Results(suite)
        results.add(f"the suite broke off with exit code {code}", passed=False)
    print(f"== {suite}: {_counts(results)} in {seconds:.0f} s", flush=True)
    return results, seconds


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for the suite; when this process is ended, the suite is told, and given time to tear its lab down."""
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait(180)
        raise


def _counts(results: Results) -> str:
    skipped = f", {results.skipped} skipped" if results.skipped else ""
    return f"{results.passed} passed, {results.failed} failed{skipped}"


def _summarise(found: list[tuple[Results, float]]) -> int:
    """Print a line a suite, what failed and what was skipped and why, and the counts over all as the last line."""
    total = Results("all")
    print("\n== summary")
    for results, seconds in found:
        print(f"{results.suite:<14}{seconds:6.0f} s  {_counts(results)}")
        total.passed += results.passed
        total.failed += results.failed
        total.skipped += results.skipped
    for results, dummy in found:
        for name in results.failures:
            print(f"FAILED  {results.suite}: {name}")
        for reason in results.skips:
            print(f"SKIPPED {results.suite}: {reason}")
    print(_counts(total), flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    os.chdir(places.ROOT)
    sys.exit(main())
