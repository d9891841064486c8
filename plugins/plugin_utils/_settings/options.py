# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of a task and values of the inventory, checked before they are used.

Ansible's own parser raises exceptions of Python for some values, and turns lists and dictionaries into text. Here each of these is an L(InvalidArgument) with
the path of the option. No error shows a value, because it may be secret.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import ssl
import typing as t
from collections.abc import Iterable, Iterator, Mapping

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.validation import check_type_bool, check_type_dict, check_type_list

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Option, Spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

MAX_DEPTH = 64
# Below this ratio, a name is not taken for a mistyped option.
_SIMILAR = 0.7
# Larger than any useful option, and safe for all arithmetic.
_MAX_NUMBER = 2**63 - 1
_NEXT_STEP = "Correct the task. Nothing was changed."
_MODE = re.compile(r"0?[0-7]{3}")


def check_options(given: JsonObject, spec: Spec) -> None:
    """Raise L(InvalidArgument), with the option's path, for an unknown option and a value without its option's type. Ansible reports missing ones."""
    _check_members(given, spec, "", 0)


def read_options(given: JsonObject, spec: Spec) -> dict[str, Json]:
    """Return options of a plugin that Ansible does not validate, with defaults. Raises L(InvalidArgument)."""
    check_options(given, spec)
    result = ArgumentSpecValidator(spec).validate(dict(given))
    if result.error_messages:
        raise InvalidArgument(f"{'; '.join(result.error_messages).rstrip('.')}.", _NEXT_STEP)
    return drop_aliases(t.cast("dict[str, Json]", result.validated_parameters), spec)


def drop_aliases(options: JsonObject, spec: Mapping[str, Option]) -> dict[str, Json]:
    """Return validated options under their own names only. Ansible keeps what was given under an alias under both names."""
    aliases = _aliases_in(spec)
    return {key: _drop_inner_aliases(value, spec.get(key, {}).get("options")) for key, value in options.items() if key not in aliases}


def use_own_names(options: JsonObject, spec: Mapping[str, Option]) -> dict[str, Json]:
    """Return options that nobody has validated under their own names. Raises L(InvalidArgument) for two names of one option."""
    aliases, found = _aliases_in(spec), dict[str, str]()
    for given in options:
        _note_name(aliases.get(given, given), given, found)
    return {aliases.get(given, given): value for given, value in options.items()}


def _note_name(name: str, given: str, found: dict[str, str]) -> None:
    """Add the path under which an option is given to those that were found, by their own names. Raises L(InvalidArgument) if it has one."""
    if name in found:
        raise InvalidArgument(f"'{found[name]}' and '{given}' are names of one option.", "Give one of them. Nothing was changed.")
    found[name] = given


def _drop_inner_aliases(value: Json, spec: Mapping[str, Option] | None) -> Json:
    if not spec:
        return value
    if isinstance(value, Mapping):
        return drop_aliases(value, spec)
    return [_drop_inner_aliases(one, spec) for one in value] if isinstance(value, (list, tuple)) else value


def _aliases_in(spec: Mapping[str, Option]) -> dict[str, str]:
    """Return the name of the option that each alias means."""
    return {alias: name for name, option in spec.items() for alias in option.get("aliases", ())}


def parse_mode(value: Json) -> int:
    """Return the permissions of an octal text such as C(0644), or of the number that YAML makes of one without quotes. Raises L(InvalidArgument)."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777:
        return value
    if not isinstance(value, str) or not _MODE.fullmatch(value):
        raise InvalidArgument(f"The mode {value!r} is invalid.", "Give it as a text of three octal digits, e.g. '0644'.")
    return int(value, 8)


def _check_members(given: JsonObject, spec: Mapping[str, Option], path: str, depth: int) -> None:
    """Check a dictionary whose keys are options."""
    aliases, found = _aliases_in(spec), dict[str, str]()
    for key, value in given.items():
        where = _member_path(path, key)
        name = aliases.get(key, key)
        if name in spec:
            _note_name(name, where, found)
            _check_value(value, spec[name], where, depth + 1)
        elif spec:
            raise InvalidArgument(f"There is no option '{where}'.", f"{_suggest_option(key, spec)} Nothing was changed.")
        else:
            _check_plain(value, where, depth + 1)


def _suggest_option(key: str, spec: Mapping[str, Option]) -> str:
    public = [name for name in spec if not name.startswith("_")]
    meant = find_similar(key, public)
    return f"Is {meant} meant?" if meant else f"Valid names there are: {', '.join(public)}."


def find_similar(name: str, names: Iterable[str]) -> str | None:
    """Return the one of these names that a mistyped one most likely means; None if there is none like it."""
    return next(iter(difflib.get_close_matches(name, list(names), 1, _SIMILAR)), None)


def _check_value(value: Json, option: Option, path: str, depth: int) -> None:
    if value is None:
        return
    kind = option.get("type", "str")
    if kind == "list":
        _check_list(value, option, path, depth)
    elif kind == "dict":
        _check_dict(value, option, path, depth)
    else:
        if kind in _SCALAR_CHECKS:
            _SCALAR_CHECKS[kind](value, path)
        else:
            _check_plain(value, path, depth)
        _check_choice(value, option, path)


def _check_list(value: Json, option: Option, path: str, depth: int) -> None:
    # A single name becomes a list, like a text with commas.
    if (not isinstance(value, (list, tuple, str, int)) and not _is_finite(value)) or isinstance(value, bool):
        raise _wrong_type(path, "a list", value)
    element: Option = {"type": option.get("elements", "raw")}
    if "choices" in option:
        element["choices"] = option["choices"]
    if "options" in option:
        element["options"] = option["options"]
    for number, item in enumerate(check_type_list(value)):
        if item is None:
            raise _wrong_type(f"{path}[{number}]", _TYPE_NAMES.get(element["type"], "a value"), item)
        _check_value(item, element, f"{path}[{number}]", depth + 1)


def _check_dict(value: Json, option: Option, path: str, depth: int) -> None:
    given = value
    if isinstance(value, str):
        try:
            given = check_type_dict(value)
        except (TypeError, ValueError, RecursionError):
            raise _wrong_type(path, "a dictionary", value) from None
    if not isinstance(given, Mapping):
        raise _wrong_type(path, "a dictionary", value)
    _check_members(given, option.get("options") or {}, path, depth)


def _check_text(value: Json, path: str) -> None:
    # A vaulted text becomes a str only on conversion. A name may be a number.
    is_text = isinstance(value, (str, int)) or getattr(value, "__ENCRYPTED__", False)
    if isinstance(value, bool) or not (is_text or _is_finite(value)):
        raise _wrong_type(path, "text", value)
    if isinstance(value, str) and ("\0" in value or not _is_writable(value)):
        raise InvalidArgument(f"'{path}' contains a character that is not allowed in text.", _NEXT_STEP)


def _check_whole(value: Json, path: str) -> None:
    number: Json = value
    if isinstance(value, str):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            raise _wrong_type(path, "a whole number", value) from None
    if isinstance(number, bool) or not (isinstance(number, int) or (_is_finite(number) and number == int(number))):
        raise _wrong_type(path, "a whole number", value)
    if abs(number) > _MAX_NUMBER:
        raise InvalidArgument(f"'{path}' is too large a number.", _NEXT_STEP)


def _check_number(value: Json, path: str) -> None:
    try:
        number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _wrong_type(path, "a number", value)


def _check_boolean(value: Json, path: str) -> None:
    try:
        check_type_bool(value)
    except (TypeError, ValueError):
        raise _wrong_type(path, "true or false", value) from None


def _check_plain(value: Json, path: str, depth: int) -> None:
    """Check a value without a specification: its depth is limited, its keys are text, and its numbers are finite."""
    if depth > MAX_DEPTH:
        raise InvalidArgument(f"'{path[:200]}' is nested more than {MAX_DEPTH} levels deep.", _NEXT_STEP)
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, _member_path(path, key), depth + 1)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _check_plain(item, f"{path}[{number}]", depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _wrong_type(path, "a finite number", value)


def _check_choice(value: Json, option: Option, path: str) -> None:
    choices = option.get("choices")
    if choices and str(value) not in choices:
        raise InvalidArgument(f"'{path}' must be one of {', '.join(map(str, choices))}, not {str(value)[:40]!r}.", _NEXT_STEP)


def _member_path(path: str, key: Json) -> str:
    """Return the path of a member. Raises L(InvalidArgument) for a key that is not text."""
    if not isinstance(key, str):
        where = f"'{path}' has" if path else "The task has"
        raise InvalidArgument(f"{where} a key that is not text but {_type_text(key)}: {str(key)[:40]}.", _NEXT_STEP)
    return f"{path}.{key[:80]}" if path else key[:80]


def _is_writable(text: str) -> bool:
    """Whether the text can be encoded: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_finite(value: Json) -> t.TypeGuard[float]:
    return isinstance(value, float) and math.isfinite(value)


def _wrong_type(path: str, wanted: str, value: Json) -> InvalidArgument:
    return InvalidArgument(f"'{path}' must be {wanted}, not {_type_text(value)}.", _NEXT_STEP)


def _type_text(value: Json) -> str:
    """Return the name of a value's type for a sentence."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    kinds = ((bool, "a boolean"), (str, "text"), ((int, float), "a number"), (Mapping, "a dictionary"), ((list, tuple), "a list"))
    return next((name for kind, name in kinds if isinstance(value, t.cast("t.Any", kind))), "empty" if value is None else f"of type {type(value).__name__}")


_SCALAR_CHECKS: t.Final[Mapping[str, t.Callable[[Json, str], None]]] = {
    "str": _check_text,
    "path": _check_text,
    "int": _check_whole,
    "float": _check_number,
    "bool": _check_boolean,
}
_TYPE_NAMES: t.Final[Mapping[str, str]] = {
    "str": "text",
    "path": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "a dictionary",
    "list": "a list",
}


@contextlib.contextmanager
def readable_results() -> Iterator[None]:
    """Make L(InvalidArgument) from the errors of code that reads something other than the result of a task."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"The results of the tasks do not have the expected form ({type(error).__name__}: {error}).", "Only the roles of this collection may set _work."
        ) from error


def read_text(value: Json, key: str, variable: str) -> t.Optional[str]:
    """Return the text; None for a missing or an empty one. Raises L(InvalidArgument) for any other value."""
    if value is None or value == "":
        return None
    if isinstance(value, (bool, int, float, Mapping, list, tuple)):
        raise InvalidArgument(f"'{key}' of {variable} is not a text.")
    # A vaulted value becomes text only on conversion.
    return "".join(str(value))


def decrypt_values(value: Json) -> Json:
    """Return the value with each vaulted text decrypted. Raises Ansible's own error if a text cannot be decrypted."""
    if isinstance(value, Mapping):
        return {key: decrypt_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [decrypt_values(item) for item in value]
    # ansible-core 2.18 hands out the encrypted text, later releases the plain one.
    return "".join(str(value)) if getattr(value, "__ENCRYPTED__", False) else value


def make_tls_context(ca_file: t.Optional[str], variable: str) -> ssl.SSLContext:
    """Return a context for clients that trusts the authorities in the file; the system's for None. Raises L(InvalidArgument)."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise unusable_file_error(f"ca_file {ca_file}", variable, error) from error


def unusable_file_error(what: str, variable: str, error: Exception) -> InvalidArgument:
    """Return the error for a file of TLS that cannot be used."""
    cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return InvalidArgument(f"The {what} of {variable} cannot be used: {cause}.", "Name PEM files that the control node can read; a key has no passphrase.")
