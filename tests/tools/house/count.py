# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counts sizes, names, types and imports of the plugins, and the tasks of the roles.

Usage: C(python tests/tools/house/count.py [CHECKOUT ...]): one column for each checkout, e.g. before and after; without arguments, this checkout.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from house.annotations import Annotations
    from house.imports import import_cycles, import_graph, mutual_pairs, package_graph, single_importers
    from house.sources import Function, SourceFile, read_plugins
else:
    from .annotations import Annotations
    from .imports import import_cycles, import_graph, mutual_pairs, package_graph, single_importers
    from .sources import Function, SourceFile, read_plugins

ROOT = Path(__file__).resolve().parents[3]
LONG_FUNCTION_LINES = 40
TASK = re.compile(r"^ *- name:", re.MULTILINE)

Figures = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("checkout", nargs="*", type=Path, default=[ROOT], help="a column each; this checkout without any")
    checkouts: list[Path] = parser.parse_args().checkout
    strangers = [str(path) for path in checkouts if not (path / "plugins").is_dir()]
    if strangers:
        parser.error(f"{', '.join(strangers)}: no folder of the collection, it has no plugins")
    print(format_table({path.resolve().name: count(path) for path in checkouts}))


def format_table(columns: dict[str, Figures]) -> str:
    """Return a line for each figure; one that a checkout does not have, such as the tasks of a role, is a dash."""
    titles = list(dict.fromkeys(title for figures in columns.values() for title in figures))
    width = max(map(len, titles))
    lines = ["".join([" " * width, *(f" {name:>12}" for name in columns)])]
    lines += ["".join([f"{title:<{width}}", *(f" {figures.get(title, '-'):>12}" for figures in columns.values())]) for title in titles]
    return "\n".join(lines)


def count(checkout: Path) -> Figures:
    """Return the figures of a checkout by title."""
    files = read_plugins(checkout)
    return {**_count_files(files), **_count_functions(files), **_count_imports(files), **_count_tasks(checkout)}


def _count_files(files: list[SourceFile]) -> Figures:
    lines = [file.lines for file in files if file.is_utility]
    return {
        "Python files of the plugins": str(len(files)),
        "utility files": str(len(lines)),
        "utility lines": str(sum(lines)),
        "median utility file, lines": f"{statistics.median(lines):.0f}",
    }


def _count_functions(files: list[SourceFile]) -> Figures:
    functions = [(file, function) for file in files for function in file.functions()]
    annotations = Annotations(files)
    vague = sum(annotations.is_vague_signature(file, function) for file, function in functions)
    short = sum(is_one_word(function.name) for _file, function in functions)
    sizes = [_size(function) for _file, function in functions]
    return {
        "functions": str(len(functions)),
        "median function, lines": f"{statistics.median(sizes):.0f}",
        f"functions over {LONG_FUNCTION_LINES} lines": str(sum(size > LONG_FUNCTION_LINES for size in sizes)),
        "one-word function names": _share(short, len(functions)),
        "signatures with Any": _share(vague, len(functions)),
        "names for dict[str, Any]": str(len(annotations.dictionary_aliases())),
    }


def _count_imports(files: list[SourceFile]) -> Figures:
    graph = import_graph(files)
    packages = package_graph(files, graph)
    return {
        "utility files with one importer": str(len(single_importers(files, graph))),
        "import cycles of files": str(len(import_cycles(graph))),
        "packages in an import cycle": str(sum(map(len, import_cycles(packages)))),
        "pairs of packages that import each other": str(len(mutual_pairs(packages))),
    }


def _count_tasks(checkout: Path) -> Figures:
    """Count the named tasks and blocks of each role."""
    return {f"tasks of {folder.parent.name}": str(_count_role(folder)) for folder in sorted((checkout / "roles").glob("*/tasks"))}


def _count_role(folder: Path) -> int:
    return sum(len(TASK.findall(path.read_text(encoding="utf-8"))) for path in folder.glob("*.yml"))


def is_one_word(name: str) -> bool:
    return "_" not in name.strip("_")


def _size(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


if __name__ == "__main__":
    main()
