# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which file imports which, resolved to the collection's own files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from .sources import SourceFile

COLLECTION = "ansible_collections.kvmfleet.migration.plugins."

Graph = Mapping[str, frozenset[str]]


def import_graph(files: list[SourceFile]) -> dict[str, frozenset[str]]:
    """Return the files that each file imports, except itself. Imports for type checkers alone count, too."""
    known = {file.module for file in files}
    return {file.module: frozenset(_imported(file, known)) - {file.module} for file in files}


def resolve_from(file: SourceFile, node: ast.ImportFrom) -> str | None:
    """Return the dotted name that an import statement takes names from, below C(plugins); none for an import from elsewhere."""
    if not node.level:
        return node.module.removeprefix(COLLECTION) if node.module and node.module.startswith(COLLECTION) else None
    folder = file.module.split(".")[: -node.level]
    return ".".join([*folder, *(node.module or "").split(".")]).strip(".")


def _imported(file: SourceFile, known: set[str]) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom) and (base := resolve_from(file, node)) is not None:
            for alias in node.names:
                yield from {f"{base}.{alias.name}", base} & known


def single_importers(files: list[SourceFile], graph: Graph) -> list[str]:
    """Return the utility files that exactly one other file imports."""
    counts = dict.fromkeys((file.module for file in files if file.is_utility), 0)
    for imported in graph.values():
        for module in imported & counts.keys():
            counts[module] += 1
    return [module for module, count in counts.items() if count == 1]


def package_graph(files: list[SourceFile], graph: Graph) -> dict[str, frozenset[str]]:
    """Return the packages that each package imports from."""
    package = {file.module: file.package for file in files}
    found: dict[str, set[str]] = {}
    for module, imported in graph.items():
        found.setdefault(package[module], set()).update(package[other] for other in imported)
    return {name: frozenset(others - {name}) for name, others in found.items()}


def import_cycles(graph: Graph) -> list[list[str]]:
    """Return the groups of two or more names in which each reaches every other."""
    reached = {name: _reach(graph, name) for name in graph}
    groups = {frozenset([name, *(other for other in reached[name] if name in reached.get(other, ()))]) for name in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def mutual_pairs(graph: Graph) -> list[tuple[str, str]]:
    """Return the pairs of names that import each other directly."""
    return sorted((name, other) for name, others in graph.items() for other in others if name < other and name in graph.get(other, ()))


def _reach(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph.get(name, ())
    return found
