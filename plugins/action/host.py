# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control node's half of C(host): finds the host's entry in the ledger and writes it."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_spec import host_spec
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, acting
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.change import changed_entry, differs, shown
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._hosts.identity import Identity, entry_by_name, entry_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Document, Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "host"

    def spec(self) -> Result:
        """Return the module's options."""
        return host_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Find the host's entry, and write it where the task wants that."""
        # A role's word that it needs all hosts of the play to go step by step together.
        if (args["_work"] or {}).get("together"):
            self._refuse_free_strategy()
        here = self.here(task_vars)
        name = args["name"] if args["name"] is not None else here
        _check_name(name)
        ledger = self._ledger(Settings(task_vars).ledger(here, args["ledger"]), args)
        warnings: list[str] = []
        if name == here:
            identity, found = self._asked(ledger, name, args, task_vars, warnings)
        else:
            identity, found = Identity(name, None, None, None), entry_by_name(ledger, name)
        result = self._read(found) if args["state"] is None else self._write(ledger, found, identity, args)
        warnings += ledger.problems if ledger else []
        return {**result, "warnings": warnings} if warnings else result

    def _ledger(self, location: str | None, args: dict[str, t.Any]) -> Ledger | None:
        """Return the ledger; None where there is none and the task writes nothing."""
        try:
            return open_ledger(location, create=args["state"] is not None and not self._task.check_mode)
        except NotFound:
            return None

    def _asked(
        self, ledger: Ledger | None, name: str, args: dict[str, t.Any], task_vars: dict[str, t.Any], warnings: list[str]
    ) -> tuple[Identity, Document | None]:
        """Return who the host says it is, and its entry; its identity is made where it has none and the task writes."""
        answer = self.phase("read", {}, args["uri"], task_vars)
        said = answer["identity"]
        if answer["libvirt_error"]:
            warnings.append(f"Libvirt on {name} did not answer, so its UUID is not known: {answer['libvirt_error']}")
        identity = Identity(name, said["host_id"], said["host_uuid"], said["machine_id"])
        found = entry_of(ledger, identity) if ledger else None
        if identity.host_id or args["state"] is None or self._task.check_mode:
            return identity, found
        made = self.phase("create", {}, args["uri"], task_vars)["host_id"]
        return Identity(name, made, identity.host_uuid, identity.machine_id), found

    def _read(self, found: Document | None) -> Result:
        return {"changed": False, "host": found.body if found else None}

    def _write(self, ledger: Ledger | None, found: Document | None, identity: Identity, args: dict[str, t.Any]) -> Result:
        before = found.body if found else None
        after = changed_entry(before, identity.as_dict(), args["state"], args["reason"], acting())
        changed = differs(before, after)
        if changed and ledger and not self._task.check_mode:
            after = ledger.put_host(after, found.version if found else None).body
        result: Result = {"changed": changed, "host": after}
        if self._task.diff:
            result["diff"] = {"before": shown(before), "after": shown(after), "before_header": f"{after['name']} in the ledger", "after_header": after["name"]}
        return result

    def _refuse_free_strategy(self) -> None:
        strategy = str(self._task.get_play().strategy).rpartition(".")[2]
        if strategy in ("free", "host_pinned"):
            raise NotSupported(
                f"The play has strategy: {strategy}, under which no plan can be made for all hosts together.", "Remove it from the play. Nothing was changed."
            )


def _check_name(name: str) -> None:
    if not name or any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidArgument(f"name is {name!r}, which cannot be the name of a host.", "Give the host's name in the inventory.")
