# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Python files of the collection's plugins, parsed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UTILITIES = ("module_utils", "plugin_utils")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """One file: its path below C(plugins) without C(.py) as a dotted name, its number of lines, and what is in it."""

    module: str
    lines: int
    tree: ast.Module

    @property
    def is_utility(self) -> bool:
        return self.module.startswith(UTILITIES)

    @property
    def package(self) -> str:
        """Return the folder of the file."""
        return self.module.rpartition(".")[0]

    def functions(self) -> Iterator[Function]:
        """Yield its functions and methods, without special methods such as C(__init__)."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function) and not (node.name.startswith("__") and node.name.endswith("__")):
                yield node


def read_plugins(checkout: Path) -> list[SourceFile]:
    """Read all Python files below C(plugins) that have content."""
    plugins = checkout / "plugins"
    found = []
    for path in sorted(plugins.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(plugins).with_suffix("").parts)
        if text.strip():
            found.append(SourceFile(module, len(text.splitlines()), ast.parse(text, str(path))))
    return found
