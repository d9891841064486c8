# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(cold_migrate): decides, writes the ledger, shows progress. The work is done in C(plugin_utils/_cold)."""

from __future__ import annotations

import functools
import typing as t

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, cold_migrate_spec, internal_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, ProgressLines, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.request import ColdTaskOptions, read_cold_requests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._cold.run import ColdRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_or_imagine
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import make_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import SourceHost

Result = dict[str, Json]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "cold_migrate"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return {**cold_migrate_spec(), **internal_spec()}

    def run_task(self, args: Result, task_vars: Result) -> Result:
        """Move the domains, or predict the result of each in check mode."""
        options = t.cast(ColdTaskOptions, args)
        source = SourceHost(self, task_vars, options["uri"])
        settings = self.settings(task_vars)
        requests = read_cold_requests(options, settings, source.name)
        location = settings.ledger(source.name, options["ledger"])
        check, allow_new = self._task.check_mode, functools.partial(self.check_unprotected, options["uri"], task_vars)
        with open_or_imagine(*location, check=check, allow_new=allow_new) as opened:
            ledger = self.attach_notifier(opened, settings, source.name, location)
            lines = ProgressLines(lambda line: Display().display(f"[{source.name}] {line}"))
            silent = self._task.no_log or options["progress"] == "none"
            context = RunContext(ledger, settings, source, options["uri"], describe_actor(task_vars))
            run = ColdRun(context, (lambda record, waits_for: None) if silent else lines.show_record)
            jobs = run.predict_moves(requests) if self._task.check_mode else run.run_moves(requests)
            return make_result(jobs, context.warnings + ledger.problems, context.missing, self._task.diff)
