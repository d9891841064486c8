# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of docs/specs.md, the unit tests that they name, and the changes of the code that these tests have to detect."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from suites import mutations, places, specs_page
from suites.results import Results
from suites.specs_page import Misfit, Mutation

ROOT = Path(__file__).resolve().parents[3]
ROWS = specs_page.read_rows(ROOT)
PAGE = """# Specifications

## 1. Sums

| clause | implementation | test |
| --- | --- | --- |
| a sum is added up | `add` | `unit/.../test_sums.py::test_a_sum`, `sums/test_lab.py` |
| no sum has an end | | |

## Places

| source | destination | test |
| --- | --- | --- |
| gone | active | `unit/.../test_sums.py::test_a_sum`, `::test_nothing` |
| gone | gone | `unit/test_sums.py` |
"""
SUMS = "def add(one, two):\n    if one:\n        return one + two\n    return two\n"
TESTS = "from sums import add\n\n\ndef test_a_sum():\n    assert add(2, 3) == 5\n"
MUTATION = Mutation("1. Sums", "a sum is added up", "A sum is a product.", "plugins/sums.py", "one + two", "one * two")
YAML = "section: 1. Sums\nmutations:\n  - {row: a sum is added up, broken: Wrong., file: plugins/sums.py, old: one + two, new: one * two}\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A collection with one rule, its page and its test. The tools are those of the Python that runs this."""
    monkeypatch.setattr(places, "tool", lambda name: str(Path(sys.executable).with_name(name)))
    copy = tmp_path / "ansible_collections" / "kvmfleet" / "migration"
    files = {"docs/specs.md": PAGE, "plugins/sums.py": SUMS, "tests/unit/a/test_sums.py": TESTS, "tests/unit/a/sums.py": "", "tests/mutations/1.yml": YAML}
    for name, text in files.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text, encoding="utf-8")
    (copy / "tests/unit/a/sums.py").unlink()
    (copy / "tests/unit/a/sums.py").symlink_to(copy / "plugins/sums.py")
    (copy / "tests/unit/a/conftest.py").write_text("import os, sys\n\nsys.path.insert(0, os.path.dirname(__file__))\n", encoding="utf-8")
    return copy


def problems_of(tree: Path, *wanted: Mutation) -> list[str]:
    return specs_page.find_problems(tree, specs_page.read_rows(tree), wanted)


@pytest.mark.parametrize("section", sorted({row.section for row in ROWS}))
def test_each_row_of_the_page_has_a_test_and_a_mutation_that_applies(section: str) -> None:
    rows = [row for row in ROWS if row.section == section]
    found = [one for one in specs_page.read_mutations(ROOT) if one.section == section]
    assert specs_page.find_problems(ROOT, rows, found) == []


def test_every_mutation_belongs_to_a_table_of_the_page() -> None:
    assert {one.section for one in specs_page.read_mutations(ROOT)} == {row.section for row in ROWS}
    assert len({row.title for row in ROWS}) == len(ROWS) > 100


def test_rows_have_the_first_cells_that_are_unique_and_the_unit_tests_of_their_last_cell(tree: Path) -> None:
    rows = specs_page.read_rows(tree)
    assert [row.title for row in rows] == ["1. Sums: a sum is added up", "1. Sums: no sum has an end", "Places: gone; active", "Places: gone; gone"]
    assert rows[0].tests == rows[2].tests == ("tests/unit/a/test_sums.py::test_a_sum",)
    assert rows[2].wrong == ("unit/.../test_sums.py has no test_nothing",)
    assert (rows[1].tests, rows[3].tests, rows[3].wrong) == ((), (), ())


def test_what_is_missing_is_reported(tree: Path) -> None:
    assert problems_of(tree, MUTATION) == [
        "Places: gone; active: unit/.../test_sums.py has no test_nothing",
        "1. Sums: no sum has an end: names no unit test by function",
        "Places: gone; gone: names no unit test by function",
        "1. Sums: no sum has an end: has no mutation",
        "Places: gone; active: has no mutation",
        "Places: gone; gone: has no mutation",
    ]
    strange = dataclasses.replace(MUTATION, row="another row")
    assert "1. Sums: another row: A sum is a product.: there is no such row" in problems_of(tree, MUTATION, strange)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"file": "plugins/gone.py"}, "plugins/gone.py is no file below"),
        ({"file": "tests/unit/a/test_sums.py"}, "is no file below extensions, playbooks, plugins, roles"),
        ({"old": "one - two"}, "has the text 0 times: one - two"),
        ({"old": "two"}, "has the text 3 times: two"),
        ({"new": "one + two"}, "old and new are the same"),
        ({"new": "one +"}, "sums.py cannot be read after the change"),
        ({"old": "if two:\n    return one"}, "has the lines 0 times: if two: ..."),
    ],
)
def test_a_mutation_that_does_not_apply_is_reported(tree: Path, change: dict[str, str], why: str) -> None:
    wrong = dataclasses.replace(MUTATION, **change)
    with pytest.raises(Misfit, match=why.replace("+", r"\+")):
        specs_page.mutate(tree, wrong)
    assert any(why in problem for problem in problems_of(tree, wrong))


def test_lines_are_replaced_at_their_indentation(tree: Path) -> None:
    lines = dataclasses.replace(MUTATION, old="if one:\n    return one + two", new="return 5\nreturn 6")
    assert specs_page.mutate(tree, lines) == "def add(one, two):\n    return 5\n    return 6\n    return two\n"
    assert specs_page.mutate(tree, dataclasses.replace(lines, old="return one + two")).splitlines()[2:4] == ["        return 5", "        return 6"]


def test_a_mutation_of_another_form_is_refused(tree: Path) -> None:
    assert specs_page.read_mutations(tree) == [dataclasses.replace(MUTATION, broken="Wrong.")]
    (tree / "tests/mutations/1.yml").write_text("section: a\nmutations: [{row: a, file: b}]\n", encoding="utf-8")
    with pytest.raises(Misfit, match="a mutation has the texts broken, file, new, old, row"):
        specs_page.read_mutations(tree)


@pytest.mark.parametrize(
    ("new", "outcome"),
    [
        ("one * two", mutations.DETECTED),
        ("two + one", "NOT DETECTED, the tests pass"),
        ("one + three", "the changed file has undefined names"),
    ],
)
def test_a_mutation_is_detected_only_if_a_test_fails(tree: Path, new: str, outcome: str) -> None:
    verdict = mutations.run_mutation(tree, dataclasses.replace(MUTATION, new=new), ("tests/unit/a/test_sums.py::test_a_sum",))
    assert verdict.outcome.startswith(outcome)
    assert (tree / "plugins/sums.py").read_text(encoding="utf-8") == SUMS


def test_a_test_that_does_not_exist_or_does_not_end_detects_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mutations.run_mutation(tree, MUTATION, ("tests/unit/a/test_sums.py::test_gone",)).outcome.startswith("pytest ended with 4")
    monkeypatch.setattr(mutations, "LIMIT_SECONDS", 0.01)
    assert "did not end within" in mutations.run_mutation(tree, MUTATION, ("tests/unit/a/test_sums.py::test_a_sum",)).outcome


def test_the_suite_counts_each_mutation_and_each_problem(tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(places, "COPY", tree)
    monkeypatch.setattr(mutations, "make_copy", lambda number: tree)
    monkeypatch.delenv("ONLY", raising=False)
    results = Results("mutations")
    mutations.run(results)
    assert (results.passed, results.failed, results.skipped) == (2, 6, 0)
    assert capsys.readouterr().out.splitlines()[-1].split()[:4] == ["detected", "1", "a", "sum"]
    monkeypatch.setenv("ONLY", "Places")
    none = Results("mutations")
    mutations.run(none)
    assert (none.passed, none.failed) == (0, 6)


def test_nothing_is_judged_by_tests_that_fail_without_a_mutation(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "plugins/sums.py").write_text(SUMS.replace("+", "-"), encoding="utf-8")
    results = Results("mutations")
    assert not mutations.check_tests(results, tree, {"tests/unit/a/test_sums.py::test_a_sum"})
    assert (results.passed, results.failures) == (0, ["the tests pass without a mutation"])
