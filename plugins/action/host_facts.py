# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control half of C(host_facts): gives the module the URIs of the hosts to which it probes the link, and adds the time at which it received the facts."""

from __future__ import annotations

from ansible.plugins.action.normal import ActionModule as NormalAction

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import MAX_LINKS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._kept_modules import KeptModuleAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import TaskSettings, with_receipt

Result = dict[str, Json]
FACTS_KEY = "kvmfleet_host"


class ActionModule(KeptModuleAction, NormalAction):
    """Action plugin of the module of the same name."""

    # The hosts to which the link is probed, by URI: a task that is tried again has their URIs already.
    _names: dict[str, str] = {}

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        """Run the module, also in the background; an immediate result gets a timestamp."""
        try:
            self._names = {**self._names, **self._resolve_links(task_vars or {})}
        except KvmfleetError as error:
            return {"failed": True, "changed": False, **error.as_result()}
        result: Result = super().run(tmp, task_vars)
        facts = result.get("ansible_facts")
        if isinstance(facts, dict) and isinstance(facts.get(FACTS_KEY), dict):
            result["ansible_facts"] = {**facts, FACTS_KEY: with_receipt(_with_names(facts[FACTS_KEY], self._names))}
        return result

    def _resolve_links(self, task_vars: Result) -> dict[str, str]:
        """Replace the names in C(link_to) by URIs, and return them by these. What is no list, and what is a URI, is left for the module to judge."""
        given = self._task.args.get("link_to")
        # As Ansible reads a list in text, which ad hoc commands have.
        wanted = given.split(",") if isinstance(given, str) else given
        if not isinstance(wanted, list):
            return {}
        settings = TaskSettings(task_vars, self._loader, self._task.delegate_to)
        source = str(self._task.delegate_to or task_vars["inventory_hostname"])
        others = [host for host in (str(name).strip() for name in wanted) if host != source][:MAX_LINKS]
        uris = {host: settings.libvirt_uri(host, source) for host in others if settings.is_known(host)}
        self._task.args["link_to"] = [uris.get(host, host) for host in others]
        return {uri: host for host, uri in uris.items()}


def _with_names(facts: Result, names: dict[str, str]) -> Result:
    links = facts.get("links")
    return {**facts, "links": {names.get(str(uri), str(uri)): rate for uri, rate in links.items()}} if isinstance(links, dict) else facts
