# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What counts as passed, failed and skipped."""

from __future__ import annotations

from pathlib import Path

from suites.results import Results, read

REPORT = """<testsuites><testsuite>
<testcase classname="a" name="good"/>
<testcase classname="a" name="bad"><failure message="no&#10;  host"/></testcase>
<testcase classname="a" name="broken"><error/></testcase>
<testcase time="0.000"/>
<testcase classname="a" name="absent"><skipped message="no Python 3.9"/></testcase>
</testsuite></testsuites>"""


def test_junit_cases_are_counted_by_outcome(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT, encoding="utf-8")
    results = Results("units")
    assert results.add_junit(report) == 4
    assert (results.passed, results.failed, results.skipped) == (1, 2, 1)
    assert results.failures == ["a::bad: no host", "a::broken: no message"]
    assert results.skips == ["a::absent: no Python 3.9"]


def test_results_are_read_back_from_their_file(tmp_path: Path) -> None:
    results = Results("lint", passed=2)
    results.add("ruff", passed=False)
    results.write(tmp_path)
    assert read("lint", tmp_path) == results


def test_torn_or_missing_results_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "lint.json").write_text('{"suite": "lint", "pas', encoding="utf-8")
    assert read("lint", tmp_path) is None
    assert read("units", tmp_path) is None


def test_check_counts_the_exit_code(tmp_path: Path) -> None:
    results = Results("lint")
    results.check("good", ["true"], cwd=tmp_path)
    results.check("bad", ["false"], cwd=tmp_path)
    assert (results.passed, results.failures) == (1, ["bad"])
