# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control node's half of C(evacuate): evidence, records and decisions. The host's half sees, and starts what it is told to."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuate_spec import evacuate_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, acting
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.answer import looked, planned, proved, result_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.job import Context, Wish
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.placing import Shares
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.run import Evacuation, check_wish
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._facts_age import moment
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger

Result = dict[str, t.Any]

LOOK, PROVE, PLAN = "look", "prove", "plan"
_WISH = ("source", "domains", "fencing", "force_down", "accept_silent", "accept_fresh", "force", "state", "parallel", "lock_wait_seconds", "accept_locked")


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "evacuate"
    _definitions: Result = {}

    def spec(self) -> Result:
        """Return the module's options."""
        return evacuate_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Evacuate, or do the step that the role asks for."""
        check_wish(args["parallel"], args["lock_wait_seconds"])
        settings, here = self.settings(task_vars), self.here(task_vars)
        work = args["_work"] or {}
        place = settings.ledger(here, args["ledger"])
        ledger = self.announced(open_ledger(*place, create=False), settings, here, place)
        parent = os.getppid()
        context = Context(
            ledger=ledger,
            settings=settings,
            here=here,
            uri=args["uri"],
            by=acting(),
            wish=Wish(**{key: args[key] for key in _WISH}),
            phase=lambda phase, told: self._told(phase, dict(told), args["uri"], task_vars),
            in_parent=lambda: os.getppid() == parent,
        )
        run = Evacuation(context, self._task.check_mode)
        result = self._step(run, work) if work.get("step") else self._whole(run)
        warnings = list(dict.fromkeys([*context.warnings, *run.proofs.warnings, *ledger.problems]))
        return {**result, "warnings": warnings} if warnings else result

    def _whole(self, run: Evacuation) -> Result:
        run.execute()
        return result_of(run, self._task.diff)

    def _step(self, run: Evacuation, work: Result) -> Result:
        """Do one step of the role: see what there is, fence and wait for leases, or plan for all survivors."""
        if str(self._task.get_play().strategy).rpartition(".")[2] in ("free", "host_pinned"):
            raise NotSupported("Under this play's strategy its hosts cannot share the work out.", "Remove strategy from the play. Nothing was started.")
        if work["step"] not in (LOOK, PROVE, PLAN):
            raise InvalidArgument(f"There is no step {work['step']!r}.")
        run.look()
        if work["step"] == LOOK:
            return looked(run)
        if not run.open_jobs():
            return proved(run, moment()) if work["step"] == PROVE else planned(run, Shares({}, []))
        if work["step"] == PROVE:
            run.prove(starts=False)
            return proved(run, moment())
        run.rely()
        return planned(run, make_plan(run, work["survivors"], work["since"]) if run.open_jobs() else Shares({}, []))

    def _told(self, phase: str, work: Result, uri: str, task_vars: Result) -> Result:
        """Run a phase. Definitions go to the host in an option of their own, which nothing logs or prints."""
        orders = [dict(order) for order in work.get("orders", ())]
        self._definitions = {order["uuid"]: order.pop("definition") for order in orders}
        given = {**work, "orders": orders} if orders else work
        try:
            return self.phase(phase, given, uri, task_vars, is_secret=bool(orders))
        finally:
            self._definitions = {}

    def _execute_module(self, *args: t.Any, **kwargs: t.Any) -> Result:
        if "module_args" in kwargs:
            more = {"source": self._task.args.get("source"), **({"_definitions": self._definitions} if self._definitions else {})}
            kwargs = {**kwargs, "module_args": {**kwargs["module_args"], **more}}
        return t.cast("Result", super()._execute_module(*args, **kwargs))
