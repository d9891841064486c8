# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""JMESPath over records and documents."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, NotSupported

try:
    import jmespath
except ImportError as error:
    _import_error: t.Optional[ImportError] = error
else:
    _import_error = None


def plain(value: t.Any) -> t.Any:
    """Return the value in Python's own types: JMESPath's functions know a type by its name, and templating hands out subclasses."""
    if isinstance(value, t.Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def query(documents: t.Any, expression: t.Any) -> t.Any:
    """Return what the expression selects. Raises L(InvalidArgument) for a bad one, L(NotSupported) where the library is missing."""
    compiled = check_query(expression)
    try:
        # The library's own errors are values that are none, too.
        return compiled.search(plain(documents))
    except (RecursionError, ValueError) as error:
        raise _refused(expression, error) from error


def check_query(expression: t.Any) -> t.Any:
    """Return the expression, compiled. Raises as L(query)."""
    if _import_error is not None:
        raise NotSupported(
            f"JMESPath queries need the Python library jmespath on the control node ({_import_error}).",
            "Install it where ansible-playbook runs: 'pip install jmespath'.",
        ) from _import_error
    if not isinstance(expression, str):
        raise InvalidArgument(f"The query {expression!r} is not a text.", "Give a JMESPath expression.")
    try:
        return jmespath.compile(plain(expression))
    except (RecursionError, ValueError) as error:
        raise _refused(expression, error) from error


def _refused(expression: str, error: Exception) -> InvalidArgument:
    reason = " ".join(str(error).split()).rstrip(".")
    return InvalidArgument(f"Failed to run the JMESPath query {str(expression)!r}: {reason}.", "See https://jmespath.org for the syntax.")
