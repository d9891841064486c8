# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(scheduler_check): queries the hosts and judges them. It writes nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, scheduler_check_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey, read_survey
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.fleet_view import FleetView, RecentMoves
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.scheduler_check import CheckOptions, answer_check, read_check

Result = dict[str, Json]
_NO_SURVEY = Survey(HostFacts(), {}, ())


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "scheduler_check"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return scheduler_check_spec()

    def run_task(self, args: Result, task_vars: Result) -> Result:
        """Query this host and the candidates, and judge each of them."""
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        options = t.cast(CheckOptions, args)
        question = read_check(options, settings, target_host)
        ledger = open_if_any(*settings.ledger(target_host, options["ledger"]))
        view = FleetView(ledger, settings, question.source, _NO_SURVEY, question.move.uris, RecentMoves(ledger), overrides=question.scheduler)
        view.check_settings(question.move.uris)
        answer = self.run_phase("survey", {"wanted": encode(question.survey_question())}, options["uri"], task_vars)
        view.survey = read_survey(answer["survey"])
        result = answer_check(question, view)
        problems = ledger.problems if ledger else []
        return {**result, "warnings": problems} if problems else result
