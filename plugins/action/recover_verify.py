# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(recover_verify) runs on the control node alone. The decisions are in C(plugin_utils/_recover)."""

from __future__ import annotations

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, recover_verify_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.result import (
    VerifyRequest,
    VerifyTask,
    describe_problems,
    note_returned,
    result_lines,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "recover_verify"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return recover_verify_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Collect the result of each host, note which domains are back, and show the result."""
        with readable_results():
            task = decode(VerifyTask, args)
            request = VerifyRequest.from_task(task, bool(self._task.check_mode))
        ledger = open_if_any(*self.settings(task_vars).ledger(self.target_host(task_vars), task.ledger))
        with readable_results():
            errors = note_returned(ledger, request.find_returned(), write=not self._task.check_mode)
            result = request.build_results(errors)
        if not self._task.no_log:
            for line in result_lines(result):
                Display().display(line)
        published = encode(result)
        done: Result = {"changed": False, "result": published, "problems": describe_problems(result)}
        if task.publish_as:
            done["ansible_stats"] = {"data": {task.publish_as: published}, "per_host": False, "aggregate": True}
        return {**done, "warnings": ledger.problems} if ledger and ledger.problems else done
