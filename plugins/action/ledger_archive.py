# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(ledger_archive) runs on the control node alone and queries no host."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, ledger_archive_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import format_time
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, printable_text
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.archiving import ArchiveOutcome, archive_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_archive, open_ledger

# What a drain, an evacuation or a report of the last month reads stays in the ledger.
_LEAST_DAYS, _MOST_DAYS = 30, 36_500
_MIB = 2**20


@dataclass(frozen=True)
class _ArchiveTask:
    """The options of C(ledger_archive)."""

    ledger: t.Optional[str]
    to: str
    older_than_days: int


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "ledger_archive"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return ledger_archive_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Move what is old enough to the archive. Raises the errors of L(archive_ledger)."""
        _check_days(t.cast(int, args["older_than_days"]))
        task = decode(_ArchiveTask, args)
        archive = open_archive(task.to)
        ledger = open_ledger(*self.settings(task_vars).ledger(self.target_host(task_vars), task.ledger), create=False)
        until = format_time(datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=task.older_than_days))
        check = self._task.check_mode
        done = archive_ledger(ledger, archive, until, describe_actor(task_vars), check)
        warnings = [*done.problems, *ledger.problems]
        result: Result = {
            "changed": bool(done.records or done.lines),
            "ledger": ledger.name,
            "ledger_id": ledger.ledger_id,
            "to": archive.name,
            "until": until,
            "records": done.records,
            "lines": done.lines,
            "bytes": done.bytes,
            "kept": dict(done.kept),
            "msg": printable_text(_describe_outcome(f"the ledger {ledger.name} to the archive {archive.name}", until, done, check)),
        }
        return {**result, "warnings": warnings} if warnings else result


def _check_days(days: int) -> None:
    if not _LEAST_DAYS <= days <= _MOST_DAYS:
        raise InvalidArgument(f"older_than_days must be {_LEAST_DAYS} to {_MOST_DAYS}, not {days}.", "Nothing was archived.")


def _describe_outcome(ways: str, until: str, done: ArchiveOutcome, check: bool) -> str:
    """Return what was moved. C(ways) names the ledger and the archive."""
    older = sum(done.kept.values())
    stay = f" {_count(older, 'older record')} {'stays' if older == 1 else 'stay'}." if older else ""
    if not done.records and not done.lines:
        return f"Nothing from before {until} {'would have' if check else 'had'} to be moved from {ways}.{stay}"
    moved = " and ".join(_count(number, word) for number, word in ((done.records, "record"), (done.lines, "audit line")) if number)
    verb = "would be" if check else "was" if done.records + done.lines == 1 else "were"
    return f"{moved} from before {until} ({done.bytes / _MIB:.1f} MiB) {verb} moved from {ways}.{stay}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
