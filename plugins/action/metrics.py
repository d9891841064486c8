# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(metrics), which works on the control node alone: what the ledger says, as a file for the node exporter."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._metrics_spec import metrics_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._files import mode_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger, state_path
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._metrics import textfile
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._metrics.exposition import Family, text_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._metrics.families import export_of, families_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._metrics.present import open_records, present_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._metrics.tally import counted, predicted
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._notices.notices import waiting

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "metrics"

    def spec(self) -> Result:
        """Return the module's options."""
        return metrics_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Gather the metrics, and write them but in check mode."""
        began = time.monotonic()
        path, mode = textfile.check_path(args["path"]), mode_of(args["mode"])
        settings, here = self.settings(task_vars), self.here(task_vars)
        ledger = open_ledger(*settings.ledger(here, args["ledger"]), create=False)
        families = self._gathered(ledger, waiting(settings, here, ledger.ledger_id))
        export = export_of(began)
        before, after = textfile.read(path), text_of([*families, *export])
        if not self._task.check_mode:
            textfile.write(path, after, mode)
        changed = before is None or not before.startswith(text_of(families))
        result: Result = {"changed": changed, "path": path, "series": sum(len(family.samples) for family in (*families, *export))}
        if self._task.diff:
            result["diff"] = {"before": before or "", "after": after, "before_header": path, "after_header": path}
        return {**result, "warnings": ledger.problems} if ledger.problems else result

    def _gathered(self, ledger: Ledger, notices_waiting: int | None) -> list[Family]:
        found = open_records(ledger)
        count = predicted if self._task.check_mode else counted
        totals = count(ledger, found, state_path("metrics"))
        return families_of(totals, present_of(ledger, found), notices_waiting, ledger)
