# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(migration_force_complete). The work is done in C(plugin_utils/_migrate/interventions.py)."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, migration_force_complete_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.intervention_request import FORCE_COMPLETE, InterventionOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.interventions import run_intervention


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "migration_force_complete"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return migration_force_complete_spec()

    def run_task(self, args: Result, task_vars: Result) -> Result:
        """Force the migration, or report in check mode what would be done."""
        return run_intervention(self, FORCE_COMPLETE, t.cast(InterventionOptions, args), task_vars)
