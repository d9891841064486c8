#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: displaced_domains
short_description: List the domains that were displaced from a host
version_added: 0.1.0
description:
  - Returns the domains that a drain or an evacuation has taken off a host and that are not back. It reads only the ledger.
  - A domain is displaced from the host on which the oldest of its moves since then began, over any number of hops. A move counts if its source was in
    maintenance or fenced; a domain that a person moves from a host in service is not displaced. An evacuation always counts.
  - This origin is written to the ledger, so that it is still known when the host is in service again. It is removed once the domain is back.
  - The origin of a domain that was never protected by M(kvmfleet.migration.protect) is not stored; it is known until the host is enabled again.
options:
  name:
    description: Inventory name of the host. The default is the host on which the task runs. The host does not have to answer.
    type: str
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._ledger
attributes:
  diff_mode:
    support: none
seealso:
  - module: kvmfleet.migration.host
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: See which domains wait for their host
  kvmfleet.migration.displaced_domains:
  register: away
"""

RETURN = r"""
displaced:
  description: Domains that belong on this host and are not on it.
  returned: success
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the domain.
      type: str
      sample: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
    name:
      description: Name of the domain.
      type: str
      sample: web1
    since:
      description: When the domain was displaced; null if only the origin is stored.
      type: str
      sample: '2026-11-21T03:00:00.000Z'
    possible_hosts:
      description: The hosts on which the domain may be according to the ledger.
      type: list
      elements: str
      sample: [kvm2]
    remembered:
      description: Whether the ledger stores its origin.
      type: bool
      sample: true
returned:
  description: Domains that are back, in the form of RV(displaced).
  returned: success
  type: list
  elements: dict
  sample: []
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import displaced_domains_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=displaced_domains_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
