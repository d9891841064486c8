# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(balance_plan) runs on the control node alone. The decisions are in C(plugin_utils/_balance)."""

from __future__ import annotations

import contextlib

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import BALANCE_VERIFY, Spec, balance_plan_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import RunHolder
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import OVERRIDE
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan_request import (
    BalanceRequest,
    BalanceTask,
    build_settling,
    build_stages,
    list_ends,
    read_result,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.runs import (
    close_abandoned_runs,
    close_run,
    complete_runs,
    find_arrivals,
    measure_runs,
    open_run,
    plan_run,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.tables import balance_lines, result_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import readable_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_request import save_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import pack_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import check_own_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any, open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.override import check_override
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.holding import identify_process
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import find_run_process
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import TaskSettings


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "balance_plan"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return balance_plan_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Make the plan or check a saved one; after its moves, judge them."""
        settings, host = self.settings(task_vars), self.target_host(task_vars)
        with readable_facts():
            task = decode(BalanceTask, args)
        ledger = open_if_any(*settings.ledger(host, task.ledger))
        if task.step == BALANCE_VERIFY:
            result = self._judge_moves(task, settings)
            if ledger and task.run:
                close_run(ledger, task.run, _identify_holder(task_vars))
            if ledger and not task.only and not self._task.check_mode:
                complete_runs(ledger)
        else:
            self.refuse_free_strategy()
            result = self._make_plan(task, settings, ledger, task_vars)
        return {**result, "warnings": ledger.problems} if ledger and ledger.problems else result

    def _make_plan(self, task: BalanceTask, settings: TaskSettings, ledger: Ledger | None, task_vars: Result) -> Result:
        request, host = BalanceRequest.from_task(task), self.target_host(task_vars)
        request.plan.check_options()
        inputs = request.read_inputs(settings, ledger)
        if ledger and not self._task.check_mode:
            with readable_facts():
                # These facts show what earlier balances have brought.
                measure_runs(ledger, {name: inputs.drain.host_state(name) for name in request.hosts})
        if ledger is None and not task.only:
            # An empty ledger would hide that the right one is missing.
            for name, facts in inputs.drain.hosts.items():
                check_own_ledger(name, facts.ledger_id, None)
        plan = request.resolve_plan(inputs)
        check_override(ledger, settings, host, plan.options.moves.get(OVERRIDE) is True)
        if plan.balance:
            self._show(balance_lines(plan, plan.balance))
        is_saved = request.plan.path is not None and not request.plan.check_saved
        changed = save_plan(plan, request.plan.path, self._task.check_mode) if is_saved and request.plan.path else False
        done: Result = {"changed": changed, "plan": encode(plan), "stages": encode(build_stages(plan)), "ends": list_ends(plan)}
        if plan.balance and not task.only and not self._task.check_mode:
            # From here on, the role carries the plan out. The step that judges the moves closes the run.
            holder, is_confirmed = _identify_holder(task_vars), bool(task.take_over)
            if plan.moves:
                to_write = ledger or open_ledger(*settings.ledger(host, task.ledger))
                done["run"] = open_run(to_write, plan_run(plan, plan.balance), holder, is_confirmed).id
            elif ledger:
                with contextlib.suppress(Conflict):
                    # Where nothing moves, nothing is in the way of another run.
                    close_abandoned_runs(ledger, request.hosts, holder, is_confirmed)
            if ledger:
                done["stages"] = encode([*build_settling(find_arrivals(ledger, inputs.drain), plan), *build_stages(plan)])
        # Ansible would join texts.
        return {**done, **_publish(task.publish_as, pack_plan(plan), aggregate=False)}

    def _judge_moves(self, task: BalanceTask, settings: TaskSettings) -> Result:
        with readable_facts():
            result = read_result(task, settings, bool(self._task.check_mode))
        if not task.only:
            self._show(result_lines(result))
        published = encode(result)
        return {"changed": False, "result": published, "failures": result.failures, **_publish(task.publish_as, published, aggregate=True)}

    def _show(self, lines: list[str]) -> None:
        if not self._task.no_log:
            for line in lines:
                Display().display(line)


def _identify_holder(task_vars: Result) -> RunHolder:
    # The process that holds a run is ansible-playbook, and not its worker.
    return identify_process(find_run_process(), describe_actor(task_vars), utc_now())


def _publish(name: str | None, value: Json, aggregate: bool) -> Result:
    """Return what makes a value a custom statistic of the run."""
    return {"ansible_stats": {"data": {name: value}, "per_host": False, "aggregate": aggregate}} if name else {}
