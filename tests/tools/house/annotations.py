# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Vague signatures of functions: those with C(Any), C(object) or a container whose elements have no type, also through aliases."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .imports import resolve_from
from .sources import Function, SourceFile

VAGUE = {"Any", "object"}
CONTAINERS = {
    "dict", "list", "set", "frozenset", "tuple", "Dict", "List", "Set", "FrozenSet", "Tuple", "Mapping", "MutableMapping", "Sequence", "MutableSequence",
    "Iterable", "Iterator", "Collection", "Callable", "Generator",
}  # fmt: skip


class Annotations:
    """The type aliases of all files."""

    def __init__(self, files: list[SourceFile]) -> None:
        self._aliases = {file.module: dict(_aliases(file)) for file in files}
        self._imported = {file.module: dict(_imported_names(file)) for file in files}

    def is_vague_signature(self, file: SourceFile, function: Function) -> bool:
        """Whether an annotation of a parameter or of the result leaves open what the value is."""
        arguments = function.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        written = [argument.annotation for argument in given if argument] + [function.returns]
        return any(self._is_vague(file.module, annotation) for annotation in written if annotation)

    def dictionary_aliases(self) -> list[str]:
        """Return the aliases of a dictionary of C(Any), each with its file."""
        return [f"{module}.{name}" for module, found in self._aliases.items() for name, value in found.items() if _is_dictionary_of_any(value)]

    def _is_vague(self, module: str, node: ast.expr, seen: frozenset[tuple[str, str]] = frozenset()) -> bool:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._is_vague(module, ast.parse(node.value, mode="eval").body, seen)
        if isinstance(node, ast.Subscript):
            return self._is_vague_parameter(module, node, seen)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._is_vague_name(module, node, seen)
        return any(self._is_vague(module, child, seen) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))

    def _is_vague_parameter(self, module: str, node: ast.Subscript, seen: frozenset[tuple[str, str]]) -> bool:
        if _last_name(node.value) == "Literal":
            return False
        bare = _last_name(node.value) in CONTAINERS
        return self._is_vague(module, node.slice, seen) or (not bare and self._is_vague(module, node.value, seen))

    def _is_vague_name(self, module: str, node: ast.Name | ast.Attribute, seen: frozenset[tuple[str, str]]) -> bool:
        name = _last_name(node)
        if name in VAGUE or name in CONTAINERS:
            return True
        place, key = self._find(module, node)
        value = self._aliases.get(place, {}).get(key)
        return value is not None and (place, key) not in seen and self._is_vague(place, value, seen | {(place, key)})

    def _find(self, module: str, node: ast.Name | ast.Attribute) -> tuple[str, str]:
        """Return the file that a name comes from, and what it is called there."""
        if isinstance(node, ast.Attribute):
            base = _last_name(node.value)
            return ".".join(self._imported[module].get(base, (module, base))), node.attr
        place, name = self._imported[module].get(node.id, (module, node.id))
        return (place, name) if (place, name) == (module, node.id) or name not in self._imported.get(place, {}) else self._imported[place][name]


def _aliases(file: SourceFile) -> Iterator[tuple[str, ast.expr]]:
    for node in file.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _may_be_type(node.value):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value and _last_name(node.annotation) == "TypeAlias":
            yield node.target.id, node.value


def _may_be_type(value: ast.expr) -> bool:
    """Whether the assigned value may be a type: a name, a name with parameters, or a union."""
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.BitOr)
    return isinstance(value, (ast.Subscript, ast.Name, ast.Attribute))


def _imported_names(file: SourceFile) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom) and (base := resolve_from(file, node)) is not None:
            for alias in node.names:
                yield alias.asname or alias.name, (base, alias.name)


def _is_dictionary_of_any(node: ast.expr) -> bool:
    if not isinstance(node, ast.Subscript) or _last_name(node.value) not in ("dict", "Dict", "Mapping", "MutableMapping"):
        return False
    return isinstance(node.slice, ast.Tuple) and _last_name(node.slice.elts[-1]) == "Any"


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
