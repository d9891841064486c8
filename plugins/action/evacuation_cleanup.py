# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(evacuation_cleanup): reads the ledger's tombstones of the host, and completes those whose work was verified."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation_cleanup_spec import evacuation_cleanup_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, acting
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuation.cleanup import Cleanup, Outcome
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.identity import Identity, entry_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_if_any
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.missing import left_behind, missing_records, sentence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._memory.told import told_by_fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

Result = dict[str, t.Any]

_MAX_RETENTION_DAYS = 3650


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "evacuation_cleanup"

    def spec(self) -> Result:
        """Return the module's options."""
        return evacuation_cleanup_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Ask the host who it is, and clean what records of exactly that host say."""
        if not 0 <= args["retention_days"] <= _MAX_RETENTION_DAYS:
            raise InvalidArgument(f"retention_days is {args['retention_days']}.", f"Give 0 to {_MAX_RETENTION_DAYS}. Nothing was changed.")
        settings, here = self.settings(task_vars), self.here(task_vars)
        where = settings.ledger(here, args["ledger"])
        ledger = open_if_any(*where)

        def phase(name: str, work: Result) -> Result:
            return self.phase(name, work, args["uri"], task_vars)

        answer = phase("identify", {"ledger_id": ledger.ledger_id if ledger else None})
        identity = _identity(here, answer)
        outcome = Outcome()
        if ledger and _has_identity(ledger, identity):
            self.announced(ledger, settings, here, where)
            me = place(here, identity.host_id, identity.host_uuid)
            uris = _others(settings, here, ledger, identity)
            told = list(told_by_fleet(settings, here, answer["remembered"]))
            memory = missing_records(ledger, told), left_behind(ledger, told, identity.host_id)
            cleanup = Cleanup(ledger, me, phase, uris, args["storage"], args["retention_days"], acting(), self._task.check_mode, *memory)
            outcome = cleanup.run()
        return self._result(outcome, here, ledger)

    def _result(self, outcome: Outcome, here: str, ledger: Ledger | None) -> Result:
        result = outcome.as_result()
        refused = {entry["uuid"] for entry in outcome.refused}
        warnings = [f"Domain {entry['name']} was not cleaned from {here}: {entry['reason']}" for entry in outcome.refused]
        warnings += [sentence(one) for one in outcome.missing_records if one["domain"]["uuid"] not in refused]
        warnings += ledger.problems if ledger else []
        if self._task.diff:
            result["diff"] = _diff(outcome, here)
        return {**result, "warnings": warnings} if warnings else result


def _identity(here: str, answer: Result) -> Identity:
    said = answer["identity"]
    if answer["libvirt_error"]:
        raise Unreachable(f"Libvirt on {here} did not answer, so nothing was cleaned: {answer['libvirt_error']}", "Start libvirt there.")
    return Identity(here, said["host_id"], said["host_uuid"], said["machine_id"])


def _has_identity(ledger: Ledger, identity: Identity) -> bool:
    """Whether records can be this host's at all. Raises L(Conflict) where it is not the host that the ledger knows, or cannot be told to be."""
    entry_of(ledger, identity)
    return identity.host_id is not None


def _others(settings: Settings, here: str, ledger: Ledger, identity: Identity) -> dict[str, str]:
    """Return the URI of each other host: of the inventory's fleet, and of the ledger, where the inventory does not know it by the address saved."""
    uris = {name: settings.libvirt_uri(name, here) for name in settings.fleet()}
    for entry in (document.body for document in ledger.hosts()):
        if entry.get("host_id") == identity.host_id or entry["name"] in uris:
            continue
        saved = (entry.get("addresses") or {}).get("libvirt_uri")
        uris[entry["name"]] = saved if saved and not settings.is_known(entry["name"]) else settings.libvirt_uri(entry["name"], here)
    uris.pop(here, None)
    return uris


def _diff(outcome: Outcome, here: str) -> Result:
    before = {entry["name"]: {"defined": entry["undefined"], "files": [file["path"] for file in entry["quarantined"]]} for entry in outcome.cleaned}
    after = {entry["name"]: {"defined": False, "files": []} for entry in outcome.cleaned}
    return {"before": before, "after": after, "before_header": f"evacuated domains on {here}", "after_header": f"evacuated domains on {here}"}
