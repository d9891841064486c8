# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(boot_guard): reads the ledger before a host is released."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard_spec import boot_guard_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.migrations import canonical_uuid
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import TOMBSTONE, UNSETTLED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.decisions import check_not_discarded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.identity import Identity, entry_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import describe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Body, Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.missing import missing_records, sentence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.told import told_by_fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.withheld import forgotten, keeping_out, summary, withholding

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "boot_guard"

    def spec(self) -> Result:
        """Return the module's options."""
        return boot_guard_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Read, forget what is not to be started, and release where the ledger permits it."""
        unwanted = [canonical_uuid(uuid) for uuid in args["forget"]]
        here = self.here(task_vars)
        settings = self.settings(task_vars)
        ledger = open_if_any(*settings.ledger(here, args["ledger"]))
        answer = self._asked("read", {}, args, task_vars)
        identity = Identity(here, *(answer["identity"][key] for key in ("host_id", "host_uuid", "machine_id")))
        records = list(ledger.records(statuses=sorted(UNSETTLED | TOMBSTONE))) if ledger else []
        withheld = withholding(records, identity)
        lost = forgotten(missing_records(ledger, told_by_fleet(settings, here, answer["remembered"])), identity)
        result: Result = {
            "changed": False,
            "withheld_by": [summary(record) for record in [*withheld, *lost]],
            "open_records": [summary(record) for record in [*keeping_out(records, identity), *lost]],
        }
        if args["state"]:
            self._permit(ledger, identity, withheld, lost)
        if unwanted:
            done = self._asked("forget", {"uuids": unwanted}, args, task_vars)
            result.update(changed=done["changed"], forgotten=done["forgotten"])
        if args["state"]:
            answer = self._asked("release", {}, args, task_vars)
            result["changed"] = result["changed"] or answer["changed"]
        elif unwanted:
            answer = self._asked("read", {}, args, task_vars)
        warnings = [f"{path} on {here} is damaged: of one domain it is not known whether it is to be started again." for path in answer["damaged"]]
        warnings += ledger.problems if ledger else []
        result.update(guard=answer["guard"], to_start=[entry for entry in answer["to_start"] if entry["uuid"] not in unwanted])
        return {**result, "warnings": warnings} if warnings else result

    def _permit(self, ledger: Ledger | None, identity: Identity, withheld: list[Body], lost: list[Body]) -> None:
        """Raise what forbids the release; the host stays held then."""
        found = entry_of(ledger, identity) if ledger else None
        if found is None:
            raise NotFound(
                f"The ledger does not know {identity.name}, so it cannot say whether its guests were started elsewhere.",
                "Use the ledger that the host was protected under, or protect it first (protect_host). Nothing was released.",
            )
        check_not_discarded(found.body)
        if lost:
            raise Unsafe(
                f"{identity.name} cannot be released: {' '.join(map(sentence, lost))}",
                "The host's guests stay held.",
                withheld_by=[summary(record) for record in [*withheld, *lost]],
            )
        if withheld:
            why = "; ".join(f"{describe(record)} is '{record['status']}'" for record in withheld)
            raise Unsafe(
                f"{identity.name} cannot be released: {why}.",
                "Run evacuation_cleanup on the host, or settle the records with the module host. The host's guests stay held.",
                withheld_by=[summary(record) for record in withheld],
            )

    def _asked(self, phase: str, work: Result, args: Result, task_vars: Result) -> Result:
        return self.phase(phase, {**work, "check": bool(self._task.check_mode)}, args["uri"], task_vars)
