# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The arguments that the filters of a plan have in common, and what becomes of wrong ones: a sentence."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, KvmfleetError

from .known import Known

_LISTS = ("entries", "records", "history")
_DICTIONARIES = ("unreachable", "scheduler", "policies", "profiles")
_WISHES = ("parallel", "n_plus_one", "options")

Document = dict[str, t.Any]
Work = Callable[[Known, list[str], list[str], Mapping[str, t.Any]], Document]


def called(name: str, work: Work, facts: t.Any, sources: t.Any, candidates: t.Any, arguments: Mapping[str, t.Any]) -> Document:
    """Return what the work makes of the filter's arguments: what is known, sources, candidates, and those of C(Wish) that were given.

    Raises C(AnsibleFilterError), which names the filter, for what is wrong.
    """
    try:
        wishes = {key: arguments[key] for key in _WISHES if arguments.get(key) is not None}
        return work(_known(facts, arguments), _names(sources, "sources"), _names(candidates, "candidates"), wishes)
    except KvmfleetError as error:
        # A cause would be said once more behind it.
        raise AnsibleFilterError(f"{name}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"{name}: the facts, entries or records have not the expected form ({type(error).__name__}: {error}).") from error


def _known(facts: t.Any, arguments: Mapping[str, t.Any]) -> Known:
    unknown = sorted({*arguments} - {*_LISTS, *_DICTIONARIES, *_WISHES})
    if unknown:
        raise InvalidArgument(f"There is no argument {', '.join(unknown)}.", f"Known are: {', '.join([*_LISTS, *_DICTIONARIES, *_WISHES])}.")
    if not isinstance(facts, Mapping):
        raise InvalidArgument(f"The facts are a {type(facts).__name__}.", "Give a dictionary of kvmfleet_host facts by host name.")
    given = {key: arguments[key] for key in (*_LISTS, *_DICTIONARIES) if arguments.get(key) is not None}
    for key, value in given.items():
        wanted: type = Mapping if key in _DICTIONARIES else Sequence
        if isinstance(value, str) or not isinstance(value, wanted):
            raise InvalidArgument(f"{key} is {value!r}.", f"Give a {'dictionary by host name' if key in _DICTIONARIES else 'list'}.")
    return Known(facts, **given)


def _names(value: t.Any, option: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidArgument(f"{option} is {value!r}.", "Give a list of host names.")
    return [str(name) for name in value]
