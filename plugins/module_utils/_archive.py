# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A part of this collection as one archive that Python runs on a host without the collection. The same sources are always the same bytes."""

from __future__ import annotations

import ast
import importlib.util
import io
import typing as t
import zipfile

from ._model.errors import Internal

# The package of the utilities. In the archive it has only its own name, because utilities import each other relatively.
_PACKAGE = __name__.rpartition(".")[0]
_TOP = _PACKAGE.rpartition(".")[2]


def build_archive(function: t.Callable[[], object]) -> bytes:
    """Return an archive that calls a function of a utility, with all utilities that this one imports.

    The caller has imported the function, so Ansible has sent all of them to the host.
    """
    module = function.__module__[len(_PACKAGE) + 1 :]
    sources = _list_sources(module)
    packages = {"", *(f"{name.rpartition('.')[0]}/" for name in sources if "." in name)}
    files = {f"{_TOP}/{name.replace('.', '/')}.py": source for name, source in sources.items()}
    files.update({f"{_TOP}/{package}__init__.py": "" for package in packages})
    files["__main__.py"] = f"from {_TOP}.{module} import {function.__name__}\n\n{function.__name__}()\n"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path), text)
    return stream.getvalue()


def _list_sources(module: str) -> t.Dict[str, str]:
    """Return the source of a utility, and of every other one that it imports, by name."""
    sources: t.Dict[str, str] = {}
    left = [module]
    while left:
        name = left.pop()
        if name not in sources:
            sources[name] = _read_source(name)
            left.extend(_list_imports(name, sources[name]))
    return sources


def _read_source(name: str) -> str:
    spec = importlib.util.find_spec(f"{_PACKAGE}.{name}")
    source = spec.loader.get_source(spec.name) if spec and spec.loader else None  # type: ignore[attr-defined]
    if source is None:
        raise Internal(f"The source of {name} cannot be read from the collection.", "Report this as a bug.")
    return str(source)


def _list_imports(name: str, source: str) -> t.Iterator[str]:
    """Yield the utilities that a source imports; all of these imports are relative."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*name.split(".")[: -node.level], *(node.module.split(".") if node.module else [])]
            inside = [".".join([*base, alias.name]) for alias in node.names]
            # Of a package its files are imported, of a file what it contains.
            yield from inside if not base or _is_package(".".join(base)) else [".".join(base)]


def _is_package(name: str) -> bool:
    spec = importlib.util.find_spec(f"{_PACKAGE}.{name}")
    return spec is not None and spec.submodule_search_locations is not None
