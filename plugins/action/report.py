# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(report) runs on the control node alone: reads the ledger and writes a report."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, report_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import list_entries
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_for_reading
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import to_plain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import canonical_name
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.findings import list_findings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.document import (
    Report,
    ReportData,
    Scope,
    build_document,
    gather_records,
    summary_text,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.report.rendering import check_report_name, file_names, render_files, write_report
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import parse_mode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import LedgerLocation


@dataclass(frozen=True)
class _ReportTask:
    """The options of C(report)."""

    ledger: t.Optional[str]
    dest: str
    name: str
    formats: tuple[str, ...]
    mode: Json
    title: t.Optional[str]
    since: t.Optional[str]
    until: t.Optional[str]
    host: t.Optional[str]
    domain: t.Optional[str]
    ids: t.Optional[tuple[str, ...]]
    drain_host_result: t.Optional[JsonObject]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "report"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return report_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Read the ledger, and write the report unless in check mode. Nothing is written if an option is invalid."""
        task = decode(_ReportTask, to_plain(args))
        host, domain = (named and canonical_name(named) for named in (task.host, task.domain))
        scope = Scope(task.since, task.until, host, domain, task.ids)
        scope.check()
        mode, names = parse_mode(task.mode), file_names(check_report_name(task.name), task.formats)
        folder = os.path.abspath(os.path.expanduser(task.dest))
        found, warnings = _read_ledger(self.settings(task_vars).ledger(self.target_host(task_vars), task.ledger), scope, task.drain_host_result)
        document = build_document(found, scope, utc_now(), task.title)
        if not self._task.check_mode:
            write_report(folder, render_files(document, names), mode)
        result = {"changed": True, "files": {kind: os.path.join(folder, name) for kind, name in names.items()}, **_describe_report(document)}
        return {**result, "warnings": warnings} if warnings else result


def _read_ledger(location: LedgerLocation, scope: Scope, drains: JsonObject | None) -> tuple[ReportData, list[str]]:
    """Return the data of the ledger, and warnings. A missing ledger is read as an empty one."""
    try:
        ledger = open_for_reading(*location)
    except NotFound as error:
        missing = f"{error.message} It is read as an empty one."
        return dataclasses.replace(gather_records(None, scope, drains), problems=[missing]), [missing]
    found = gather_records(ledger, scope, drains)
    return dataclasses.replace(found, run_findings=_list_run_findings(ledger, found)), [*ledger.problems, *filter(None, [found.archived])]


def _list_run_findings(ledger: Ledger, found: ReportData) -> list[str]:
    """Return a line on each maintenance run of the report that needs a person; whether it does may depend on runs that are not in the report."""
    reported = {run.id for run in found.runs}
    runs = [document.maintenance_run for document in ledger.list_maintenance_runs()] if reported else []
    return [text for run, text in list_findings(runs, list_entries(ledger)) if run.id in reported]


def _describe_report(report: Report) -> JsonObject:
    """Return the task's summary of the report."""
    return {
        "counts": report.counts,
        "attention": list(report.attention or ()),
        "downtimes": {key: value for key, value in encode(report.downtimes).items() if key != "ranges"},
        "safe_to_reboot": {host.name: host.safe_to_reboot for host in report.hosts},
        "summary": summary_text(report),
    }
