# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a part of a foreign JSON document must look like, said as data."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

_MAX_DEPTH = 60


@dataclass(frozen=True)
class Kind:
    """A kind of value: what it is called, and whether a value is one."""

    words: str
    fits: Callable[[t.Any], bool]


def _is_whole(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_seconds(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12


TEXT = Kind("a text", lambda value: isinstance(value, str))
UUID = Kind("a UUID", lambda value: isinstance(value, str) and len(value) == 36)
WHOLE = Kind("a whole number", _is_whole)
COUNT = Kind("a whole number that is not negative", lambda value: _is_whole(value) and value >= 0)
COUNT_OR_NULL = Kind("a whole number that is not negative, or null", lambda value: value is None or (_is_whole(value) and value >= 0))
SECONDS = Kind("a number of seconds", _is_seconds)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
OBJECT_OR_NULL = Kind("an object or null", lambda value: value is None or isinstance(value, dict))

Shape = t.Union[Kind, Mapping[str, t.Any], Sequence[t.Any]]


def check(value: t.Any, shape: Shape, where: str) -> None:
    """Raise L(InvalidArgument) for the first part that is not as the shape wants it.

    :arg shape: a kind; a dictionary of the keys that an object must have; a list with the one shape of every entry.
    """
    if isinstance(shape, Kind):
        _require(shape.fits(value), value, shape.words, where)
    elif isinstance(shape, Mapping):
        _require(isinstance(value, dict), value, "an object", where)
        for key, part in shape.items():
            if key not in value:
                raise InvalidArgument(f"{where} has no {key}.", "Nothing was moved.")
            check(value[key], part, f"{where}: {key}")
    else:
        _require(isinstance(value, list), value, "a list", where)
        for index, entry in enumerate(value):
            check(entry, shape[0], f"{where}, entry {index + 1}")


def plain(value: t.Any, depth: int = 0) -> t.Any:
    """Return the value in Python's own types, as JSON would give it back. Raises L(InvalidArgument) for what JSON cannot carry."""
    if depth > _MAX_DEPTH:
        raise InvalidArgument(f"A value is nested more than {_MAX_DEPTH} times.", "Nothing was moved.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(part, depth + 1) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part, depth + 1) for part in value]
    raise InvalidArgument(f"{short(value)} is a {type(value).__name__}, which JSON cannot carry.", "Nothing was moved.")


def short(value: t.Any) -> str:
    """Return the value as a sentence can show it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _require(fits: bool, value: t.Any, words: str, where: str) -> None:
    if not fits:
        raise InvalidArgument(f"{where} is {short(value)}, not {words}.", "Nothing was moved.")
