# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control half of C(host_facts): gives the module the URIs of the hosts to which it probes the link, and adds the time at which it received the facts.

A loop over C(delegate_to) takes one host after the other. If its items name the hosts of the loop, the first item asks them all, side by side, and the others
return what their hosts have answered. In such a loop, a host that cannot be reached has failed: for an item that is unreachable, Ansible prints the results of
all items on one line.
"""

from __future__ import annotations

import itertools
import urllib.parse

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import MAX_LINKS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._kept_modules import KeptModuleAction
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import TaskSettings, with_receipt
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._side_by_side import run_side_by_side

Result = dict[str, Json]
FACTS_KEY = "kvmfleet_host"

# A host alone is asked sooner without a play of its own.
_SEVERAL = 2
# What the hosts of a loop have answered, by all of their names. A process of Ansible runs one task, and a host that is asked again is asked itself.
_answers: dict[tuple[str, ...], dict[str, Result]] = {}


class ActionModule(KeptModuleAction, NormalAction):
    """Action plugin of the module of the same name."""

    # The hosts to which the link is probed, by URI: a task that is tried again has their URIs already.
    _names: dict[str, str] = {}
    # Whether the task is one of those loops. A task that is tried again has no C(_work) any more.
    _is_item = False

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        """Run the module, also in the background; an immediate result gets a timestamp."""
        self._is_item = self._is_item or "_work" in self._task.args
        if not self._is_item:
            return self._ask_host(tmp, task_vars)
        try:
            answer = self._take_answer(task_vars or {}) or self._ask_host(tmp, task_vars)
        except AnsibleConnectionFailure as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        if answer.pop("unreachable", False):
            answer["failed"] = True
        return answer

    def _ask_host(self, tmp: str | None, task_vars: Result | None) -> Result:
        try:
            self._names = {**self._names, **self._resolve_links(task_vars or {})}
        except KvmfleetError as error:
            return {"failed": True, "changed": False, **error.as_result()}
        result: Result = super().run(tmp, task_vars)
        facts = result.get("ansible_facts")
        if isinstance(facts, dict) and isinstance(facts.get(FACTS_KEY), dict):
            result["ansible_facts"] = {**facts, FACTS_KEY: with_receipt(_with_names(facts[FACTS_KEY], self._names))}
        return result

    def _take_answer(self, task_vars: Result) -> Result | None:
        """Return what the host has answered beside the others of the loop; None if it has to be asked itself."""
        hosts = tuple((self._task.args.pop("_work", None) or {}).get("hosts", ()))
        if len(hosts) < _SEVERAL or self._task.delegate_to not in hosts:
            return None
        if hosts not in _answers:
            # If the time limit of this item ends the queries, the other items ask their own hosts.
            _answers[hosts] = {}
            _answers[hosts] = self._ask_all(hosts, task_vars)
        return _answers[hosts].pop(self._task.delegate_to, None)

    def _ask_all(self, hosts: tuple[str, ...], task_vars: Result) -> dict[str, Result]:
        """Return what these hosts answer; nothing if there are no more processes, or in a version of Ansible whose inner functions have another form."""
        try:
            return run_side_by_side(self, hosts, self._task.args, task_vars)
        except (AnsibleError, AttributeError, OSError, TypeError) as error:
            Display().warning(f"The hosts are asked one after the other, because they could not be asked side by side ({type(error).__name__}: {error}).")
            return {}

    def _resolve_links(self, task_vars: Result) -> dict[str, str]:
        """Replace the names in C(link_to) by URIs, and return them by these. What is no list, and what is a URI, is left for the module to judge.

        Hosts to which memory is sent over another network are left out: the probe uses libvirt's own connection.
        """
        given = self._task.args.get("link_to")
        # As Ansible reads a list in text, which ad hoc commands have.
        wanted = given.split(",") if isinstance(given, str) else given
        if not isinstance(wanted, list):
            return {}
        settings = TaskSettings(task_vars, self._loader, self._task.delegate_to)
        source = str(self._task.delegate_to or task_vars["inventory_hostname"])
        names = [host for host in (str(name).strip() for name in wanted) if host != source]
        others = list(itertools.islice((host for host in names if not _has_migration_network(host, source, settings)), MAX_LINKS))
        uris = {host: settings.libvirt_uri(host, source) for host in others if settings.is_known(host)}
        self._task.args["link_to"] = [uris.get(host, host) for host in others]
        return {uri: host for host, uri in uris.items()}


def _has_migration_network(host: str, source: str, settings: TaskSettings) -> bool:
    """Whether memory is sent to another address of that host than the one at which its libvirt is reached."""
    migrate_uri = settings.migrate_uri(host)
    return migrate_uri is not None and urllib.parse.urlsplit(migrate_uri).hostname != urllib.parse.urlsplit(settings.libvirt_uri(host, source)).hostname


def _with_names(facts: Result, names: dict[str, str]) -> Result:
    links = facts.get("links")
    return {**facts, "links": {names.get(str(uri), str(uri)): rate for uri, rate in links.items()}} if isinstance(links, dict) else facts
