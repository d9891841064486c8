# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of a small tree are known; they are counted right."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.tests.tools.house.annotations import Annotations
from ansible_collections.kvmfleet.migration.tests.tools.house.count import ROOT, count, format_table, is_one_word
from ansible_collections.kvmfleet.migration.tests.tools.house.imports import import_cycles, import_graph, mutual_pairs, package_graph, single_importers
from ansible_collections.kvmfleet.migration.tests.tools.house.sources import SourceFile, read_plugins

TREE = {
    "module_utils/_model/record.py": "import typing as t\nRecord = t.Dict[str, t.Any]\nName = str\n\n\ndef read(record: Record) -> Name:\n    return 'x'\n",
    "module_utils/_facts/host.py": "from .._model.record import Name\n\n\ndef host_name() -> Name:\n    return 'x'\n",
    "module_utils/_model/empty.py": "\n",
    "plugin_utils/_drain/plan.py": (
        "from ansible_collections.kvmfleet.migration.plugins.module_utils._model import record as r\n"
        "from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.host import host_name\n\n\n"
        "def make_plan(record: r.Record) -> None:\n    host_name()\n"
    ),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / "plugins" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    tasks = tmp_path / "roles/drain_host/tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text("- name: Drain\n  block:\n    - name: Plan\n      debug:\n- name: Verify\n  debug:\n")
    return tmp_path


def test_figures_of_a_small_tree_are_counted(tree: Path) -> None:
    figures = count(tree)
    assert figures["utility files"] == "3"
    assert figures["functions"] == "3"
    assert figures["one-word function names"] == "33 %"
    # The alias is followed through both ways to import it.
    assert figures["signatures with Any"] == "67 %"
    assert figures["names for dict[str, Any]"] == "1"
    assert figures["utility files with one importer"] == "1"
    assert figures["tasks of drain_host"] == "3"


def test_relative_and_absolute_imports_resolve_to_the_same_files(tree: Path) -> None:
    files = read_plugins(tree)
    graph = import_graph(files)
    assert graph["module_utils._facts.host"] == {"module_utils._model.record"}
    assert graph["plugin_utils._drain.plan"] == {"module_utils._model.record", "module_utils._facts.host"}
    assert single_importers(files, graph) == ["module_utils._facts.host"]
    assert package_graph(files, graph)["plugin_utils._drain"] == {"module_utils._model", "module_utils._facts"}


def test_modules_that_import_each_other_are_one_cycle() -> None:
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}
    assert import_cycles(graph) == [["a", "b", "c"]]


def test_pairs_that_import_each_other_are_named_once() -> None:
    graph = {"a": frozenset("b"), "b": frozenset("ac"), "c": frozenset("a"), "d": frozenset("d")}
    assert mutual_pairs(graph) == [("a", "b")]


def test_a_table_of_two_trees_shows_a_dash_for_missing_figures() -> None:
    table = format_table({"before": {"files": "12", "tasks of drain_host": "30"}, "after": {"files": "9", "tasks of report": "2"}})
    assert [line.split() for line in table.splitlines()] == [
        ["before", "after"],
        ["files", "12", "9"],
        ["tasks", "of", "drain_host", "30", "-"],
        ["tasks", "of", "report", "-", "2"],
    ]
    assert len({len(line) for line in table.splitlines()}) == 1


def test_the_tasks_of_each_role_are_counted(tree: Path) -> None:
    (tree / "roles/report/tasks").mkdir(parents=True)
    (tree / "roles/report/tasks/main.yml").write_text("- name: Report\n  debug:\n")
    assert {title: figure for title, figure in count(tree).items() if title.startswith("tasks")} == {"tasks of drain_host": "3", "tasks of report": "1"}


@pytest.mark.parametrize(
    ("signature", "is_vague"),
    [
        ("def f(value: t.Any) -> None: ...", True),
        ("def f() -> object: ...", True),
        ("def f(*values: dict) -> None: ...", True),
        ("def f(values: t.Sequence) -> None: ...", True),
        ("def f(values: 't.Mapping[str, t.Any] | None') -> None: ...", True),
        ("def f(ask: t.Callable[[], t.Any]) -> None: ...", True),
        ("def f(values: dict[str, int], *, mode: t.Literal['Any']) -> list[str]: ...", False),
        ("def f(value): ...", False),
    ],
)
def test_a_signature_with_any_or_a_bare_container_is_vague(signature: str, is_vague: bool) -> None:
    file = SourceFile("module_utils._x", 1, ast.parse(signature))
    (function,) = file.functions()
    assert Annotations([file]).is_vague_signature(file, function) is is_vague


@pytest.mark.parametrize(("name", "one"), [("read", True), ("_read", True), ("read_plan", False)])
def test_a_leading_underscore_does_not_count_in_one_word_names(name: str, one: bool) -> None:
    assert is_one_word(name) is one


def test_unit_tests_are_named_after_the_modules_that_they_test() -> None:
    plugins, tests = ROOT / "plugins", ROOT / "tests/unit/plugins"
    # The corpus of an earlier version is about all documents of its half.
    named = {path.relative_to(tests).with_suffix("") for path in tests.rglob("test_*.py") if path.stem != "test_golden"}
    assert [str(test) for test in sorted(named) if not _modules_of(test, plugins)] == []


def _modules_of(test: Path, plugins: Path) -> list[Path]:
    """Return the modules in the mirrored folder whose name the name of the test file begins with."""
    words = test.name.removeprefix("test_").strip("_") + "_"
    return [path for path in (plugins / test.parent).glob("*.py") if words.startswith(path.stem.strip("_") + "_")]
