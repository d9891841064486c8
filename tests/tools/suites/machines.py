# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scenarios on whole machines: each in a run of pytest of its own, which begins with the fleet as its warm snapshot has it.

What passed is remembered for the tree that it passed on, so a set that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import eda, places, pytest
from .results import Results
from .warnings_gate import scenarios

PREFIX = "kvm"
COMMAND = places.COPY / "tests" / "machines" / "machines"
SCENARIOS = Path("tests", "machines", "scenarios")
PASSED = places.BUILD / "machines"
# What a scenario's outcome depends on, without the files of the other scenarios.
TREE = ("meta", "playbooks", "plugins", "roles", "tests/integration/recover/support", "tests/integration/support", "tests/lab", "tests/machines")
# Run under ansible-rulebook, and follow a guide: by name what the outcome depends on as well.
GUIDED = {"high_availability": ("docs/guides", "extensions", "tests/integration/guides/support")}
# These run no playbook, so that Ansible has nothing to log.
WITHOUT_ANSIBLE = {"sbd"}
CORE = ("whole_story", "power_cut", "nfs_lease", "kill_user_processes")
# For hangs only: on two processors that do nothing else, only the maintenance night takes longer than 20 minutes; whole_story took 67 beside other work.
SCENARIO_SECONDS = 4 * 3600
# The first time an image and the warm snapshot are made.
UP_SECONDS = 5400
DOWN_SECONDS = 120


def run(results: Results) -> None:
    """Run all scenarios that have not passed on this tree yet, or those that ONLY names, whether they have or not."""
    run_some(results, _names())


def run_some(results: Results, names: list[str]) -> None:
    """Run these scenarios one after the other: each wants the whole fleet."""
    only, marks = os.environ.get("ONLY") or "", {name: PASSED / f"{name}-{tree_digest(name)}" for name in names}
    chosen = [name for name in names if fnmatch.fnmatch(name, only)] if only else [name for name in names if not marks[name].exists()]
    for name in names:
        if not only and name not in chosen:
            print(f"{name} has passed on this tree already: {marks[name].read_text(encoding='utf-8').strip()}", flush=True)
            results.add(f"{name} (earlier, on the same tree)", passed=True)
    if only and not chosen:
        results.add(f"ONLY={only} names no scenario; there are {', '.join(names)}", passed=False)
    if GUIDED.keys() & set(chosen) and not eda.make_environment():
        results.add("no virtual environment with ansible-rulebook", passed=False)
    elif chosen:
        _run_with_fleet(results, {name: marks[name] for name in chosen})


def tree_digest(name: str, root: Path = places.COPY) -> str:
    """Return what changes with any file that the outcome of this scenario depends on."""
    digest = hashlib.sha256()
    others = set((root / SCENARIOS).glob("test_*.py")) - {root / SCENARIOS / f"test_{name}.py"}
    for path in sorted(
        path for part in (*TREE, *GUIDED.get(name, ())) for path in (root / part).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ):
        if path not in others:
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _names() -> list[str]:
    return sorted(path.stem.removeprefix("test_") for path in (places.COPY / SCENARIOS).glob("test_*.py"))


def _run_with_fleet(results: Results, chosen: dict[str, Path]) -> None:
    """:arg chosen: by scenario the file that is written when it passes, named after the tree as it was before anything ran."""
    runs_ansible = not chosen.keys() <= WITHOUT_ANSIBLE
    with scenarios(results, PREFIX, places.INTEGRATION_VENV, runs_ansible=runs_ansible) as env, fleet(results, env) as inside:
        for name, mark in chosen.items() if inside else ():
            _run_scenario(results, name, inside, mark)


@contextmanager
def fleet(results: Results, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """Give the environment in which a fleet is up, empty if it does not come up; it is taken down at the end."""
    env = {**env, "KVMFLEET_MACHINES_PREFIX": PREFIX}
    _machines(env, "down", timeout=DOWN_SECONDS)
    try:
        yield env if results.check("the fleet comes up", [str(COMMAND), "up"], env=env, hang_seconds=UP_SECONDS) else {}
    finally:
        _machines(env, "down", timeout=DOWN_SECONDS)


def _machines(env: dict[str, str], *arguments: str, timeout: float) -> None:
    subprocess.run([str(COMMAND), *arguments], env=env, check=True, timeout=timeout, stdin=subprocess.DEVNULL)


def _run_scenario(results: Results, name: str, env: dict[str, str], mark: Path) -> None:
    evidence = places.RESULTS / f"machines-{name}"
    shutil.rmtree(evidence, ignore_errors=True)
    one, begun = Results(results.suite), time.monotonic()
    venv = eda.VENV if name in GUIDED else places.INTEGRATION_VENV
    python = places.tool("python", venv)
    told = {**env, "PATH": places.environment(venv)["PATH"], "KVMFLEET_MACHINES_EVIDENCE": str(evidence)}
    pytest.run(one, name, python, [str(SCENARIOS / f"test_{name}.py")], told, hang_seconds=SCENARIO_SECONDS)
    if one.passed and not one.failed and not one.skipped:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(f"{one.passed} cases in {time.monotonic() - begun:.0f} s\n", encoding="utf-8")
    results.merge(one)
