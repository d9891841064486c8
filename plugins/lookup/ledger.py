# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup ledger: records of moves and documents of hosts and domains."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ledger
author:
  - The kvmfleet.migration developers (@kvmfleet)
version_added: 0.1.0
short_description: Read the ledger of moves, hosts and domains
description:
  - Reads the records and documents that the modules of this collection keep in the ledger on the control node.
  - For each term the result is one list. With C(lookup) and one term it is always that list, also when it holds one document or none.
    With C(query) it is a list of such lists, one a term.
  - A ledger that does not exist yet is read as an empty one, with a warning. Reading never makes one.
options:
  _terms:
    description:
      - What to read.
    type: list
    elements: str
    choices:
      - migrations
      - evacuations
      - hosts
      - domains
    required: true
  ledger:
    description:
      - Folder of the ledger on the control node, or V(etcd://host:2379,host:2379/prefix) for a ledger in an etcd cluster.
      - When not given, the folder C(kvmfleet/ledger) in the user's XDG state directory is used, usually C(~/.local/state).
    type: str
    vars:
      - name: kvmfleet_ledger
  etcd:
    description:
      - How to speak to etcd, where the ledger is there. TLS is spoken where it is asked for, or where a file is given.
    type: dict
    suboptions:
      tls:
        description: Whether to speak TLS. By default where one of the three files is given.
        type: bool
      ca_file:
        description: PEM file on the control node with the certificates that those of the members are checked with; else the system's.
        type: path
      cert_file:
        description: PEM file on the control node with the certificate to show.
        type: path
      key_file:
        description: PEM file on the control node with its key.
        type: path
      user:
        description: Name of the etcd user.
        type: str
      password:
        description: That user's password. It is sent over TLS only, but to this machine itself.
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
- name: Show what is not settled
  ansible.builtin.debug:
    msg: "{{ lookup('kvmfleet.migration.ledger', 'migrations', status=['running', 'running (post-copy)', 'error']) }}"

- name: Name the domains that left a host since yesterday's maintenance
  ansible.builtin.debug:
    msg: >-
      {{ lookup('kvmfleet.migration.ledger', 'migrations', host='kvm1', status=['completed'],
                since='2026-11-20', query="[?source.host=='kvm1'].domain.name") }}

- name: Name the domains that were forced onto a host, with what was bypassed
  ansible.builtin.debug:
    msg: "{{ lookup('kvmfleet.migration.ledger', 'migrations', forced=true, query='[].[domain.name, destination.host, history[].detail]') }}"

- name: Refuse to go on while a host is in maintenance
  ansible.builtin.assert:
    that: lookup('kvmfleet.migration.ledger', 'hosts', ledger='/srv/ledger') | selectattr('state', 'eq', 'maintenance') | length == 0
"""

RETURN = r"""
_raw:
  description:
    - One list a term.
    - Records are as the modules return them, oldest first; hosts and domains are sorted by name.
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import Spec, ledger_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._ledger_spec import query_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.query import plain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.reading import Wanted, check_wanted, read
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._options import read_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._task_settings import TaskSettings

display = Display()

SPEC: t.Final[Spec] = {**query_spec(), **ledger_spec(), "etcd": {"type": "dict"}}


class LookupModule(LookupBase):
    """Reads the ledger."""

    def run(self, terms: list[t.Any], variables: t.Optional[t.Mapping[str, t.Any]] = None, **kwargs: t.Any) -> list[list[t.Any]]:
        """Return a list for each term. Raises C(AnsibleLookupError) with a sentence."""
        try:
            options = read_options(kwargs, SPEC)
            wanted = Wanted(**{name: plain(options[name]) for name in Wanted.__dataclass_fields__})
            # The two variables are read as modules read them: an option of a plugin would get them before they are templated.
            settings = TaskSettings.of_lookup(variables, self._loader)
            location, etcd = settings.ledger(settings.task_host, options["ledger"])
            return self._read([plain(term) for term in terms], wanted, location, options["etcd"] or etcd)
        except KvmfleetError as error:
            raise AnsibleLookupError(f"kvmfleet.migration.ledger: {error}") from None

    def _read(self, terms: list[str], wanted: Wanted, location: t.Any, etcd: t.Any) -> list[list[t.Any]]:
        check_wanted(terms, wanted)
        try:
            ledger = open_ledger(plain(location) if location else None, etcd, create=False)
        except NotFound as error:
            display.warning(printable(f"{error.message} It is read as an empty one."))
            return [[] for _term in terms]
        found = [read(ledger, term, wanted) for term in terms]
        for problem in ledger.problems:
            display.warning(printable(problem))
        return found
