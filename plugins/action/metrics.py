# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(metrics) runs on the control node alone and writes figures of the ledger to a file for the node exporter."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, metrics_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger, state_path
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.findings import list_findings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import metrics
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.metrics import (
    MaintenanceState,
    MetricFamily,
    build_export_metrics,
    build_metrics,
    format_metrics,
    read_open_records,
    read_present,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.metrics_totals import count_records, predict_totals
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.notices import count_waiting
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import parse_mode


@dataclass(frozen=True)
class _MetricsTask:
    """The options of C(metrics)."""

    path: str
    mode: Json
    ledger: t.Optional[str]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "metrics"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return metrics_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Gather the metrics, and write them unless in check mode."""
        began = time.monotonic()
        task = decode(_MetricsTask, args)
        path, mode = metrics.check_textfile_path(task.path), parse_mode(task.mode)
        settings, target_host = self.settings(task_vars), self.target_host(task_vars)
        ledger = open_ledger(*settings.ledger(target_host, task.ledger), create=False)
        families = self._gather_metrics(ledger, count_waiting(settings, target_host, ledger.ledger_id))
        export = build_export_metrics(began)
        before, after = metrics.read_textfile(path), format_metrics([*families, *export])
        if not self._task.check_mode:
            metrics.write_textfile(path, after, mode)
        changed = before is None or not before.startswith(format_metrics(families))
        result: Result = {"changed": changed, "path": path, "series": sum(len(family.samples) for family in (*families, *export))}
        if self._task.diff:
            result["diff"] = {"before": before or "", "after": after, "before_header": path, "after_header": path}
        return {**result, "warnings": ledger.problems} if ledger.problems else result

    def _gather_metrics(self, ledger: Ledger, notices_waiting: int | None) -> list[MetricFamily]:
        found = read_open_records(ledger)
        count = predict_totals if self._task.check_mode else count_records
        totals = count(ledger, found, state_path("metrics"))
        runs = [document.maintenance_run for document in ledger.list_maintenance_runs()]
        maintenance = MaintenanceState(sum(run.is_open for run in runs), len(list(list_findings(runs, list_entries(ledger)))))
        return build_metrics(totals, read_present(ledger, found), notices_waiting, ledger, maintenance)
