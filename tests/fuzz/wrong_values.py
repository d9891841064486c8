# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every place in a specification of options, and values that are wrong there."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterator, Mapping

Path = tuple[t.Any, ...]
Spec = Mapping[str, Mapping[str, t.Any]]

DEPTH = 400


def _deep() -> t.Any:
    value: t.Any = []
    for _level in range(DEPTH):
        value = [value]
    return value


# By name, for a case has to fit into a file of JSON.
VALUES: t.Final[Mapping[str, t.Any]] = {
    "a boolean": True,
    "zero": 0,
    "a number": 5,
    "a negative number": -7,
    "a fraction": 1.5,
    "an infinity": math.inf,
    "a negative infinity": -math.inf,
    "not a number": math.nan,
    "a huge number": 10**400,
    "2 to the 64th": 2**64,
    "no text": "",
    "a word": "perhaps",
    "a long text": "x" * 70000,
    "digits without end": "9" * 5000,
    "a text with a NUL": "a\0b",
    "a text with a newline": "a\nb",
    "half a character": "a\ud800",
    "an infinity in words": "inf",
    "the text of a dictionary": '{"a": 1}',
    "an infinity in the text of a dictionary": '{"a": 1e999}',
    "an empty list": [],
    "a list of a number": [5],
    "a list of nothing": [None],
    "a list of lists": [[1]],
    "a list with an infinity": [math.inf],
    "a long list": ["x"] * 3000,
    "a deep list": _deep(),
    "an empty dictionary": {},
    "a dictionary": {"a": 1},
    "a number as a key": {5: 6},
    "nothing as a key": {None: 1},
    "a boolean as a key": {True: {"a": 1}},
    "a deep dictionary": {"a": {"b": _deep()}},
    "a number as a key far below": {"a": [{"b": {5: 6}}]},
    "dictionaries in a dictionary": {"kvm1": {"blockers": 5}},
    "a number told": {"told": 5, "step": 5, "survivors": 5, "phase": [], "together": {}, "look": "x"},
    "bytes": b"x",
}


def places(spec: Spec) -> Iterator[Path]:
    """Yield the path of every option, of every option below it, of an element of every list, and of one that there is not, at every level."""
    for name, option in spec.items():
        yield from _places_of(option, (name,))
    yield ("no_such_option",)


def _places_of(option: Mapping[str, t.Any], path: Path) -> Iterator[Path]:
    yield path
    below = path
    if option.get("type") == "list":
        below = (*path, 0)
        yield below
    if option.get("options"):
        for deeper in places(option["options"]):
            yield (*below, *deeper)


def option_at(spec: Spec, path: Path) -> Mapping[str, t.Any] | None:
    """Return the option at a path; None for one that there is not."""
    options, option = spec, None
    for key in path:
        if key == 0 and option is not None:
            option = {"type": option.get("elements", "raw"), **{part: option[part] for part in ("choices", "options") if part in option}}
        else:
            option = options.get(key)
        options = (option or {}).get("options") or {}
    return option


def sample(option: Mapping[str, t.Any]) -> t.Any:
    """Return a value that is of the option's type."""
    if option.get("choices"):
        value = option["choices"][0]
        return [value] if option.get("type") == "list" else value
    kind = option.get("type", "str")
    if kind == "dict":
        return samples(option.get("options") or {})
    if kind == "list":
        return [sample({"type": option.get("elements", "raw"), "options": option.get("options")})]
    return {"int": 1, "bool": False, "float": 1.0}.get(kind, "x")


def samples(spec: Spec) -> dict[str, t.Any]:
    """Return the options that have to be given."""
    return {name: sample(option) for name, option in spec.items() if option.get("required")}


def with_value(given: Mapping[str, t.Any], spec: Spec, path: Path, value: t.Any) -> dict[str, t.Any]:
    """Return the options with that value at the path, and samples on the way to it."""
    if len(path) == 1:
        return {**given, path[0]: value}
    option = spec.get(path[0]) or {}
    if path[1] == 0:
        inner = value if len(path) == 2 else with_value(samples(option.get("options") or {}), option.get("options") or {}, path[2:], value)
        return {**given, path[0]: [inner]}
    inner_spec = option.get("options") or {}
    return {**given, path[0]: with_value(samples(inner_spec), inner_spec, path[1:], value)}


def text_of(path: Path) -> str:
    """Return the path as an error names it."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def is_wrong(option: Mapping[str, t.Any] | None, value: t.Any) -> bool:
    """Whether the value can be no value of the option, whatever it means: its type says so, or what is in it is nothing at all."""
    if option is None or not is_sound(value):
        return True
    kind = option.get("type", "str")
    if kind in ("str", "path"):
        return isinstance(value, (bool, dict, list, bytes))
    if kind == "int":
        return not (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)
    if kind == "bool":
        return not (isinstance(value, bool) or value == 0)
    if kind == "dict":
        return not isinstance(value, (dict, str)) or value in ("", "perhaps")
    if kind == "list":
        return isinstance(value, (bool, dict, bytes)) or (isinstance(value, list) and any(one is None for one in value))
    return False


def is_sound(value: t.Any, depth: int = 0) -> bool:
    """Whether keys are text, numbers are finite, and there is an end to it."""
    if depth > DEPTH // 2 or (isinstance(value, float) and not math.isfinite(value)):
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_sound(one, depth + 1) for key, one in value.items())
    return all(is_sound(one, depth + 1) for one in value) if isinstance(value, list) else True
