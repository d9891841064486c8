# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(evacuate_verify) runs on the control node alone. The decisions are in C(plugin_utils/_evacuate)."""

from __future__ import annotations

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, evacuate_verify_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.result import (
    VerifyRequest,
    VerifyTask,
    describe_problem,
    judge_domains,
    result_lines,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "evacuate_verify"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return evacuate_verify_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Return the results of the domains of a dead host."""
        check_mode = bool(self._task.check_mode)
        with readable_results():
            task = decode(VerifyTask, args)
            request = VerifyRequest.from_task(task, check_mode)
            result = {request.host: judge_domains(request)}
            lines, problem = result_lines(result, check_mode), describe_problem(result)
        if not self._task.no_log:
            for line in lines:
                Display().display(line)
        published = encode(result)
        done: Result = {"changed": False, "result": published, "problem": problem}
        if task.publish_as:
            done["ansible_stats"] = {"data": {task.publish_as: published}, "per_host": False, "aggregate": True}
        return done
