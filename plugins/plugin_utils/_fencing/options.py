# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The options of a fence agent: which are refused, which are secrets, and how they are written on its standard input.

The form is that of the ClusterLabs fence agent API (FenceAgentAPI.md): C(name=value), one a line.
"""

from __future__ import annotations

import re
import typing as t
import unicodedata
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

from .._values import text_of

MAX_BYTES = 8 * 1024
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_SECRET_NAME = re.compile(r"pass|secret|token|key|community|credential", re.IGNORECASE)
_SWITCHES = frozenset({"", "0", "1", "true", "false", "yes", "no", "on", "off"})
_OURS = frozenset({"action", "option", "o"})
# It makes an agent call a plug off that it does not find.
_GUESSES = frozenset({"missing_as_off"})
# Some agents split lines at all of these, not at newlines alone.
_LINE_BREAKERS = frozenset({"Cc", "Cs", "Zl", "Zp"})


@dataclass(frozen=True)
class Option:
    """One option; a secret value is nowhere shown."""

    name: str
    value: str
    secret: bool

    def __repr__(self) -> str:
        return f"Option({self.name})"


def parse_options(given: t.Any, where: str) -> tuple[Option, ...]:
    """Return the options of an agent.

    :arg given: name to value; a value is text, a number, a boolean (1 or 0 for the agent), or C({value: ..., secret: true}).
    :arg where: whose they are, for messages, which never show a value.
    :raises InvalidArgument: they are not that, or one of them is not the operator's to give.
    """
    if not isinstance(given, t.Mapping):
        raise InvalidArgument(f"{where}: its options are no dictionary.", "Give the agent's options as names and values.")
    options = tuple(_parse_option(name, value, where) for name, value in given.items())
    if len(as_lines("status", options)) > MAX_BYTES:
        raise InvalidArgument(f"{where}: its options are longer than {MAX_BYTES} bytes.")
    return options


def _parse_option(name: t.Any, given: t.Any, where: str) -> Option:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(f"{where}: an option has a name that no agent knows.", "Names are letters, digits and any of _ . - after a letter.")
    _check_allowed(name, where)
    value, declared = given, False
    if isinstance(given, t.Mapping):
        if "value" not in given or set(given) - {"value", "secret"} or not isinstance(given.get("secret", False), bool):
            raise InvalidArgument(f"{where}: its option {name} is a dictionary, but not one of value and secret.")
        value, declared = given["value"], given.get("secret", False)
    text = _text_of(value, name, where)
    guessed = bool(_SECRET_NAME.search(name)) and text.lower() not in _SWITCHES
    return Option(name, text, declared or guessed)


def _check_allowed(name: str, where: str) -> None:
    plain = name.lower().replace("-", "_")
    if plain in _OURS:
        raise InvalidArgument(f"{where}: its option {name} is not for the inventory.", "What an agent is asked for is always off or status. Remove it.")
    if plain in _GUESSES:
        raise InvalidArgument(f"{where}: its option {name} would call a host off that the agent does not find.", "Remove it.")


def _text_of(value: t.Any, name: str, where: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return str(value)
    if value is None:
        raise InvalidArgument(f"{where}: its option {name} has no value.", "Leave out what has no value.")
    try:
        # A vaulted one is no str before it is asked for as one; an empty text is a value.
        text = text_of(value, name, where) or ""
    except InvalidArgument:
        raise InvalidArgument(f"{where}: its option {name} is neither text nor a number nor a boolean.") from None
    if any(unicodedata.category(character) in _LINE_BREAKERS for character in text):
        raise InvalidArgument(f"{where}: its option {name} holds a line break or another control character.", "An option is one line.")
    return text


def as_lines(action: str, options: t.Iterable[Option]) -> bytes:
    """Return what an agent reads on its standard input."""
    return "".join([f"action={action}\n", *(f"{option.name}={option.value}\n" for option in options)]).encode()
