# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The counts of one suite, and the file in .build/results that carries them to the summary."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import places, processes

PROBLEM_LENGTH = 400


@dataclass
class Results:
    """What one suite found. A skip always has its reason, and is not a pass."""

    suite: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)

    def add(self, name: str, passed: bool) -> None:
        """Count one check."""
        if passed:
            self.passed += 1
        else:
            self.failed += 1
            self.failures.append(name)

    def merge(self, other: Results) -> None:
        """Add the counts of another run of this suite."""
        self.passed, self.failed, self.skipped = self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        self.failures += other.failures
        self.skips += other.skips

    def skip(self, name: str, reason: str) -> None:
        """Count one check that could not be done here."""
        self.skipped += 1
        self.skips.append(f"{name}: {reason}")

    def check(
        self,
        name: str,
        argv: Sequence[str],
        cwd: Path = places.COPY,
        env: Mapping[str, str] | None = None,
        hang_seconds: float | None = None,
        quiet: bool = False,
    ) -> bool:
        """Run a tool whose exit code is the verdict, and count it. One that hangs has failed, and its name says what hung.

        :arg hang_seconds: how long it may print nothing.
        :arg quiet: show what it prints only when it fails.
        """
        ended = processes.run(argv, cwd, env or places.environment(), hang_seconds=hang_seconds, quiet=quiet)
        passed = ended.code == 0
        self.add(f"{name} {ended.hang}" if ended.hang else name, passed)
        return passed

    def add_junit(self, report: Path, prefix: str = "") -> int:
        """Count the cases of a JUnit file and return how many they were. Raises ElementTree.ParseError for a torn one."""
        # A case that was broken off has no name, and would be taken for one that has not failed.
        cases = [case for case in ET.parse(report).getroot().iter("testcase") if case.get("name")]
        for case in cases:
            name = f"{prefix}{case.get('classname', '')}::{case.get('name', '')}"
            skipped = case.find("skipped")
            if skipped is not None:
                self.skip(name, skipped.get("message") or skipped.text or "no reason given")
            elif (problem := _problem(case)) is not None:
                self.add(f"{name}: {problem}", passed=False)
            else:
                self.add(name, passed=True)
        return len(cases)

    def write(self, folder: Path = places.RESULTS) -> None:
        """Leave the counts for the summary."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.suite}.json").write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def _problem(case: ET.Element) -> str | None:
    """Return on one line why a case failed, so that the summary says it too; None for one that passed."""
    found = next((problem for tag in ("failure", "error") if (problem := case.find(tag)) is not None), None)
    return None if found is None else " ".join((found.get("message") or "no message").split())[:PROBLEM_LENGTH]


def read(suite: str, folder: Path = places.RESULTS) -> Results | None:
    """Return what a suite left, None where it left nothing that can be read."""
    try:
        return Results(**json.loads((folder / f"{suite}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
