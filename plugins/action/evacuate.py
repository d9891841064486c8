# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control half of C(evacuate): evidence, records and decisions. The host half reports the state of its host, and starts the domains that it receives."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, evacuate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.action import EvacuationAction, build_result, build_settled, note_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.job import EvacuationTask
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import readable_results


class ActionModule(EvacuationAction):
    """Action plugin of the module of the same name."""

    MODULE = "evacuate"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return evacuate_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Evacuate, or settle for the role recover_host what an earlier run has begun."""
        with readable_results():
            task = decode(EvacuationTask, args)
        run = self.prepare_evacuation(task, task_vars)
        if task.work and task.work.settle:
            return self.with_warnings(run, build_settled(run.settle_begun()))
        with note_fencing(run):
            run.evacuate_domains()
        return self.with_warnings(run, build_result(run, self._task.diff))
