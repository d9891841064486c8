# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(ledger_info) runs on the control node alone and changes nothing."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, ledger_info_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, printable_text
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import contents
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems, join_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import Conditions, check_conditions, find_archived, read_conditions, read_term


@dataclass(frozen=True)
class _InfoTask:
    """The options of C(ledger_info); C(extra) has the conditions."""

    KEYS: t.ClassVar[t.Mapping[str, str]] = {"terms": "list", "record_id": "id"}

    ledger: t.Optional[str]
    terms: t.Optional[tuple[str, ...]]
    record_id: t.Optional[str]
    verify: bool
    extra: JsonObject = dataclasses.field(default_factory=dict)


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "ledger_info"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return ledger_info_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Read the ledger. Raises L(NotFound) if there is none."""
        task = decode(_InfoTask, args)
        terms, wanted = _read_conditions(task)
        ledger = open_ledger(*self.settings(task_vars).ledger(self.target_host(task_vars), task.ledger), create=False, moved=True)
        verdict = _verify_ledger(ledger) if task.verify else {}
        counts = ledger.examine_contents(contents.count_documents)
        listed: dict[str, Json] = {term: read_term(ledger, term, wanted) for term in terms}
        if task.record_id is not None:
            listed["record"] = encode(ledger.read_record(task.record_id).record)
        summary = contents.format_summary(ledger.identity, ledger.name, counts)
        text = printable_text(" ".join([summary, *([str(verdict["msg"])] if verdict else [])]))
        identity: Result = {**contents.describe_identity(ledger.identity, ledger.name), "archives": ledger.examine_contents(contents.list_archives)}
        result: Result = {"changed": False, **identity, "counts": encode(counts), **listed, **verdict, "msg": text}
        warnings = [*ledger.problems, *filter(None, [find_archived(ledger, terms, wanted)])]
        return {**result, "warnings": warnings} if warnings else result


def _read_conditions(task: _InfoTask) -> tuple[Sequence[str], Conditions]:
    """Return the term to list. Raises L(InvalidArgument) for conditions without a term."""
    terms, wanted = task.terms or (), read_conditions(task.extra)
    given = [name for name in ("status", "host", "domain", "since", "until", "forced", "query") if task.extra[name] is not None]
    if given and not terms:
        raise InvalidArgument(f"{given[0]} is given without 'list'.", "Set 'list' to the documents that it selects.")
    if terms:
        check_conditions(terms, wanted)
    return terms, wanted


def _verify_ledger(ledger: Ledger) -> JsonObject:
    """Return whether everything can be read and the audit is intact; otherwise the task has failed."""
    found = ledger.examine_contents(find_problems)
    if not found.all_problems:
        return {"intact": True, "problems": [], "msg": "Every document can be read, and the audit holds."}
    some = f"{len(found.all_problems)} problem{'s' if len(found.all_problems) > 1 else ''}"
    audit = " A line of the audit that was changed or lost can only be compared with a backup." if found.audit else ""
    return {
        "intact": False,
        "problems": found.all_problems,
        "failed": True,
        "error_code": "invalid_state",
        "msg": f"It has {some}: {join_problems(found.all_problems)}{audit}",
    }
