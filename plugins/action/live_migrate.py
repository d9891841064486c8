# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(live_migrate): decides, keeps the ledger, shows progress. The work itself is in C(plugin_utils/_moves)."""

from __future__ import annotations

import typing as t

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import internal_spec, live_migrate_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, acting
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.job import Context
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.remote import SourceHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.request import requests_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.result import result_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.run import MoveRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._progress import ProgressLines

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "live_migrate"

    def spec(self) -> Result:
        """Return the module's options."""
        return {**live_migrate_spec(), **internal_spec()}

    def act(self, args: Result, task_vars: Result) -> Result:
        """Move the domains, or say in check mode what would happen to each."""
        source = SourceHost(self, task_vars, args["uri"])
        settings = self.settings(task_vars)
        requests = requests_of(args, settings, source.name)
        place = settings.ledger(source.name, args["ledger"])
        ledger = self.announced(open_ledger(*place), settings, source.name, place)
        lines = ProgressLines(lambda line: Display().display(f"[{source.name}] {line}"))
        silent = self._task.no_log or args["progress"] == "none"
        context = Context(ledger, settings, source, args["uri"], acting())
        run = MoveRun(context, args["parallel"], (lambda state: None) if silent else lines.see)
        jobs = run.predict(requests) if self._task.check_mode else run.execute(requests)
        result = result_of(jobs, context.warnings + ledger.problems, context.missing, self._task.diff)
        # A role's wish, which saves it a module on each host.
        return {**result, "_seen": run.seen(jobs)} if (args["_work"] or {}).get("look") else result
