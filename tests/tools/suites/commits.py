# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The subjects of commits: what kind of change it is, and in the imperative what it does. Checked from the commit on that added this file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from . import places
from .results import Results

KINDS = ("build", "ci", "docs", "feat", "fix", "perf", "refactor", "test")
LONGEST = 72
HERE = "tests/tools/suites/commits.py"
_SUBJECT = re.compile(rf"(?:{'|'.join(KINDS)}): (?P<verb>[a-z]+) \S.*[^.\s]")
# A first word that ends so is in another mood: "added", "adding", "adds".
_OTHER_MOOD = re.compile(r"\w{2,}(?:ed|ing|[^su]s)")
# Imperatives that end so all the same.
_VERBS = {"embed", "feed", "need", "bring", "string", "bias"}


def run(results: Results, root: Path = places.ROOT) -> None:
    """Check every commit after the one that added this file; where git cannot tell them, nothing is checked."""
    try:
        messages = _messages(root)
    except (OSError, subprocess.CalledProcessError) as error:
        results.skip("commits", str(getattr(error, "stderr", "") or error).strip())
        return
    problems = [f"{message.strip().splitlines()[0]}: {problem}" for message in messages if (problem := problem_of(message))]
    results.add(f"commits: {'; '.join(problems)}" if problems else f"the subjects of {len(messages)} commits", passed=not problems)


def _messages(root: Path) -> list[str]:
    added = _git(root, "log", "--diff-filter=A", "--format=%H", "-1", "--", HERE).strip()
    told = _git(root, "log", "--no-merges", "--format=%B%x00", f"{added}..HEAD") if added else ""
    return [message for message in told.split("\0") if message.strip()]


def problem_of(message: str) -> str:
    """Say what is wrong with a commit's message; empty where nothing is."""
    subject, *body = message.strip().splitlines()
    found = _SUBJECT.fullmatch(subject)
    if len(subject) > LONGEST:
        return f"the subject has {len(subject)} characters, and at most {LONGEST} are shown everywhere"
    if not found:
        return f"the subject has not the form 'KIND: do something' without a full stop at its end, where KIND is one of {', '.join(KINDS)}"
    if _OTHER_MOOD.fullmatch(found["verb"]) and found["verb"] not in _VERBS:
        return f"{found['verb']!r} is not in the imperative"
    return "the line after the subject is not empty" if body and body[0].strip() else ""


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=60).stdout
