# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(plan_drain). Documentation is in plan_drain.yml."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry

_RECORDS = ("records", "history")
_LISTS = ("entries", *_RECORDS)
_DICTIONARIES = ("unreachable", "scheduler", "policies", "profiles")
_OPTIONS = ("parallel", "n_plus_one", "options", "strategies", "shut_off", "restart", "save_folder")
# The keys that a hand-written entry may omit.
_UNKNOWN_HOST: JsonObject = {"host_id": None, "host_uuid": None, "state": ENABLED}

Work = Callable[[DrainInputs, list[str], list[str], JsonObject], JsonObject]


def call_filter(name: str, work: Work, facts: Json, sources: Json, candidates: Json, arguments: JsonObject) -> JsonObject:
    """Return the result of C(work) for the filter's arguments: the inputs, the sources, the candidates, and the given options of the drain.

    Raises C(AnsibleFilterError), which names the filter, for invalid arguments.
    """
    try:
        options = {key: arguments[key] for key in _OPTIONS if arguments.get(key) is not None}
        return work(_read_inputs(facts, arguments), _read_names(sources, "sources"), _read_names(candidates, "candidates"), options)
    except KvmfleetError as error:
        # Ansible would append the cause again.
        raise AnsibleFilterError(f"{name}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"{name}: the facts, entries or records do not have the expected form ({type(error).__name__}: {error}).") from error


def _read_inputs(facts: Json, arguments: JsonObject) -> DrainInputs:
    unknown = sorted({*arguments} - {*_LISTS, *_DICTIONARIES, *_OPTIONS})
    if unknown:
        raise InvalidArgument(f"There is no argument {', '.join(unknown)}.", f"Valid names are: {', '.join([*_LISTS, *_DICTIONARIES, *_OPTIONS])}.")
    if not isinstance(facts, Mapping):
        raise InvalidArgument(f"The facts are a {type(facts).__name__}.", "Give a dictionary of kvmfleet_host facts by host name.")
    given = {key: t.cast("t.Any", arguments[key]) for key in (*_LISTS, *_DICTIONARIES) if arguments.get(key) is not None}
    for key, value in given.items():
        wanted: type = Mapping if key in _DICTIONARIES else Sequence
        if isinstance(value, str) or not isinstance(value, wanted):
            raise InvalidArgument(f"{key} is {value!r}.", f"Give a {'dictionary by host name' if key in _DICTIONARIES else 'list'}.")
    records, history = ([read_record(one) for one in given.pop(key, ())] for key in _RECORDS)
    entries = [decode(HostEntry, {**_UNKNOWN_HOST, **one}) for one in given.pop("entries", ())]
    return DrainInputs(t.cast("Mapping[str, JsonObject]", facts), entries, records=records, history=history, **given)


def _read_names(value: Json, option: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidArgument(f"{option} is {value!r}.", "Give a list of host names.")
    return [str(name) for name in value]


def plan_drain(facts: Json, sources: Json, candidates: Json, **arguments: Json) -> JsonObject:
    """Return the plan of a drain."""
    return call_filter("plan_drain", _make_plan, facts, sources, candidates, arguments)


def _make_plan(inputs: DrainInputs, sources: list[str], candidates: list[str], given: JsonObject) -> JsonObject:
    return t.cast("JsonObject", encode(make_plan(inputs, sources, candidates, DrainOptions.from_values(**t.cast("dict[str, t.Any]", given)))))


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., JsonObject]]:
        """Return the filters by name."""
        return {"plan_drain": plan_drain}
