# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(ledger_info), which works on the control node alone and changes nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._ledger_spec import ledger_info_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable_text
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import summary
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_ledger import DocumentLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.reading import Wanted, check_wanted, read
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.verifying import problems_of, told

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "ledger_info"

    def spec(self) -> Result:
        """Return the module's options."""
        return ledger_info_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Read the ledger. Raises L(NotFound) where there is none."""
        terms, wanted = _asked(args)
        ledger = open_ledger(*self.settings(task_vars).ledger(self.here(task_vars), args["ledger"]), create=False, moved=True)
        result = _verified(ledger) if args["verify"] else {}
        counts = ledger.examine(summary.counts)
        listed: Result = {term: read(ledger, term, wanted) for term in terms}
        if args["id"] is not None:
            listed["record"] = ledger.get(args["id"]).record
        result = {"changed": False, **summary.described(ledger.identity, ledger.name), "counts": counts, **listed, **result}
        result["msg"] = printable_text(" ".join([summary.text(result), *([result["msg"]] if "msg" in result else [])]))
        return {**result, "warnings": ledger.problems} if ledger.problems else result


def _asked(args: Result) -> tuple[list[str], Wanted]:
    """Return what is to be listed. Raises L(InvalidArgument) for conditions of nothing."""
    terms = args["list"] or []
    wanted = Wanted(**{name: args[name] for name in Wanted.__dataclass_fields__})
    given = [name for name in ("status", "host", "domain", "since", "until", "forced", "query") if args[name] is not None]
    if given and not terms:
        raise InvalidArgument(f"{given[0]} is given, and nothing is to be listed.", "Say with 'list' what it is about.")
    if terms:
        check_wanted(terms, wanted)
    return terms, wanted


def _verified(ledger: DocumentLedger) -> Result:
    """Return whether all can be read and the audit holds; the task has failed where that is not so."""
    found = ledger.examine(problems_of)
    if not found.all:
        return {"intact": True, "problems": [], "msg": "Every document can be read, and the audit holds."}
    some = f"{len(found.all)} problem{'s' if len(found.all) > 1 else ''}"
    audit = " A line of the audit that was changed or lost can only be compared with a backup." if found.audit else ""
    return {"intact": False, "problems": found.all, "failed": True, "error_code": "invalid_state", "msg": f"It has {some}: {told(found.all)}{audit}"}
