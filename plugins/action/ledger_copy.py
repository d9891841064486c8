# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(ledger_copy) runs on the control node alone and queries no host."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, ledger_copy_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_text
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import contents
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.copying import copy_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger, open_target


@dataclass(frozen=True)
class _CopyTask:
    """The options of C(ledger_copy)."""

    ledger: t.Optional[str]
    to: str
    force: bool


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "ledger_copy"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return ledger_copy_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Move the ledger. Raises the errors of L(copy_ledger)."""
        task = decode(_CopyTask, args)
        location = self.settings(task_vars).ledger(self.target_host(task_vars), task.ledger)
        target = open_target(task.to, location.etcd)
        source = open_ledger(*location, create=False, moved=True)
        check = self._task.check_mode
        outcome = copy_ledger(source, target, describe_actor(task_vars), task.force, check)
        counts = source.examine_contents(contents.count_documents)
        result: Result = {
            "changed": outcome.changed,
            "ledger_id": source.ledger_id,
            "from": source.name,
            "to": target.name,
            "counts": encode(counts),
            "problems": list(outcome.problems),
        }
        warnings = [*outcome.problems, *source.problems]
        result["msg"] = printable_text(_copy_text(f"The ledger {source.name} ({source.ledger_id})", target.name, counts if outcome.changed else None, check))
        return {**result, "warnings": warnings} if warnings else result


def _copy_text(what: str, to: str, copied: contents.DocumentCounts | None, check: bool) -> str:
    """Return what was done. C(copied) is None for a ledger that was copied before."""
    if copied is None:
        return f"{what} was moved to {to} earlier."
    if check:
        return f"{what} would be moved to {to}: {copied.as_text()}."
    return f"{what} was moved to {to}: {copied.as_text()}, all read back and compared. Set 'ledger' or 'kvmfleet_ledger' to {to} wherever it is set."
