# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(ledger_copy), which works on the control node alone: no host is asked."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._ledger_spec import ledger_copy_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable_text
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, acting
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import summary
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.copying import copy
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger, open_target

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "ledger_copy"

    def spec(self) -> Result:
        """Return the module's options."""
        return ledger_copy_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Move the ledger. Raises the errors of L(copy)."""
        place = self.settings(task_vars).ledger(self.here(task_vars), args["ledger"])
        target = open_target(args["to"], place.etcd)
        source = open_ledger(*place, create=False, moved=True)
        check = self._task.check_mode
        outcome = copy(source, target, acting(), args["force"], check)
        result = {
            "changed": outcome.changed,
            "ledger_id": source.ledger_id,
            "from": source.name,
            "to": target.name,
            "counts": source.examine(summary.counts),
            "problems": list(outcome.problems),
        }
        warnings = [*outcome.problems, *source.problems]
        result["msg"] = printable_text(_text(result, check))
        return {**result, "warnings": warnings} if warnings else result


def _text(result: Result, check: bool) -> str:
    what = f"The ledger {result['from']} ({result['ledger_id']})"
    if not result["changed"]:
        return f"{what} was moved to {result['to']} before."
    if check:
        return f"{what} would be moved to {result['to']}: {summary.counted(result['counts'])}."
    done = f"{what} was moved to {result['to']}: {summary.counted(result['counts'])}, all read back and compared."
    return f"{done} Set 'ledger' or 'kvmfleet_ledger' to {result['to']} wherever it is named."
