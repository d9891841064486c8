# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Variables as a running task sees them: the one rule for modules and for the lookup plugin.

- The host that the task is for: what Ansible's precedence gives the task (play, role, block, task and extra variables included).
- The host that the task is delegated to: what the same precedence gives for that host.
- Any other host: its variables in the inventory and its facts.
- What the fleet shares (C(SHARED)) is always read from the variables of the host that the task is for.
"""

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleError
from ansible.template import Templar

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import FACTS, Settings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._values import decrypted

SHARED = frozenset({"kvmfleet_ledger", "kvmfleet_etcd", "kvmfleet_notices", "kvmfleet_profiles"})
# Variables with secrets in them: an error shows neither the template nor its value.
_SECRET = frozenset({"kvmfleet_etcd", "kvmfleet_notices", "kvmfleet_fencing"})
_UNDEFINED = re.compile(r"'[^'{}]{1,200}' is undefined|(?:'[^'{}]{1,200}'|object of type '[^'{}]{1,200}') has no attribute '[^'{}]{1,200}'")
_LOOP = ("ansible_loop_var", "ansible_index_var", "ansible_loop")

Variables = t.Mapping[str, t.Any]


class TaskSettings(Settings):
    """Settings of one task.

    :arg task_vars: the task's variables as an action or lookup plugin gets them, not templated yet.
    :arg loader: Ansible's loader, for lookups in templates.
    :arg delegate_to: the host that the task is delegated to.
    """

    def __init__(self, task_vars: Variables, loader: t.Any, delegate_to: t.Optional[str] = None) -> None:
        super().__init__(task_vars)
        self._task_vars = task_vars
        self._loader = loader
        self.task_host = str(task_vars.get("inventory_hostname", "localhost"))
        self._delegate = None if delegate_to in (None, self.task_host) else str(delegate_to)
        self._scopes: t.Dict[str, Variables] = {}
        self._templars: t.Dict[str, Templar] = {}

    @classmethod
    def of_lookup(cls, variables: t.Optional[Variables], loader: t.Any) -> TaskSettings:
        """Return the settings for a lookup plugin: those of the task, whose delegation shows in its variables."""
        known = {"hostvars": {}, **(variables or {})}
        return cls(known, loader, next(iter(known.get("ansible_delegated_vars") or {}), None))

    def owner(self, host: str, variable: str) -> str:
        """Return the host whose variable answers for that host: the task's for what the fleet shares."""
        return self.task_host if variable in SHARED else host

    def is_known(self, host: str) -> bool:
        """Whether the inventory has the host, or the task runs on it."""
        return host in (self.task_host, self._delegate) or super().is_known(host)

    def of(self, host: str, variable: str, default: t.Any = None) -> t.Any:
        """Return that variable, templated; the default where it is not set. Raises L(InvalidArgument), naming variable and host."""
        owner = self.owner(host, variable)
        value = self._templated(owner, variable)
        if value is None and variable in SHARED:
            self._check_delegate(variable)
        return default if value is None else value

    def _check_delegate(self, variable: str) -> None:
        """Refuse to take the built-in value for a task whose delegated host has one: the two hosts would use two ledgers."""
        if self._delegate is not None and self._templated(self._delegate, variable) is not None:
            raise InvalidArgument(
                f"{variable} is set for {self._delegate}, to which the task is delegated, and not for {self.task_host}, for which the task runs.",
                f"Set {variable} for both hosts, for example for the group 'all' or in the play. Nothing was changed.",
            )

    def _templated(self, host: str, variable: str) -> t.Any:
        raw = self._scope(host).get(variable)
        # Facts hold no templates, and those of a fleet are long.
        if raw is None or variable == FACTS:
            return raw
        try:
            return decrypted(self._templar(host).template(raw))
        except (AnsibleError, RecursionError) as error:
            raise _unreadable(variable, host, error) from None

    def _templar(self, host: str) -> Templar:
        if host not in self._templars:
            self._templars[host] = Templar(loader=self._loader, variables=dict(self._scope(host)))
        return self._templars[host]

    def _scope(self, host: str) -> Variables:
        """Return the variables of a host, not templated; empty for a host that is in no inventory."""
        if host not in self._scopes:
            self._scopes[host] = self._found_scope(host)
        return self._scopes[host]

    def _found_scope(self, host: str) -> Variables:
        if host == self.task_host:
            return self._task_vars
        delegated = (self._task_vars.get("ansible_delegated_vars") or {}).get(host) if host == self._delegate else None
        if delegated is not None:
            # Ansible gives the name of the task's host there, and no loop variables.
            return {**delegated, **self._loop_variables(), "inventory_hostname": host}
        if host not in self._hostvars:
            return {}
        return {**t.cast("t.Any", self._hostvars).raw_get(host), "hostvars": self._hostvars}

    def _loop_variables(self) -> Variables:
        names = {*_LOOP, *(str(self._task_vars[name]) for name in _LOOP[:2] if self._task_vars.get(name))}
        return {name: self._task_vars[name] for name in names if name in self._task_vars}


def _unreadable(variable: str, host: str, error: Exception) -> InvalidArgument:
    """Return the error for a variable that cannot be templated or decrypted. Of a secret one only undefined names are shown."""
    found = _UNDEFINED.search(str(error))
    why = f": {found.group()}" if found else "" if variable in _SECRET else f": {str(error).rstrip('.')}"
    return InvalidArgument(f"{variable} of {host} cannot be read{why}.", f"Correct the variable, or define for {host} what it needs.")
