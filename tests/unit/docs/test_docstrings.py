# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docstrings of the plugins describe arguments and attributes that exist."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

import ansible_collections.kvmfleet.migration as collection

ROOT = pathlib.Path(next(iter(collection.__path__))) / "plugins"
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def list_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in named if argument}


def list_names(definition: Definition) -> set[str]:
    """Return the names of a function's arguments, or of a class's fields and of the arguments of its C(__init__)."""
    if not isinstance(definition, ast.ClassDef):
        return list_arguments(definition)
    fields = {node.target.id for node in definition.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    created = [list_arguments(node) for node in definition.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return fields.union(*created)


def find_unknown_arguments(source: str) -> Iterator[str]:
    """Yield the names that docstrings describe and that do not exist, as C(definition: name)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Definition):
            described = re.findall(r":arg (\w+):", ast.get_docstring(node) or "")
            yield from (f"{node.name}: {name}" for name in described if name not in list_names(node))


def test_docstrings_describe_only_arguments_that_exist() -> None:
    found = {str(path.relative_to(ROOT)): list(find_unknown_arguments(path.read_text())) for path in sorted(ROOT.rglob("*.py"))}
    assert len(found) > 200
    assert {path: names for path, names in found.items() if names} == {}


def test_a_described_argument_that_was_renamed_is_found() -> None:
    function = 'def find(uuid):\n    """Return it.\n\n    :arg name: of the domain.\n    """\n'
    dataclass = 'class Job:\n    """A job.\n\n    :arg passed: whether it passed.\n    """\n\n    name: str\n'
    assert [*find_unknown_arguments(function), *find_unknown_arguments(dataclass)] == ["find: name", "Job: passed"]
