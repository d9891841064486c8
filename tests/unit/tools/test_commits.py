# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which subjects of commits are refused, and from which commit on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from suites import commits
from suites.results import Results


@pytest.mark.parametrize(
    "message", ["fix: give survivors the usual time", "feat: pass secrets by file\n\nA body.", "test: discuss nothing", "docs: bring 2.20 back"]
)
def test_a_subject_in_the_imperative_is_accepted(message: str) -> None:
    assert commits.problem_of(message) == ""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"fix: {'a' * 20} {'b' * 50}", "76 characters"),
        ("give survivors the usual time", "KIND: do something"),
        ("fix: Give survivors the usual time", "KIND: do something"),
        ("fix: give survivors the usual time.", "KIND: do something"),
        ("feature: give survivors the usual time", "KIND: do something"),
        ("fix: gives survivors the usual time", "'gives'"),
        ("fix: added a time", "'added'"),
        ("fix: adding a time", "'adding'"),
        ("fix: give survivors the usual time\nand a body", "not empty"),
    ],
)
def test_a_subject_of_another_form_is_refused(message: str, words: str) -> None:
    assert words in commits.problem_of(message)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose first commit has a bad subject, and whose second one adds the check."""
    _git(tmp_path, "init", "-q")
    _commit(tmp_path, "whatever.txt", "Whatever.")
    _commit(tmp_path, "tests/tools/suites/commits.py", "Checked from here on.")
    return tmp_path


def test_only_commits_after_the_check_was_added_are_checked(repository: Path) -> None:
    assert _run(repository).failed == 0
    _commit(repository, "more.txt", "feat: add more")
    assert _run(repository).failed == 0
    _commit(repository, "even_more.txt", "Added even more")
    assert _run(repository).failures[0].startswith("commits: Added even more: the subject has not the form")


def test_a_tree_without_history_is_skipped(tmp_path: Path) -> None:
    found = _run(tmp_path)
    assert (found.passed, found.failed, found.skipped) == (0, 0, 1)
    assert "not a git repository" in found.skips[0]


def _run(root: Path) -> Results:
    results = Results("lint")
    commits.run(results, root)
    return results


def _commit(root: Path, path: str, message: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("")
    _git(root, "add", "-A")
    _git(root, "-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "commit", "-q", "-m", message)


def _git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, timeout=60)
