# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which scenarios on whole machines are run: all that have not passed on this tree, or those that are named."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from suites import machines
from suites.results import Results

NAMES = ["boot", "clocks", "nfs_lease"]


@pytest.fixture
def run_scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the scenarios that were really run, filled by the run. Of NAMES, clocks has passed before."""
    run: list[str] = []
    monkeypatch.delenv("ONLY", raising=False)
    monkeypatch.setattr(machines, "PASSED", tmp_path)
    monkeypatch.setattr(machines, "tree_digest", lambda name: "tree")
    monkeypatch.setattr(machines, "_run_with_fleet", lambda results, names: run.extend(names))
    (tmp_path / "clocks-tree").write_text("1 cases in 600 s\n", encoding="utf-8")
    return run


def test_a_scenario_that_passed_on_this_tree_is_not_run_again(run_scenarios: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    results = Results("machines")
    machines.run_some(results, NAMES)
    assert run_scenarios == ["boot", "nfs_lease"]
    assert (results.passed, results.failed) == (1, 0)
    assert "clocks has passed on this tree already: 1 cases in 600 s" in capsys.readouterr().out


def test_a_changed_tree_runs_all_scenarios(run_scenarios: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "tree_digest", lambda name: "another")
    machines.run_some(Results("machines"), NAMES)
    assert run_scenarios == NAMES


@pytest.mark.parametrize(("only", "expected"), [("clocks", ["clocks"]), ("*o*", ["boot", "clocks"])])
def test_a_selected_scenario_is_run_although_it_has_passed(only: str, expected: list[str], run_scenarios: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY", only)
    machines.run_some(Results("machines"), NAMES)
    assert run_scenarios == expected


def test_a_selection_without_a_match_fails_the_suite(run_scenarios: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY", "nothing")
    results = Results("machines")
    machines.run_some(results, NAMES)
    assert run_scenarios == []
    assert results.failures == ["ONLY=nothing names no scenario; there are boot, clocks, nfs_lease"]


def test_a_scenario_under_ansible_rulebook_is_run_only_with_its_environment(run_scenarios: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = [True, False]
    monkeypatch.setattr(machines.eda, "make_environment", lambda: made.pop(0))
    with_it, without_it = Results("machines"), Results("machines")
    machines.run_some(with_it, ["high_availability"])
    machines.run_some(without_it, ["high_availability"])
    assert run_scenarios == ["high_availability"]
    assert (with_it.failures, without_it.failures) == ([], ["no virtual environment with ansible-rulebook"])


def test_the_tree_digest_covers_plugins_and_not_docs(tmp_path: Path) -> None:
    for name in ("plugins/a.py", "docs/b.md", "tests/machines/scenarios/test_boot.py", "tests/machines/scenarios/support/site.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one", encoding="utf-8")

    def changes_with(name: str, scenario: str) -> bool:
        before = machines.tree_digest(scenario, tmp_path)
        (tmp_path / name).write_text((tmp_path / name).read_text(encoding="utf-8") + " more", encoding="utf-8")
        return machines.tree_digest(scenario, tmp_path) != before

    assert changes_with("plugins/a.py", "boot")
    assert changes_with("tests/machines/scenarios/test_boot.py", "boot")
    assert changes_with("tests/machines/scenarios/support/site.py", "boot")
    assert not changes_with("tests/machines/scenarios/test_boot.py", "clocks")
    assert not changes_with("docs/b.md", "boot")


def test_a_mark_is_for_the_tree_that_the_scenario_ran_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = ["before"]

    def run(results: Results, *dummy_arguments: object, **dummy_options: object) -> None:
        trees.append("edited while it runs")
        results.add("boot", passed=True)

    monkeypatch.delenv("ONLY", raising=False)
    monkeypatch.setattr(machines, "PASSED", tmp_path)
    monkeypatch.setattr(machines, "tree_digest", lambda name: trees[-1])
    monkeypatch.setattr(machines, "scenarios", lambda *arguments, **dummy_options: contextlib.nullcontext({}))
    monkeypatch.setattr(machines, "_machines", lambda env, *arguments, timeout: None)
    monkeypatch.setattr(Results, "check", lambda self, *arguments, **options: True)
    monkeypatch.setattr(machines.pytest, "run", run)
    machines.run_some(Results("machines"), ["boot"])
    assert [path.name for path in tmp_path.iterdir()] == ["boot-before"]


def test_the_core_scenarios_exist() -> None:
    assert {f"test_{name}.py" for name in machines.CORE} <= {path.name for path in (machines.places.ROOT / machines.SCENARIOS).glob("test_*.py")}
