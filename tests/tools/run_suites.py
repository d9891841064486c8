# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs suites, all of them even when one fails, and ends with the counts over all.

A suite runs in a process of its own and leaves .build/results/SUITE.json; one that leaves none counts as a failure. They run one after another, but for
those that run beside others: what such a suite prints is shown when it has ended.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from types import FrameType
from typing import NoReturn

from suites import places
from suites.results import Results, read

MODULES = {
    "types": "mypy",
    "sanity-matrix": "sanity_matrix",
    "sanity-releases": "sanity_releases",
    "bench-quick": "bench",
    "machines-core": "machines_core",
    "power-cuts": "power_cuts",
    "machine-cuts": "machine_cuts",
}
# What runs beside what is shown: each of these keeps one processor busy, and unit tests and scenarios also wait. Whatever is in none of these stages comes with
# the first.
STAGES = (
    (("units",), ("lint", "types", "docs", "importer", "browser", "sanity", "sanity-releases")),
    (("integration",), ("molecule",)),
)
STOP_SECONDS = 180

running: list[subprocess.Popen[bytes]] = []


def main() -> int:
    signal.signal(signal.SIGTERM, _leave)
    # A shell that starts this in the background has SIGINT ignored, and so would every tool, which is told to end by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1:2] == ["--inside"]:
        return _run_inside(sys.argv[2])
    return _summarise(_run_all(sys.argv[1:]))


def _run_all(wanted: list[str]) -> list[tuple[Results, float]]:
    found: list[tuple[Results, float]] = []
    # Those that take seconds come first: who made a slip wants to know it at once.
    for shown, beside in _stages(wanted):
        found += _run_stage(shown, beside)
    return sorted(found, key=lambda one: wanted.index(one[0].suite))


def _stages(wanted: list[str]) -> list[tuple[list[str], list[str]]]:
    """Return the stages with what is wanted of each; a suite without another to run beside is one of those that are shown."""
    staged = {suite for shown, beside in STAGES for suite in (*shown, *beside)}
    stages = [([suite for suite in wanted if suite in shown], [suite for suite in wanted if suite in beside]) for shown, beside in STAGES]
    stages[0][0].extend(suite for suite in wanted if suite not in staged)
    return [(shown, beside) if shown else (beside, []) for shown, beside in stages]


def _run_stage(shown: list[str], beside: list[str]) -> list[tuple[Results, float]]:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            later = [pool.submit(_run, suite, quiet=True) for suite in beside]
            return [_run(suite) for suite in shown] + [one.result() for one in later]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _stop()
            raise


def _stop() -> None:
    """Tell every suite that runs to end, and give it time to tear its labs down."""
    told = list(running)
    for process in told:
        process.terminate()
    for process in told:
        process.wait(STOP_SECONDS)


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


def _run(suite: str, quiet: bool = False) -> tuple[Results, float]:
    """Run one suite in a process of its own; what it found, and how many seconds it took.

    :arg quiet: show what it prints only when it has ended.
    """
    (places.RESULTS / f"{suite}.json").unlink(missing_ok=True)
    started = time.monotonic()
    code = _run_quietly(suite) if quiet else _run_shown(suite)
    seconds = time.monotonic() - started
    results = read(suite)
    if results is None or code != 0:
        results = results or Results(suite)
        results.add(f"the suite broke off with exit code {code}", passed=False)
    print(f"== {suite}: {_counts(results)} in {seconds:.0f} s", flush=True)
    return results, seconds


def _run_shown(suite: str) -> int:
    print(f"\n== {suite}", flush=True)
    return _wait(subprocess.Popen([sys.executable, __file__, "--inside", suite]))


def _run_quietly(suite: str) -> int:
    with tempfile.TemporaryFile() as output:
        code = _wait(subprocess.Popen([sys.executable, __file__, "--inside", suite], stdout=output, stderr=subprocess.STDOUT))
        output.seek(0)
        print(f"\n== {suite}, which ran beside the others\n{output.read().decode(errors='replace')}", flush=True)
    return code


def _wait(process: subprocess.Popen[bytes]) -> int:
    running.append(process)
    code = process.wait()
    running.remove(process)
    return code


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
