# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of a task against their specification, before Ansible's own parser sees them.

That parser raises Python's own exceptions for some values (an infinity for a whole number, a number for a dictionary with options, a key that is no
text), and it makes text of lists and dictionaries. Here each of these is L(InvalidArgument) with the option's path. No error shows a value: it may be secret.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.validation import check_type_bool, check_type_dict, check_type_list

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

MAX_DEPTH = 64
# More than any option can mean, and what all arithmetic with it still bears.
_HIGHEST = 2**63 - 1
_NEXT_STEP = "Correct the task. Nothing was changed."


def check_options(given: t.Any, spec: Spec) -> None:
    """Raise L(InvalidArgument), with the option's path, for a value that is not of its option's type.

    What is missing, and what the module does not know at all, Ansible names.
    """
    _check_members(given, spec, "", 0)


def read_options(given: Mapping[t.Any, t.Any], spec: Spec) -> dict[str, t.Any]:
    """Return options of a plugin that Ansible does not validate by itself, with defaults. Raises L(InvalidArgument)."""
    check_options(given, spec)
    result = ArgumentSpecValidator(spec).validate(dict(given))
    if result.error_messages:
        raise InvalidArgument(f"{'; '.join(result.error_messages).rstrip('.')}.", _NEXT_STEP)
    return t.cast("dict[str, t.Any]", result.validated_parameters)


def _check_members(given: Mapping[t.Any, t.Any], spec: Spec, path: str, depth: int) -> None:
    """Check a dictionary whose keys are options."""
    for key, value in given.items():
        where = _below(path, key)
        if key in spec:
            _check_value(value, spec[key], where, depth + 1)
        elif path and spec:
            raise InvalidArgument(f"There is no option '{where}'.", f"Known there are: {', '.join(spec)}. Nothing was changed.")
        else:
            _check_plain(value, where, depth + 1)


def _check_value(value: t.Any, option: Mapping[str, t.Any], path: str, depth: int) -> None:
    if value is None:
        return
    kind = option.get("type", "str")
    if kind == "list":
        _check_list(value, option, path, depth)
    elif kind == "dict":
        _check_dict(value, option, path, depth)
    else:
        if kind in _SCALARS:
            _SCALARS[kind](value, path)
        else:
            _check_plain(value, path, depth)
        _check_choice(value, option, path)


def _check_list(value: t.Any, option: Mapping[str, t.Any], path: str, depth: int) -> None:
    # One name alone makes a list of one, as text does that has commas in it.
    if (not isinstance(value, (list, tuple, str, int)) and not _is_finite(value)) or isinstance(value, bool):
        raise _wrong(path, "a list", value)
    element = {"type": option.get("elements", "raw"), **{key: option[key] for key in ("choices", "options") if key in option}}
    for number, item in enumerate(check_type_list(value)):
        if item is None:
            raise _wrong(f"{path}[{number}]", _NAMES.get(element["type"], "a value"), item)
        _check_value(item, element, f"{path}[{number}]", depth + 1)


def _check_dict(value: t.Any, option: Mapping[str, t.Any], path: str, depth: int) -> None:
    given = value
    if isinstance(value, str):
        try:
            given = check_type_dict(value)
        except (TypeError, ValueError, RecursionError):
            raise _wrong(path, "a dictionary", value) from None
    if not isinstance(given, Mapping):
        raise _wrong(path, "a dictionary", value)
    _check_members(given, option.get("options") or {}, path, depth)


def _check_text(value: t.Any, path: str) -> None:
    # A vaulted text is no str before it is asked for as one. A name may be a number.
    is_text = isinstance(value, (str, int)) or getattr(value, "__ENCRYPTED__", False)
    if isinstance(value, bool) or not (is_text or _is_finite(value)):
        raise _wrong(path, "text", value)
    if isinstance(value, str) and ("\0" in value or not _is_writable(value)):
        raise InvalidArgument(f"'{path}' holds a character that cannot be in a text.", _NEXT_STEP)


def _check_whole(value: t.Any, path: str) -> None:
    number: t.Any = value
    if isinstance(value, str):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            raise _wrong(path, "a whole number", value) from None
    if isinstance(number, bool) or not (isinstance(number, int) or (_is_finite(number) and number == int(number))):
        raise _wrong(path, "a whole number", value)
    if abs(number) > _HIGHEST:
        raise InvalidArgument(f"'{path}' is too large a number.", _NEXT_STEP)


def _check_boolean(value: t.Any, path: str) -> None:
    try:
        check_type_bool(value)
    except (TypeError, ValueError):
        raise _wrong(path, "true or false", value) from None


def _check_plain(value: t.Any, path: str, depth: int) -> None:
    """Check a value whose shape no specification describes: it ends somewhere, its keys are text, and its numbers are numbers."""
    if depth > MAX_DEPTH:
        raise InvalidArgument(f"'{path[:200]}' is nested more than {MAX_DEPTH} levels deep.", _NEXT_STEP)
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, _below(path, key), depth + 1)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _check_plain(item, f"{path}[{number}]", depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _wrong(path, "a finite number", value)


def _check_choice(value: t.Any, option: Mapping[str, t.Any], path: str) -> None:
    choices = option.get("choices")
    if choices and str(value) not in choices:
        raise InvalidArgument(f"'{path}' must be one of {', '.join(map(str, choices))}, not {str(value)[:40]!r}.", _NEXT_STEP)


def _below(path: str, key: t.Any) -> str:
    """Return the path of a member. Raises L(InvalidArgument) for a key that is no text."""
    if not isinstance(key, str):
        where = f"'{path}' has" if path else "The task has"
        raise InvalidArgument(f"{where} a key that is not text but {_called(key)}: {str(key)[:40]}.", _NEXT_STEP)
    return f"{path}.{key[:80]}" if path else key[:80]


def _is_writable(text: str) -> bool:
    """Whether the text can be written at all: half of a character cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_finite(value: t.Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _wrong(path: str, wanted: str, value: t.Any) -> InvalidArgument:
    return InvalidArgument(f"'{path}' must be {wanted}, not {_called(value)}.", _NEXT_STEP)


def _called(value: t.Any) -> str:
    """Return what a value is called in a sentence."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    kinds = ((bool, "a boolean"), (str, "text"), ((int, float), "a number"), (Mapping, "a dictionary"), ((list, tuple), "a list"))
    return next((name for kind, name in kinds if isinstance(value, t.cast("t.Any", kind))), "empty" if value is None else f"of type {type(value).__name__}")


_SCALARS: t.Final[Mapping[str, t.Callable[[t.Any, str], None]]] = {
    "str": _check_text,
    "path": _check_text,
    "int": _check_whole,
    "bool": _check_boolean,
}
_NAMES: t.Final[Mapping[str, str]] = {"str": "text", "path": "text", "int": "a whole number", "bool": "true or false", "dict": "a dictionary", "list": "a list"}
