# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(ledger_settings) runs on the control node alone and queries no host."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, ledger_settings_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import LedgerSettings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.override import decide_override, decided_settings


@dataclass(frozen=True)
class _SettingsTask:
    """The options of C(ledger_settings)."""

    ledger: t.Optional[str]
    override_policy_allowed: t.Optional[bool]
    reason: t.Optional[str]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "ledger_settings"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return ledger_settings_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Read the settings, and change them if the task requests that. Raises L(NotFound) if a task that writes nothing finds no ledger."""
        task = decode(_SettingsTask, args)
        is_changing, check = task.override_policy_allowed is not None, self._task.check_mode
        if is_changing and not (task.reason or "").strip():
            raise InvalidArgument("override_policy_allowed is a person's decision, but no reason is given.", "Give it with reason. Nothing was changed.")
        if task.reason is not None and not is_changing:
            raise InvalidArgument("reason is given without override_policy_allowed.", "Set both, or neither to read the settings. Nothing was changed.")
        location = self.settings(task_vars).ledger(self.target_host(task_vars), task.ledger)
        ledger = open_ledger(*location, create=is_changing and not check)
        before, after = self._decide(ledger, task, describe_actor(task_vars))
        result: Result = {"changed": before != after, "ledger": ledger.name, "ledger_id": ledger.ledger_id, "settings": _show_settings(after)}
        if self._task.diff and is_changing:
            result["diff"] = {"before": _show_settings(before), "after": _show_settings(after), "before_header": ledger.name, "after_header": ledger.name}
        return {**result, "warnings": ledger.problems} if ledger.problems else result

    def _decide(self, ledger: Ledger, task: _SettingsTask, by: str) -> tuple[LedgerSettings, LedgerSettings]:
        if task.override_policy_allowed is None:
            found = decided_settings(ledger, ledger.read_settings())
            return found, found
        return decide_override(ledger, task.override_policy_allowed, str(task.reason), by, write=not self._task.check_mode)


def _show_settings(settings: LedgerSettings) -> Result:
    by, at, reason = (value or None for value in (settings.by, settings.at, settings.reason))
    return {"override_policy_allowed": settings.override_policy_allowed, "by": by, "at": at, "reason": reason, "decisions": list(settings.decisions or ())}
