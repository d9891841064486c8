# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The module C(report): reads the ledger and writes a report of it. All of it runs on the control node."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._report_spec import report_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._files import mode_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import plain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._report.document import document_of, summary_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._report.gather import Found, Scope, gather
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._report.render import contents_of, names_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._report.writing import check_name, write_all
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import LedgerPlace

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "report"

    def spec(self) -> Result:
        """Return the module's options."""
        return report_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Read, and write unless in check mode. Nothing is written where an option is wrong."""
        args = plain(args)
        scope = Scope(**{name: args[name] for name in Scope.__dataclass_fields__})
        scope.check()
        mode, names = mode_of(args["mode"]), names_of(check_name(args["name"]), args["formats"])
        folder = os.path.abspath(os.path.expanduser(args["dest"]))
        found, warnings = _found(self.settings(task_vars).ledger(self.here(task_vars), args["ledger"]), scope, args["drain_host_result"])
        document = document_of(found, scope, utc_now(), args["title"])
        if not self._task.check_mode:
            write_all(folder, contents_of(document, names), mode)
        result = {"changed": True, "files": {kind: os.path.join(folder, name) for kind, name in names.items()}, **_told(document)}
        return {**result, "warnings": warnings} if warnings else result


def _found(place: LedgerPlace, scope: Scope, drains: t.Any) -> tuple[Found, list[str]]:
    """Return what the ledger has, and warnings. One that is not there yet is read as an empty one."""
    try:
        ledger = open_ledger(*place, create=False)
    except NotFound as error:
        return gather(None, scope, drains), [f"{error.message} It is read as an empty one."]
    return gather(ledger, scope, drains), ledger.problems


def _told(document: Result) -> Result:
    """Return what the task says of the report."""
    return {
        "counts": document["counts"],
        "downtimes": {key: value for key, value in document["downtimes"].items() if key != "ranges"},
        "safe_to_reboot": {host["name"]: host["safe_to_reboot"] for host in document["hosts"]},
        "summary": summary_of(document),
    }
