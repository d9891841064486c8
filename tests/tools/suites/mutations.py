# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mutations: each rule of docs/specs.md is broken in a copy of the tree, and a unit test that its row names must fail."""

from __future__ import annotations

import fnmatch
import itertools
import os
import queue
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import places
from .hangs import HANG_SECONDS
from .results import Results
from .specs_page import Mutation, find_problems, mutate, read_mutations, read_rows, why_not

COPIES = places.BUILD / "mutations"
COLLECTION = Path("ansible_collections", "kvmfleet", "migration")
# A mutation that makes a test wait for ever is no proof.
LIMIT_SECONDS = HANG_SECONDS
TEST_FAILED = 1
# A name that does not exist would make any test fail, whatever it is about.
UNDEFINED = ("--isolated", "--quiet", "--select", "F821,F823,E9")
DETECTED = "detected"
# A changed file is never as old as another one: Python would take what it compiled for that.
_ages = itertools.count(1)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutation: C(DETECTED), or what is wrong."""

    mutation: Mutation
    tests: tuple[str, ...]
    outcome: str


def run(results: Results) -> None:
    """Run all mutations, or those of some rows (ONLY: a pattern of section and row); each is one result."""
    rows, mutations = read_rows(places.COPY), read_mutations(places.COPY)
    for problem in find_problems(places.COPY, rows, mutations):
        results.add(problem, passed=False)
    pattern = f"*{os.environ.get('ONLY') or ''}*"
    wanted = [one for one in mutations if fnmatch.fnmatchcase(f"{one.section}: {one.row}", pattern) and not why_not(places.COPY, one)]
    tests = {(row.section, row.name): row.tests for row in rows}
    work = [(one, tests[one.section, one.row]) for one in wanted if tests.get((one.section, one.row))]
    copies = [make_copy(number) for number in range(min(os.cpu_count() or 1, len(work)))]
    if copies and check_tests(results, copies[0], {test for dummy, named in work for test in named}):
        for verdict in run_mutations(work, copies):
            results.add(f"{verdict.mutation.title}: {verdict.outcome}", passed=verdict.outcome == DETECTED)
            print_verdict(verdict)


def make_copy(number: int) -> Path:
    """Return a copy of the tree, as the collection below a folder of its own."""
    folder = COPIES / str(number)
    subprocess.run([places.tool("python"), "tests/tools/sync.py", str(folder)], cwd=places.ROOT, check=True)
    return folder / COLLECTION


def check_tests(results: Results, copy: Path, tests: set[str]) -> bool:
    """Run the tests without a mutation, and return whether all pass: one that fails anyway detects nothing."""
    print(f"{len(tests)} tests without a mutation", flush=True)
    done = run_tests(copy, sorted(tests), LIMIT_SECONDS * 10)
    passed = done.returncode == 0
    results.add("the tests pass without a mutation", passed)
    if not passed:
        print(done.stdout, flush=True)
    return passed


def run_mutations(work: Sequence[tuple[Mutation, tuple[str, ...]]], copies: Sequence[Path]) -> Iterator[Verdict]:
    """Yield the verdicts in the order of the work; so many run at once as there are copies."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)
    with ThreadPoolExecutor(len(copies)) as pool:
        running = [pool.submit(_run_in_free_copy, free, mutation, tests) for mutation, tests in work]
        try:
            for one in running:
                yield one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_in_free_copy(free: queue.SimpleQueue[Path], mutation: Mutation, tests: tuple[str, ...]) -> Verdict:
    copy = free.get()
    try:
        return run_mutation(copy, mutation, tests)
    finally:
        free.put(copy)


def run_mutation(copy: Path, mutation: Mutation, tests: tuple[str, ...]) -> Verdict:
    """Change the copy, run the tests of the row, and change it back."""
    path, changed = copy / mutation.file, mutate(copy, mutation)
    original, written_ns = path.read_bytes(), path.stat().st_mtime_ns
    try:
        path.write_text(changed, encoding="utf-8")
        os.utime(path, ns=(written_ns, written_ns + next(_ages) * 1_000_000_000))
        return Verdict(mutation, tests, _judge(copy, path, tests))
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(written_ns, written_ns))


def _judge(copy: Path, path: Path, tests: tuple[str, ...]) -> str:
    if path.suffix == ".py":
        checked = subprocess.run([places.tool("ruff"), "check", *UNDEFINED, str(path)], capture_output=True, text=True, check=False)
        if checked.returncode:
            return f"the changed file has undefined names: {checked.stdout}"
    try:
        done = run_tests(copy, tests, LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"the tests did not end within {LIMIT_SECONDS} s"
    if done.returncode == TEST_FAILED:
        return DETECTED
    return "NOT DETECTED, the tests pass" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout[-2000:]}"


def run_tests(copy: Path, tests: Sequence[str], limit_seconds: float) -> subprocess.CompletedProcess[str]:
    """Run these tests of a copy until one fails. Raises subprocess.TimeoutExpired."""
    build = copy.parents[2]
    env = places.environment(PYTHONPATH=str(build), ANSIBLE_COLLECTIONS_PATH=str(build), PYTHONPYCACHEPREFIX=str(build / "pycache"))
    argv = [places.tool("python"), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--import-mode=importlib", "--strict-markers", *tests]
    return subprocess.run(argv, cwd=copy, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_seconds, check=False)


def print_verdict(verdict: Verdict) -> None:
    """Print a line of the table: the outcome, the row, what was broken, and the tests."""
    one = verdict.mutation
    print(f"{verdict.outcome:<10} {one.section.split('. ')[0][:12]:<12} {one.row[:70]:<70}  {one.broken}  [{', '.join(verdict.tests)}]", flush=True)
