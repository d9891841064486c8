# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(drain_verify) runs on the control node alone. The decisions are in C(plugin_utils/_drain)."""

from __future__ import annotations

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, drain_verify_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import collect_facts, readable_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.records import read_arrived_since_plan, read_unsettled
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.result import describe_problems, judge_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import result_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.verify_request import VerifyRequest, VerifyTask
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import read_facts


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "drain_verify"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return drain_verify_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Judge the drain by the current state of hosts and ledger."""
        settings = self.settings(task_vars)
        with readable_facts():
            task = decode(VerifyTask, args)
            request = VerifyRequest.from_task(task, bool(self._task.check_mode))
        ledger = open_if_any(*settings.ledger(self.target_host(task_vars), task.ledger))
        with readable_facts():
            facts = {host: read_facts(known) for host, known in collect_facts(request.hosts, settings.facts, request.answers).items()}
            # A record that ends meanwhile is in one of the two.
            unsettled = read_unsettled(ledger)
            arrived = [] if request.nothing_done else read_arrived_since_plan(ledger, request.plan.created_at)
            result = judge_hosts(request, facts, [*unsettled, *arrived])
        if not (task.only or self._task.no_log):
            for line in result_lines(result):
                Display().display(line)
        published = encode(result)
        done: Result = {"changed": False, "result": published, "problems": describe_problems(result, request.nothing_done)}
        if task.publish_as:
            done["ansible_stats"] = {"data": {task.publish_as: published}, "per_host": False, "aggregate": True}
        return {**done, "warnings": ledger.problems} if ledger and ledger.problems else done
