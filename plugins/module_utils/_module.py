# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The common part of all modules: it turns errors of the collection into results, checks what a module requires, and runs the requested phase."""

from __future__ import annotations

import os
import select
import typing as t

from ._model.codec import Json, JsonObject, ShapeError
from ._model.errors import Forbidden, Internal, InvalidArgument, KvmfleetError, NotSupported
from ._model.libvirt_formats import check_uri, is_local

if t.TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule  # pragma: no cover

Result = t.Dict[str, Json]
# A phase of a module: a function of the URI and the input from the action plugin.
Phase = t.Callable[..., Result]


def run_module(module: AnsibleModule, work: t.Callable[[AnsibleModule], Result]) -> None:
    """End the module with what C(work) returns, or with C(msg) and C(error_code) of the error it raises.

    Whatever the umask of the connection is, other users cannot write the files and folders that a module creates.
    """
    os.umask(os.umask(0o077) | 0o022)
    try:
        _check_aliases(module)
        result = work(module)
    except KvmfleetError as error:
        module.fail_json(**error.as_result())
    else:
        module.exit_json(**result)


def _check_aliases(module: AnsibleModule) -> None:
    """Raise L(InvalidArgument) if an option was given under two names, for which Ansible only warns: it is unclear which domain is meant."""
    for one in getattr(getattr(module, "validation_result", None), "_warnings", ()):
        message = f"'{one['option']}' and '{one['alias']}' are names of one option."
        raise InvalidArgument(message, "Give one of them. Nothing was changed.")


def new_module(base: t.Type[AnsibleModule], **keywords: t.Any) -> AnsibleModule:
    """Return C(AnsibleModule) made with these keywords. For a module without an action plugin that checks its options.

    If Ansible refuses an option, the module ends with C(error_code) too. Ansible's parser does not catch the exception of Python if an infinity, or a number
    with too many digits, is given for a whole number: the module ends with the option's name.
    """

    def fail(module: AnsibleModule, msg: str, **result: t.Any) -> None:
        refused = {} if "error_code" in result else InvalidArgument(f"{msg.rstrip('.')}.", "Correct the task. Nothing was changed.").as_result()
        base.fail_json(module, **{"msg": msg, **result, **refused})

    make = type(base.__name__, (base,), {"fail_json": fail})
    try:
        return make(**keywords)
    except (OverflowError, ValueError):
        spec = keywords["argument_spec"]
        module = make(argument_spec={name: _as_raw(option) for name, option in spec.items()}, supports_check_mode=True)
        for name in (name for name, option in spec.items() if option.get("type") == "int"):
            if not _is_whole_number(module.params[name]):
                module.fail_json(**InvalidArgument(f"'{name}' must be a whole number.", "Correct the task. Nothing was changed.").as_result())
        raise


def _as_raw(option: JsonObject) -> JsonObject:
    return {**option, "type": "raw"} if option.get("type") == "int" else option


def _is_whole_number(value: t.Union[str, float, None]) -> bool:
    try:
        return value is None or int(value) == float(value)
    except (OverflowError, TypeError, ValueError):
        return False


class PhaseOptions(t.TypedDict, total=False):
    """The options of a module that is one half of an action plugin."""

    uri: str
    _work: t.Optional[JsonObject]


def run_phase(phases: t.Mapping[str, Phase], params: PhaseOptions) -> Result:
    """Run the phase that C(_work) names, with the other keys as its input. Raises L(InvalidArgument) if no action plugin called the module."""
    work = params["_work"] or {}
    phase = str(work.get("phase"))
    if phase not in phases:
        raise InvalidArgument("This module is one half of an action plugin and does nothing alone.", "Call it by its full name in a task.")
    try:
        return phases[phase](params["uri"], work)
    except ShapeError as error:
        raise Internal(f"Phase {phase} cannot read what the action plugin sent: {error}.", "Report this as a bug.") from error


def has_lost_task(output: int = 1) -> bool:
    """Whether nobody can read any more what this process writes: the connection of its task, or the task itself, has ended."""
    poll = select.poll()
    poll.register(output, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _descriptor, events in poll.poll(0))


def is_root() -> bool:
    """Whether the module runs as root."""
    return os.geteuid() == 0


def require_root() -> None:
    """Raise L(Forbidden) unless the module runs as root."""
    if not is_root():
        raise Forbidden("This needs root on the host.", "Set become: true, or connect as root. Nothing was started.")


def require_local(uri: str) -> str:
    """Return the URI if it is the module's own host, else raise L(NotSupported)."""
    if not is_local(check_uri(uri, "uri")):
        raise NotSupported(f"uri is {uri}, which is not the host that the task runs on.", "Run the task on the source host itself, with uri: qemu:///system.")
    return uri


def check_domain_name(name: t.Optional[str], option: str = "name") -> None:
    """Raise L(InvalidArgument) for a name that no domain can have. Whether the domain exists is not checked."""
    if name is None:
        return
    if not name or "/" in name or any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidArgument(
            f"{option} is {name!r}, which cannot be the name of a domain.", "Domain names are not empty and have no slash and no control characters."
        )
