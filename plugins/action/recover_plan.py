# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(recover_plan) runs on the control node alone. The decisions are in C(plugin_utils/_recover)."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import RECOVER_CHECK, RECOVER_OPTIONS, RECOVER_START, Spec, recover_plan_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.answers import check_rights, readable_facts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.displaced import keep_origins
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.plan import (
    RecoverRequest,
    check_nothing_twice,
    find_host,
    list_begun_hosts,
    plan_return,
    plan_starts,
    reserve_starts,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.starts import read_start_mode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.task_results import read_task
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.parallel import read_parallel


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "recover_plan"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return recover_plan_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Check that the host may be recovered, or decide which domains are started on it or moved back to it."""
        task = read_task(args)
        if task.step == RECOVER_OPTIONS:
            read_parallel(task.parallel)
            return {"changed": False, "start_mode": read_start_mode(task.start)}
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        ledger = open_if_any(*settings.ledger(target_host, task.ledger))
        with readable_facts():
            request = RecoverRequest.from_task(target_host, task, settings.facts)
        result = self._decide_step(task.step, request, ledger)
        return {**result, "warnings": ledger.problems} if ledger and ledger.problems else result

    def _decide_step(self, step: str, request: RecoverRequest, ledger: Ledger | None) -> JsonObject:
        if step == RECOVER_CHECK:
            return self._check_host(request, ledger)
        if step == RECOVER_START:
            plan, changed = (plan_starts(request, ledger), False) if self._task.check_mode else reserve_starts(request, ledger)
            return {"changed": changed, **encode(plan)}
        _ledger, entry = find_host(request, ledger)
        can_check = not self._task.check_mode or entry.host.state == ENABLED
        # On the command line, the options of the role may be text. Its tasks read them here.
        return {"changed": False, **encode(plan_return(request, can_check)), "_options": request.options or {}}

    def _check_host(self, request: RecoverRequest, ledger: Ledger | None) -> JsonObject:
        """Keep in the ledger which domains were displaced from the host, and refuse it if a domain or image is in use twice, or the user is not root there.

        If hosts contradict each other, have the role ask them again first.
        """
        check_rights([request.host], request.facts)
        known, entry = find_host(request, ledger)
        away = keep_origins(known, entry.host, write=not self._task.check_mode)
        ask_again = check_nothing_twice(request)
        result = {**encode(away), "is_protected": bool(entry.host.protected), "_begun": list_begun_hosts(known, entry.host, request.facts)}
        return {**result, **({"_ask_again": list(ask_again)} if ask_again else {})}
