# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running pytest, for real: what is counted, and how a case that hangs is told from cases that are slow."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from suites import hangs, places
from suites import pytest as runner
from suites.results import Results


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(places, "COPY", tmp_path)


def results_of(folder: Path, text: str, *options: str) -> Results:
    """Run these cases."""
    (folder / "test_cases.py").write_text(f"import time\nimport pytest\n{text}", encoding="utf-8")
    results = Results("some")
    runner.run(results, "lane", sys.executable, [*options, "test_cases.py"], os.environ)
    return results


def test_each_case_is_counted_once_and_not_retried(tmp_path: Path) -> None:
    """A failed case is not repeated: this one would pass then."""
    results = results_of(
        tmp_path,
        """
def test_good(): pass
def test_bad(tmp_path_factory):
    mark = pytest.importorskip("pathlib").Path("tried")
    first = not mark.exists()
    mark.touch()
    assert not first
""",
    )
    assert (results.passed, results.failed, results.failures) == (1, 1, ["lane: test_cases::test_bad: assert not True"])


def test_a_run_without_a_case_has_failed(tmp_path: Path) -> None:
    assert results_of(tmp_path, "").failures == ["lane: pytest ended with 5 after 0 cases"]


class Patient(hangs.Cases):
    """Waits without limit until the case hangs and the other one has ended: how fast pytest begins is not what is tested."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._waited = 0

    def signs(self) -> int:
        self._waited += super().signs() < 1 or not self._path.with_name("hangs").exists()
        return self._waited


@pytest.mark.parametrize("options", [pytest.param((), id="alone"), pytest.param(("-n", "1"), id="shared out", marks=pytest.mark.long)])
def test_a_case_that_hangs_is_named_and_the_others_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(hangs, "HANG_SECONDS", 8.0)
    monkeypatch.setattr(runner, "STACKS_SHARE", 0.25)
    monkeypatch.setattr(hangs, "Cases", Patient)
    results = results_of(
        tmp_path,
        """
def test_good(): pass
def test_hangs():
    open("results/hangs", "w").close()
    for _ in range(600): time.sleep(0.5)
@pytest.fixture(scope="module", autouse=True)
def lab():
    yield
    open("taken-down", "w").close()
""",
        *options,
    )
    (failure,) = results.failures
    assert failure.startswith("lane: hung: no case has ended for 8 s, running: ")
    assert failure.endswith("test_cases.py::test_hangs")
    assert results.passed == 1
    assert "in test_hangs" in capfd.readouterr().out, "where it hangs"
    assert (tmp_path / "taken-down").exists() or options


def test_only_running_cases_are_named_when_a_run_hangs(tmp_path: Path) -> None:
    cases = hangs.Cases(tmp_path / "cases")
    assert (cases.signs(), cases.describe(600)) == (0, "hung: no case has ended for 600 s, running: none (collection, or the end of the run)")
    (tmp_path / "cases").write_text("begin a::x\nbegin b::y[1 2]\nend a::x\nbegin c::z\n", encoding="utf-8")
    assert (cases.signs(), cases.describe(600)) == (1, "hung: no case has ended for 600 s, running: b::y[1 2], c::z")
