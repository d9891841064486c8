# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests hand scripts to other processes as strings, which no type checker reads: what these import from the plugins is there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
# Documents of released versions name modules of those versions.
RELEASED = TESTS / "golden"
# Its strings are files of a plugin tree that there is not.
MADE_UP = TESTS / "unit" / "tools" / "test_house.py"
_IMPORT = re.compile(r"^from (ansible_collections\.kvmfleet\.migration\.plugins[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def imports_in(file: Path) -> Iterator[tuple[str, str]]:
    """Yield module and name of what scripts in the strings of a file import from the plugins."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in _IMPORT.findall(node.value):
                yield from ((module, name.partition(" as ")[0].strip()) for name in names.split(","))


FILES = [file for file in TESTS.rglob("*.py") if RELEASED not in file.parents and file != MADE_UP]
FOUND = sorted({(file, *found) for file in FILES for found in imports_in(file)})


@pytest.mark.parametrize(("file", "module", "name"), [pytest.param(*one, id=f"{one[0].name}: {one[1].rpartition('.')[2]}.{one[2]}") for one in FOUND])
def test_what_a_script_imports_is_there(file: Path, module: str, name: str) -> None:
    owner = importlib.import_module(module)
    assert hasattr(owner, name) or importlib.util.find_spec(f"{module}.{name}"), f"{file} imports {name} from {module}"


def test_scripts_of_tests_are_found() -> None:
    assert {"test_keepalive.py", "test_concurrent_tasks.py", "test_inventory.py", "test_probe.py"} <= {file.name for file, _module, _name in FOUND}
