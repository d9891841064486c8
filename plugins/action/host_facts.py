# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control half of C(host_facts): adds the time at which it received the facts."""

from __future__ import annotations

from ansible.plugins.action.normal import ActionModule as NormalAction

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import with_receipt

Result = dict[str, Json]
FACTS_KEY = "kvmfleet_host"


class ActionModule(NormalAction):
    """Action plugin of the module of the same name."""

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        """Run the module, also in the background; an immediate result gets a timestamp."""
        result: Result = super().run(tmp, task_vars)
        facts = result.get("ansible_facts")
        if isinstance(facts, dict) and isinstance(facts.get(FACTS_KEY), dict):
            result["ansible_facts"] = {**facts, FACTS_KEY: with_receipt(facts[FACTS_KEY])}
        return result
