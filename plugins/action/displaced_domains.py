# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""C(displaced_domains), which works on the control node alone: the ledger knows all that it tells."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._displaced_spec import displaced_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotFound
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover.displaced import keep

Result = dict[str, t.Any]


class ActionModule(FleetAction):
    """Action plugin of the module of the same name."""

    MODULE = "displaced_domains"

    def spec(self) -> Result:
        """Return the module's options."""
        return displaced_spec()

    def act(self, args: Result, task_vars: Result) -> Result:
        """Read the ledger and keep the origins in it. Raises L(NotFound) for a host that it does not know."""
        here = self.here(task_vars)
        name = args["name"] or here
        ledger = open_ledger(*self.settings(task_vars).ledger(here, args["ledger"]), create=False)
        found = ledger.find_host(name=name)
        if found is None:
            raise NotFound(f"The ledger has no host {name!r}.", "Nothing was changed.")
        result = dataclasses.asdict(keep(ledger, found.body, write=not self._task.check_mode))
        return {**result, "warnings": ledger.problems} if ledger.problems else result
