# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(displaced_domains) runs on the control node alone: the ledger has all the answers."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, displaced_domains_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, Result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.displaced import keep_origins


@dataclass(frozen=True)
class _DisplacedTask:
    """The options of C(displaced_domains)."""

    name: t.Optional[str]
    ledger: t.Optional[str]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "displaced_domains"

    def argument_spec(self) -> Spec:
        """Return the module's options."""
        return displaced_domains_spec()

    def run_task(self, args: Result, task_vars: Result) -> JsonObject:
        """Read the ledger and keep the origins in it. Raises L(NotFound) for a host that it does not know."""
        target_host = self.target_host(task_vars)
        task = decode(_DisplacedTask, args)
        name = task.name or target_host
        ledger = open_ledger(*self.settings(task_vars).ledger(target_host, task.ledger), create=False)
        found = ledger.find_host(name=name)
        if found is None:
            raise NotFound(f"The ledger has no host {name!r}.", "Nothing was changed.")
        result: Result = encode(keep_origins(ledger, found.host, write=not self._task.check_mode))
        return {**result, "warnings": ledger.problems} if ledger.problems else result
