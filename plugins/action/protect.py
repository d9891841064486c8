# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(protect): writes into the ledger what the host tells, and lets no definition out."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable
from ansible_collections.kvmfleet.migration.plugins.module_utils._protect_spec import protect_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, acting
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fencing.config import VARIABLE, parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.missing import sentence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._protect.answer import Outcome, notes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._protect.steps import Steps
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings, port_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._task_settings import TaskSettings

Result = dict[str, t.Any]

LEAVE, READ, SAVE = "leave", "read", "save"
# The phase whose answer holds definitions.
_SECRET_PHASE = "save"  # noqa: S105 - it names a phase
_SSH_PORT = 22


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "protect"
    _lock_warnings: tuple[str, ...] = ()

    def spec(self) -> Result:
        """Return the module's options."""
        return protect_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Do all steps, or the one that the role asks for."""
        if args["clean_shutdown_token"] and not args["guard"]:
            raise InvalidArgument("clean_shutdown_token releases the boot guard, and guard is false.", "Set guard: true. Nothing was changed.")
        settings, here = self.settings(task_vars), self.here(task_vars)
        ledger = open_if_any(*settings.ledger(here, args["ledger"]), create=not self._task.check_mode)
        steps = Steps(here, ledger, lambda phase, work: self._asked(phase, work, args["uri"], task_vars), acting(), self._task.check_mode)
        only = (args["_work"] or {}).get("step")
        result: Result = {"changed": False}
        if only in (None, LEAVE):
            result = _added(result, steps.leave(_addresses(settings, here)))
        if only in (None, READ):
            result = _added(result, steps.read())
        if only in (None, SAVE):
            result = self._saved(result, steps, args)
            result = {**result, **_fencing_error(settings, here)}
        uuids = result.pop("uuid_notes", [])
        conflicts = [conflict["msg"] for conflict in result.get("conflicts", [])]
        missing = map(sentence, result.get("missing_records", []))
        warnings = [*uuids, *conflicts, *missing, *self._lock_warnings, *(ledger.problems if ledger else [])]
        return {**result, "warnings": warnings} if warnings else result

    def _saved(self, before: Result, steps: Steps, args: Result) -> Result:
        outcome = steps.save()
        self._lock_warnings = tuple(outcome.lock_warnings())
        result = _added(before, {"changed": bool(outcome.saved), **outcome.as_result()})
        result = _added(result, steps.guard(args["guard"], args["clean_shutdown_token"]))
        result["uuid_notes"] = [*result.get("uuid_notes", []), *steps.shared_uuid_notes()]
        result["notes"] = [*notes(result, (steps.entry() or {}).get("unwritable") or {}), *map(printable, result["uuid_notes"])]
        return {**result, "diff": _diff(outcome, steps.name)} if self._task.diff else result

    def _asked(self, phase: str, work: Result, uri: str, task_vars: Result) -> Result:
        return self.phase(phase, work, uri, task_vars, is_secret=phase == _SECRET_PHASE)


def _addresses(settings: Settings, here: str) -> Result:
    """Return how the host is reached, so that a dead one can be asked although the inventory has changed since."""
    return {
        "ansible_host": str(settings.of(here, "ansible_host", here)),
        "ssh_port": port_of(settings.of(here, "ansible_port", _SSH_PORT), f"ansible_port of {here}"),
        "libvirt_uri": settings.libvirt_uri(here, here),
    }


def _fencing_error(settings: TaskSettings, here: str) -> Result:
    """Return what makes the task fail where the host's fencing cannot be used, which an evacuation would be the first to notice; else nothing."""
    try:
        parse_fencing(settings.of(here, VARIABLE), here)
    except InvalidArgument as error:
        next_step = f"{error.next_step or ''} The domains were saved all the same.".strip()
        return {"failed": True, **InvalidArgument(error.message, next_step).as_result()}
    return {}


def _added(result: Result, more: Result) -> Result:
    return {**result, **more, "changed": result["changed"] or more["changed"]}


def _diff(outcome: Outcome, name: str) -> Result:
    return {"before": outcome.before, "after": outcome.after, "before_header": f"domains of {name} in the ledger", "after_header": f"domains of {name}"}
