# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(live_migrate): decides, writes the ledger, shows progress. The work is done in C(plugin_utils/_migrate)."""

from __future__ import annotations

import functools
import typing as t

from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, internal_spec, live_migrate_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import PredictedMove
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, ProgressLines, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_or_imagine
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.override import check_override, keep_override_decision
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import make_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveTaskOptions, read_requests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.run import MoveRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import SourceHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.parallel import read_parallel

Result = dict[str, Json]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "live_migrate"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return {**live_migrate_spec(), **internal_spec()}

    def run_with_options(self, task_vars: Result) -> JsonObject:
        """Move the domains; if the role C(drain_host) requests that, make the plan for its only host first, move what it says, and verify the result."""
        work = self._task.args.get("_work")
        # What is no dictionary is refused with the other options.
        if not isinstance(work, dict) or not isinstance(work.get("plan"), dict):
            return super().run_with_options(task_vars)
        planned = self._run_action("drain_plan", work["plan"], task_vars)
        share = planned["shares"][self.target_host(task_vars)]
        # Domains that are shut down, or do not move live, leave before the others, by tasks of their own.
        if share["shutdowns"] or share["cold_moves"] or not share["moves"]:
            return planned
        own = {"moves": share["moves"], "parallel": planned["plan"]["options"]["parallel"], "_work": {**work, "plan": None, "predicted": share["predicted"]}}
        self._task.args = {**self._task.args, **own}
        try:
            moved: dict[str, t.Any] = dict(super().run_with_options(task_vars))
        except KvmfleetError as error:
            moved = {"failed": True, "changed": False, **error.as_result()}
        verified = self._verify_drain(work, planned, moved, task_vars)
        warnings = [warning for result in (planned, moved, verified) for warning in result.pop("warnings", ())]
        result = {**planned, **moved, "_moved": True, "changed": planned["changed"] or moved["changed"]}
        if verified:
            result |= {"ansible_stats": verified.pop("ansible_stats"), "_verified": verified}
        return {**result, "warnings": list(dict.fromkeys(warnings))} if warnings else result

    def _verify_drain(self, work: Result, planned: dict[str, t.Any], moved: dict[str, t.Any], task_vars: Result) -> dict[str, t.Any]:
        """Return the result of C(drain_verify); nothing if a task of the role has to do this.

        That is so if hosts have to be queried first; if it fails, which that task reports; and if a move has failed, because Ansible publishes the statistics
        of successful tasks only.
        """
        host = self.target_host(task_vars)
        if moved.get("failed") or not set(planned["shares"][host]["ends"]) <= set(moved.get("_seen") or {}):
            return {}
        results = {"answered": planned["_answered"], "moved": {host: moved}}
        options = {**t.cast(Result, work["verify"]), "plan": planned["plan"], "_work": results}
        try:
            return self._run_action("drain_verify", options, task_vars)
        except KvmfleetError:
            return {}

    def _run_action(self, name: str, options: Result, task_vars: Result) -> dict[str, t.Any]:
        """Return the result of another action of the collection with these options. Raises the error of the collection that it fails with."""
        task = self._task.copy()
        task.args = options
        loader = self._shared_loader_obj.action_loader
        action = loader.get(
            f"kvmfleet.migration.{name}",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        return t.cast("dict[str, t.Any]", dict(action.run_with_options(task_vars)))

    def run_task(self, args: Result, task_vars: Result) -> Result:
        """Move the domains, or predict the result of each in check mode."""
        options = t.cast(MoveTaskOptions, args)
        parallel = read_parallel(options["parallel"])
        source = SourceHost(self, task_vars, options["uri"])
        settings = self.settings(task_vars)
        requests = read_requests(options, settings, source.name)
        location = settings.ledger(source.name, options["ledger"])
        check, allow_new = self._task.check_mode, functools.partial(self.check_unprotected, options["uri"], task_vars)
        with open_or_imagine(*location, check=check, allow_new=allow_new) as opened:
            ledger = self.attach_notifier(opened, settings, source.name, location)
            lines = ProgressLines(lambda line: Display().display(f"[{source.name}] {line}"))
            silent = self._task.no_log or options["progress"] == "none"
            warnings = [] if self._task.check_mode else keep_override_decision(ledger, settings, source.name, describe_actor(task_vars))
            check_override(ledger, settings, source.name, any(request.override for request in requests))
            predicted = decode(dict[str, PredictedMove], (options["_work"] or {}).get("predicted") or {})
            context = RunContext(ledger, settings, source, options["uri"], describe_actor(task_vars), warnings=warnings, predicted=predicted)
            run = MoveRun(context, parallel, (lambda record, waits_for: None) if silent else lines.show_record)
            jobs = run.predict_moves(requests) if self._task.check_mode else run.run_moves(requests)
            result = make_result(jobs, context.warnings + ledger.problems, context.missing, self._task.diff)
            # A request of the role, which then need not run a module on each host.
            return {**result, "_seen": run.read_seen_facts(jobs)} if (options["_work"] or {}).get("look") else result
