# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(drain_plan) runs on the control node alone. The decisions are in C(plugin_utils/_drain)."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from contextlib import contextmanager

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, drain_plan_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import OVERRIDE
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import readable_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.cordon import restore_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_request import (
    PlanRequest,
    PlanTask,
    check_n_plus_one,
    read_inputs,
    save_plan,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.reserve import check_reserve
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import pack_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.shares import build_shares
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import plan_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.override import check_override
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import TaskSettings


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "drain_plan"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return drain_plan_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Make the plan or check a saved one. If there is no plan, the state of hosts that were cordoned for it is restored, unless others have changed it."""
        settings = self.settings(task_vars)
        with readable_facts():
            task = decode(PlanTask, args)
            request = PlanRequest.from_task(task)
        ledger = open_if_any(*settings.ledger(self.target_host(task_vars), task.ledger))
        with self._restore_on_failure(request, ledger, describe_actor(task_vars)):
            result = self._make_plan(request, settings, ledger, task.publish_as, self.target_host(task_vars))
        return {**result, "warnings": ledger.problems} if ledger and ledger.problems else result

    @contextmanager
    def _restore_on_failure(self, request: PlanRequest, ledger: Ledger | None, by: str) -> Iterator[None]:
        is_planned = False
        try:
            yield
            is_planned = True
        finally:
            if not is_planned and ledger and not self._task.check_mode:
                for note in restore_hosts(ledger, request.cordons, by):
                    Display().warning(note)

    def _make_plan(self, request: PlanRequest, settings: TaskSettings, ledger: Ledger | None, publish_as: str | None, host: str) -> Result:
        request.check_options()
        known = read_inputs(request, settings, ledger)
        plan = request.resolve_plan(known)
        check_override(ledger, settings, host, plan.options.moves.get(OVERRIDE) is True)
        if not self._task.no_log:
            for line in plan_lines(plan):
                Display().display(line)
        is_saved = not request.check_saved and request.path is not None
        changed = save_plan(plan, t.cast(str, request.path), self._task.check_mode) if is_saved else False
        check_n_plus_one(plan)
        check_reserve(plan.reserve)
        shares = build_shares(plan, known.records, settings.is_known, self._task.check_mode)
        # Ansible would join texts.
        stats = {"ansible_stats": {"data": {publish_as: pack_plan(plan)}, "per_host": False, "aggregate": False}} if publish_as else {}
        # The answers of hosts, for drain_verify.
        return {"changed": changed, "plan": encode(plan), "shares": encode(shares), "_answered": dict(request.answers), **stats}
