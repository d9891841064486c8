# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(scheduler_check): asks, judges, and writes nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import scheduler_check_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.answer import answer
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.arrivals import Arrivals
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.fleet_view import FleetView
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.question import question_of

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "scheduler_check"

    def spec(self) -> Result:
        """Return the module's options."""
        return scheduler_check_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Ask this host and the candidates, and judge each of them."""
        settings, here = self.settings(task_vars), self.here(task_vars)
        question = question_of(args, settings, here)
        ledger = open_if_any(*settings.ledger(here, args["ledger"]))
        view = FleetView(ledger, settings, question.source, {}, question.move.uris, Arrivals(ledger), overrides=question.scheduler)
        view.check_settings(question.move.uris)
        view.survey = self.phase("survey", {"wanted": question.wanted()}, args["uri"], task_vars)["survey"]
        result = answer(question, view)
        problems = ledger.problems if ledger else []
        return {**result, "warnings": problems} if problems else result
