# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of every module, role and plugin, with values of every wrong type. All of it is made of the specifications: a new option is driven by itself.

A case is who is driven, the path of an option, and the name of a value.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import os
import pkgutil
import types
import typing as t
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path as File
from unittest import mock

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils import basic
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins import action as actions
from ansible_collections.kvmfleet.migration.plugins import filter as filters
from ansible_collections.kvmfleet.migration.plugins import modules
from ansible_collections.kvmfleet.migration.plugins.lookup.ledger import SPEC as LOOKUP_SPEC
from ansible_collections.kvmfleet.migration.plugins.lookup.ledger import LookupModule
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.event_options import parse_options
from ansible_collections.kvmfleet.migration.tests.unit.fakes.task import task_vars
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

from .. import sandbox
from ..target import Target
from ..wrong_values import VALUES, Path, Spec, is_sound, is_wrong, option_at, places, samples, text_of, with_value

TREE = File(__file__).resolve().parents[3]
HOST_ID = "55555555-0000-4000-8000-000000000001"
Case = tuple[str, list[t.Any], str]
# What a task needs besides its required options to be read to the end.
MORE: t.Final[Mapping[str, Mapping[str, t.Any]]] = {
    "domain_policy": {"name": "web"},
    "evacuate": {"source": "kvm2"},
    "event_brake": {"folder": f"{sandbox.FOLDER}/brake"},
    "ledger_archive": {"to": f"{sandbox.FOLDER}/options/archive"},
    "ledger_copy": {"to": f"{sandbox.FOLDER}/options/other"},
    "live_migrate": {"name": "web", "destination": "kvm2"},
    "metrics": {"path": f"{sandbox.FOLDER}/metrics.prom"},
    "report": {"dest": f"{sandbox.FOLDER}/report"},
    "scheduler_check": {"name": "web"},
}
# What is given there is the name of a file, which must not be written elsewhere.
_FILES = ("ledger", "to", "dest", "path", "folder")


class Asked(Exception):
    """The options were read to their end: a host would be asked now."""


def _names(package: types.ModuleType) -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def _module_of(package: types.ModuleType, name: str) -> t.Any:
    return import_module(f"{package.__name__}.{name}")


def _given(spec: Spec, name: str, path: Path, value: t.Any) -> dict[str, t.Any]:
    if path[-1] in _FILES and isinstance(value, (str, int, float)) and not isinstance(value, bool) and is_sound(value):
        value = f"{sandbox.FOLDER}/options/{str(value).replace('..', '').replace('/', '')[:100]}"
    return with_value({**samples(spec), **MORE.get(name, {})}, spec, path, value)


def _judge(message: str, spec: Spec, path: Path, value: t.Any, is_refused: bool) -> None:
    """What is no value of its option is refused, and the option's path is named."""
    if is_wrong(option_at(spec, path), value):
        assert is_refused, f"{text_of(path)} was taken"
        assert text_of(path) in message, f"{text_of(path)} is not named: {message:.300}"


@functools.cache
def _ledger(name: str) -> str:
    """Return a ledger for whoever is driven, in which both hosts are."""
    path = f"{sandbox.FOLDER}/options/{name}"
    for number in (1, 2):
        entry = {"name": f"kvm{number}", "host_id": HOST_ID[:-1] + str(number), "host_uuid": HOST_ID[:-2] + f"1{number}", "state": "enabled", "reason": None}
        open_ledger(path).put_host(host_entry({**entry, "protected": {"at": "2026-11-21T03:00:00.000Z"}}), None)
    return path


# -- modules with a half on the control node -----------------------------------------------------------------------


@functools.cache
def _action_spec(name: str) -> Spec:
    plugin = _module_of(actions, name).ActionModule
    return t.cast(Spec, plugin.argument_spec(plugin.__new__(plugin)))


def check_action(case: Case) -> None:
    """Run an action plugin up to where it asks a host."""
    name, path, value = case[0], tuple(case[1]), VALUES[case[2]]
    spec = _action_spec(name)
    plugin = _module_of(actions, name).ActionModule
    action = plugin.__new__(plugin)
    action._loader = None
    action._execute_module = _ask
    play = types.SimpleNamespace(strategy="linear")
    given = _given(spec, name, path, value)
    action._task = types.SimpleNamespace(args=given, async_val=0, check_mode=False, diff=True, delegate_to=None, no_log=False, get_play=lambda: play)
    context = types.SimpleNamespace(no_log=False)
    action._play_context, action._connection = context, types.SimpleNamespace(_play_context=context, is_pipelining_enabled=lambda wrap_async: False)
    variables = task_vars("kvm1", {"kvmfleet_ledger": _ledger(name)}, {"kvm2": {}})
    try:
        with mock.patch.dict(os.environ, {"XDG_STATE_HOME": f"{sandbox.FOLDER}/state"}):
            action.run_with_options(variables)
    except InvalidArgument as error:
        _judge(error.message, spec, path, value, is_refused=True)
    except (KvmfleetError, Asked) as error:
        _judge(str(error), spec, path, value, is_refused=False)
    else:
        _judge("", spec, path, value, is_refused=False)


def _ask(*_args: t.Any, **_call: t.Any) -> t.NoReturn:
    raise Asked


# -- modules without one -------------------------------------------------------------------------------------------


class _Specified(BaseException):
    """Where a module would begin; with its options."""


class _SpecifiedModule:
    def __init__(self, **keywords: t.Any) -> None:
        raise _Specified(keywords["argument_spec"])


@functools.cache
def _module_spec(name: str) -> Spec:
    module = _module_of(modules, name)
    try:
        with mock.patch.object(module, "AnsibleModule", _SpecifiedModule):
            module.main()
    except _Specified as specified:
        return t.cast(Spec, specified.args[0])
    raise AssertionError(f"{name} has no options.")


def check_module(case: Case) -> None:
    """Run a module as a host does, with what JSON leaves of a value, up to where it would ask libvirt."""
    name, path = case[0], tuple(case[1])
    spec, module = _module_spec(name), _module_of(modules, name)
    value = VALUES[case[2]]
    if case[2] == "half a character":
        # Ansible cannot send it.
        return
    given = json.dumps({"ANSIBLE_MODULE_ARGS": _given(spec, name, path, value.decode() if isinstance(value, bytes) else value)}, skipkeys=True)
    printed = io.StringIO()
    with (
        mock.patch.object(basic, "_ANSIBLE_ARGS", given.encode(errors="surrogatepass")),
        mock.patch.object(basic, "_ANSIBLE_PROFILE", "legacy", create=True),
        mock.patch.object(module, "run_module", side_effect=_Specified),
        contextlib.redirect_stdout(printed),
    ):
        try:
            module.main()
        except (SystemExit, _Specified):
            pass
    answer = json.loads(printed.getvalue() or "{}")
    if not is_sound(value) and path[0] in spec and spec[path[0]].get("type") == "int":
        assert answer.get("failed"), f"{text_of(path)} was taken"
        assert str(path[0]) in answer["msg"], answer["msg"]


# -- roles ---------------------------------------------------------------------------------------------------------


@functools.cache
def _role_specs() -> Mapping[str, Spec]:
    found = {}
    for file in sorted((TREE / "roles").glob("*/meta/argument_specs.yml")):
        for entry, spec in yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"].items():
            found[f"{file.parents[1].name} {entry}"] = spec.get("options") or {}
    return {name: spec for name, spec in found.items() if spec}


def check_role(case: Case) -> None:
    """Ask Ansible's own parser about a role's variables, as a play does before the role begins. What it says names the option."""
    spec, path, value = _role_specs()[case[0]], tuple(case[1]), VALUES[case[2]]
    if path == ("no_such_option",):
        return
    try:
        result = ArgumentSpecValidator(t.cast("t.Any", spec)).validate(with_value(samples(spec), spec, path, value))
    except OverflowError:
        # Ansible's own: an infinity for a whole number. It ends the role before its first task.
        assert spec[path[0]].get("type") in ("int", "float")
        return
    if result.error_messages:
        assert str(path[0]) in " ".join(result.error_messages), result.error_messages


# -- other plugins -------------------------------------------------------------------------------------------------


def check_lookup(case: Case) -> None:
    """Give the lookup C(ledger) an option, or a term."""
    path, value = tuple(case[1]), VALUES[case[2]]
    lookup = LookupModule(loader=None, templar=None)
    given = _given(LOOKUP_SPEC, "lookup", path, value)
    terms = given.pop("_terms", ["migrations"])
    try:
        lookup.run(terms if isinstance(terms, list) else [terms], task_vars("kvm1", {"kvmfleet_ledger": _ledger("lookup")}), **given)
    except AnsibleError as error:
        message = str(error) if path[0] != "_terms" else str(error).replace("The ledger has no ", "_terms ").replace("No query is given", "_terms")
        _judge(message, LOOKUP_SPEC, path[:1] if path[0] == "_terms" else path, value, is_refused=True)
    else:
        _judge("", {**LOOKUP_SPEC, "_terms": {"type": "raw"}}, path, value, is_refused=False)


_SOURCE_SPEC: Spec = {
    "hosts": {"type": "dict", "required": True},
    "gone_after_seconds": {"type": "float"},
    "queue_size": {"type": "int"},
    "events": {"type": "list", "elements": "str"},
}


def check_event_source(case: Case) -> None:
    """Read the arguments of the event source."""
    path, value = tuple(case[1]), VALUES[case[2]]
    given = with_value({"hosts": {"kvm1": "qemu+ssh://kvm1/system"}}, _SOURCE_SPEC, path, value)
    try:
        parse_options(given)
    except InvalidArgument as error:
        message = error.message
    else:
        assert is_sound(value), f"{text_of(path)} was taken"
        return
    assert str(path[0]) in message, message


@functools.cache
def _filter_spec(name: str) -> Spec:
    """Return what a filter's page says of its arguments; the input has its parameter's name."""
    document = yaml.safe_load((TREE / f"plugins/filter/{name}.yml").read_text(encoding="utf-8"))["DOCUMENTATION"]
    parameters = inspect.signature(_filter(name)).parameters
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    # A parameter may have a name of its own: it stands where the option does.
    called = {
        option: option if option in parameters or (takes_more and option != "_input") else place for option, place in zip(document["options"], parameters)
    }
    return {called.get(option, option): spec for option, spec in document["options"].items()}


def _filter(name: str) -> t.Callable[..., t.Any]:
    return t.cast("t.Callable[..., t.Any]", _module_of(filters, name).FilterModule().filters()[name])


def check_filter(case: Case) -> None:
    """Call a filter with one argument that is wrong. Its error says which filter it is."""
    name, path, value = case[0], tuple(case[1]), VALUES[case[2]]
    spec = _filter_spec(name)
    if path == ("no_such_option",):
        return
    given = with_value({**samples(spec)}, spec, path, value)
    message = name
    try:
        _filter(name)(**given)
    except AnsibleError as error:
        message = str(error)
    assert name in message, message


def _cases(specs: Mapping[str, Spec]) -> st.SearchStrategy[Case]:
    found = [(name, list(path)) for name, spec in specs.items() for path in places(spec)]
    return st.builds(lambda place, value: (*place, value), st.sampled_from(found), st.sampled_from(sorted(VALUES)))


def specs_of(kind: str) -> Mapping[str, Spec]:
    """Return the specifications of all that are driven, by name: of C(options_of_actions), C(options_of_modules) and so on."""
    # One that only stamps what its module answers has no options of its own.
    with_half = [name for name in _names(actions) if issubclass(_module_of(actions, name).ActionModule, FleetAction)]
    return {
        "actions": lambda: {name: _action_spec(name) for name in with_half},
        "modules": lambda: {name: _module_spec(name) for name in _names(modules) if name not in with_half},
        "roles": _role_specs,
        "lookup": lambda: {"ledger": {**LOOKUP_SPEC, "_terms": {"type": "list", "elements": "str"}}},
        "filters": lambda: {name: _filter_spec(name) for name in _names(filters)},
        "event_source": lambda: {"libvirt": _SOURCE_SPEC},
    }[kind]()


CHECKS: t.Final[Mapping[str, t.Callable[[Case], None]]] = {
    "actions": check_action,
    "modules": check_module,
    "roles": check_role,
    "lookup": check_lookup,
    "filters": check_filter,
    "event_source": check_event_source,
}
TARGETS = [Target(f"options_of_{kind}", check, _cases(specs_of(kind))) for kind, check in CHECKS.items()]
