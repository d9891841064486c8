# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is run again, and what comes of it."""

from __future__ import annotations

import pytest
from suites import pytest as runner
from suites.results import Results

CASE = "tests.integration.lab.test_x::test_y[1]"


def tried(monkeypatch: pytest.MonkeyPatch, *runs: list[tuple[str, bool]]) -> tuple[Results, list[list[str]]]:
    """Return the counts, and what each run was asked to run, when the runs end so."""
    asked: list[list[str]] = []

    def run(results: Results, label: str, python: str, paths: list[str], env: object, timeout_seconds: float) -> None:
        for name, passed in runs[len(asked)]:
            results.add(f"{label}: {name}", passed)
        asked.append(paths)

    monkeypatch.setattr(runner, "run", run)
    results = Results("integration")
    runner.run_with_second_try(results, "kvt", "python", ["tests/integration/lab"], {}, 1)
    return results, asked


def test_what_passes_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    results, asked = tried(monkeypatch, [(CASE, True)])
    assert (results.passed, results.failed, asked) == (1, 0, [["tests/integration/lab"]])


def test_what_passes_the_second_time_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    results, asked = tried(monkeypatch, [("a::b", True), (CASE, False)], [(CASE, True)])
    assert (results.passed, results.failed, results.failures) == (2, 0, [])
    assert asked[1] == ["tests/integration/lab/test_x.py::test_y[1]"]
    assert f"PASSED ONLY WHEN RUN AGAIN: kvt: {CASE}" in capsys.readouterr().out


def test_what_fails_twice_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    results, dummy = tried(monkeypatch, [(CASE, False)], [(CASE, False)])
    assert (results.passed, results.failed) == (0, 1)


def test_a_case_that_fails_at_both_its_ends_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    results, asked = tried(monkeypatch, [(CASE, False), (CASE, False)], [(CASE, True)])
    assert (results.passed, results.failed, len(asked[1])) == (1, 0, 1)


@pytest.mark.parametrize("names", [["pytest ended with 124 after 0 cases"], [f"tests.a::test_{number}" for number in range(6)]])
def test_a_broad_failure_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    results, asked = tried(monkeypatch, [(name, False) for name in names])
    assert (results.failed, len(asked)) == (len(names), 1)
