# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lookup C(ledger): records of moves, and documents of hosts and domains."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ledger
author:
  - The kvmfleet.migration developers (@kvmfleet)
version_added: 0.1.0
short_description: Read the ledger of moves, hosts, domains, maintenance and balances
description:
  - Reads the records and documents that the modules of this collection keep in the ledger.
  - The result is one list for each term. With C(lookup) and one term, it is always that list, even if the list has one document or none. With C(query), it is
    a list of such lists, one for each term.
  - A ledger that does not exist yet is read as an empty one, with a warning. Reading never creates a ledger.
options:
  _terms:
    description:
      - The kind of documents to read.
    type: list
    elements: str
    choices:
      - migrations
      - evacuations
      - hosts
      - domains
      - maintenance_runs
      - balance_runs
    required: true
  ledger:
    description:
      - Folder of the ledger on the control node, or V(etcd://host:2379,host:2379/prefix) for a ledger in an etcd cluster.
      - The default is the folder C(kvmfleet/ledger) in the user's XDG state directory, usually C(~/.local/state).
    type: str
    vars:
      - name: kvmfleet_ledger
  etcd:
    description:
      - Connection to etcd, for a ledger in etcd. TLS is used if C(tls) is set, or if a file is given.
    type: dict
    suboptions:
      tls:
        description: Whether to use TLS. By default it is used if one of the three files is given.
        type: bool
      ca_file:
        description: PEM file on the control node with the certificate authorities of the members. The default is the authorities of the system.
        type: path
      cert_file:
        description: PEM file on the control node with the client certificate.
        type: path
      key_file:
        description: PEM file on the control node with the key of the client certificate.
        type: path
      user:
        description: Name of the etcd user.
        type: str
      password:
        description: Password of that user. It is sent only over TLS, except to this machine itself.
        type: str
    vars:
      - name: kvmfleet_etcd
extends_documentation_fragment:
  - kvmfleet.migration._ledger_query
seealso:
  - plugin: kvmfleet.migration.ledger_query
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show the moves that are not settled
  ansible.builtin.debug:
    msg: "{{ lookup('kvmfleet.migration.ledger', 'migrations', status=['running', 'running (post-copy)', 'error']) }}"

- name: Show the domains that left a host since yesterday's maintenance
  ansible.builtin.debug:
    msg: >-
      {{ lookup('kvmfleet.migration.ledger', 'migrations', host='kvm1', status=['completed'],
                since='2026-11-20', query="[?source.host=='kvm1'].domain.name") }}

- name: Show the domains that were forced onto a host, with the bypassed checks
  ansible.builtin.debug:
    msg: "{{ lookup('kvmfleet.migration.ledger', 'migrations', forced=true, query='[].[domain.name, destination.host, history[].detail]') }}"

- name: Stop while a host is in maintenance
  ansible.builtin.assert:
    that: lookup('kvmfleet.migration.ledger', 'hosts', ledger='/srv/ledger') | selectattr('state', 'eq', 'maintenance') | length == 0
"""

RETURN = r"""
_raw:
  description:
    - One list for each term.
    - Records are as the modules return them, oldest first, and so are maintenance and balance runs; hosts and domains are sorted by name.
  type: list
  elements: list
  sample:
    - - domain:
          name: web1
          uuid: 0a7d4a5c-1f4e-4f9e-8d3c-6f0a5a2c9b11
        status: completed
        type: live-migration
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, ledger_query_spec, ledger_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, NotFound, printable_line
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_for_reading
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import (
    Conditions,
    check_conditions,
    find_archived,
    read_conditions,
    read_term,
    to_plain,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.options import read_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import TaskSettings

display = Display()

SPEC: t.Final[Spec] = {**ledger_query_spec(), **ledger_spec(), "etcd": {"type": "dict"}}


class LookupModule(LookupBase):
    """Reads the ledger."""

    def run(self, terms: list[str], variables: t.Optional[JsonObject] = None, **kwargs: Json) -> list[list[Json]]:
        """Return a list for each term. Raises C(AnsibleLookupError)."""
        try:
            options = read_options(kwargs, SPEC)
            wanted = read_conditions(options)
            # The two variables are read as by modules. As options of the plugin, they would not be templated.
            settings = TaskSettings.of_lookup(variables, self._loader)
            location, etcd = settings.ledger(settings.task_host, t.cast("str | None", options["ledger"]))
            return self._read_terms(t.cast("list[str]", to_plain(terms)), wanted, location, options["etcd"] or etcd)
        except KvmfleetError as error:
            raise AnsibleLookupError(f"kvmfleet.migration.ledger: {error}") from None

    def _read_terms(self, terms: list[str], wanted: Conditions, location: t.Optional[str], etcd: Json) -> list[list[Json]]:
        check_conditions(terms, wanted)
        try:
            ledger = open_for_reading(t.cast("str", to_plain(location)) if location else None, etcd)
        except NotFound as error:
            display.warning(printable_line(f"{error.message} It is read as an empty one."))
            return [[] for _term in terms]
        found = [read_term(ledger, term, wanted) for term in terms]
        for problem in (*ledger.problems, find_archived(ledger, terms, wanted)):
            if problem:
                display.warning(printable_line(problem))
        return found
