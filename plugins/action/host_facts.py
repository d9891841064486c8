# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control node's half of C(host_facts): it notes when it received the facts. All else is the module's."""

from __future__ import annotations

import typing as t

from ansible.plugins.action.normal import ActionModule as NormalAction

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._facts_age import received

Result = dict[str, t.Any]
FACTS = "kvmfleet_host"


class ActionModule(NormalAction):
    """Action plugin of the module of the same name."""

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        """Run the module, also in the background; what it answers at once is stamped."""
        result: Result = super().run(tmp, task_vars)
        facts = result.get("ansible_facts")
        if isinstance(facts, dict) and isinstance(facts.get(FACTS), dict):
            result["ansible_facts"] = {**facts, FACTS: received(facts[FACTS])}
        return result
