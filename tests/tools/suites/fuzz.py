# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzzing of what parses foreign bytes: every target by structure, those that take bytes by coverage too."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Mapping

from . import places
from .results import Results

CASES = 10000
FINDINGS = places.BUILD / "fuzz"
# A case takes a few milliseconds at most; this is for a machine that does much else.
SECONDS_A_CASE = 0.1
_PROGRAM = "ansible_collections.kvmfleet.migration.tests.fuzz"


def run(results: Results) -> None:
    """Run so many cases (CASES, each target and engine) of a seed (SEED), of all targets or of some (TARGETS)."""
    env = places.environment(TMPDIR=str(FINDINGS))
    cases, seed, wanted = int(os.environ.get("CASES") or CASES), os.environ.get("SEED") or "1", (os.environ.get("TARGETS") or "").split()
    FINDINGS.mkdir(parents=True, exist_ok=True)
    targets = _targets(env)
    for name in sorted(set(wanted) - set(targets)):
        results.add(f"{name}: there is no such target", passed=False)
    for name, engine in [(name, engine) for name, engines in targets.items() if not wanted or name in wanted for engine in engines]:
        title = f"{name} by {engine}, {cases} cases of seed {seed}"
        if engine == "coverage" and importlib.util.find_spec("atheris") is None:
            results.skip(title, "atheris is not installed: there is no wheel for this machine")
        else:
            argv = [*_program(), "--engine", engine, "--cases", str(cases), "--seed", seed, "--findings", str(FINDINGS), name]
            results.check(title, argv, env=env, hang_seconds=60 + SECONDS_A_CASE * cases)


def _program() -> list[str]:
    return [places.tool("python"), "-m", _PROGRAM]


def _targets(env: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the engines of each target."""
    listed = subprocess.run([*_program(), "--list"], cwd=places.COPY, env=env, capture_output=True, text=True, check=True, timeout=60)
    return {name: engines for name, *engines in map(str.split, listed.stdout.splitlines())}
