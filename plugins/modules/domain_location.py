#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_location
short_description: Find the host on which the task for one domain must run
version_added: 0.1.0
description:
  - Checks what somebody has given to a playbook for one domain, and finds the host of the domain. The playbooks C(abort), C(check), C(force_complete),
    C(migrate) and C(policy) use it, so that nobody has to know where the domain is. It changes nothing.
  - With O(step=check), the request is checked. If the ledger has an unsettled migration of the domain, its source is the host. Otherwise RV(ask) lists the
    hosts that M(kvmfleet.migration.migration_info) must ask.
  - With O(step=find), the host is found from their answers. It is the host that moves the domain away, or else the one on which the domain is active, or else
    the only one that has its definition. If the answers do not show which host that is, the task fails and names the hosts.
options:
  step:
    description: Whether to check the request, or to find the host from the answers of the hosts.
    type: str
    choices: [check, find]
    required: true
  purpose:
    description: The playbook that needs the host. It determines which options are valid, and whether a migration is sought or the domain itself.
    type: str
    choices: [abort, check, force_complete, migrate, policy]
    required: true
  domain:
    description: Name or UUID of the domain. It may be omitted for V(abort) and V(force_complete) with O(id).
    type: str
  id:
    description:
      - ID of the record of the migration, for V(abort) and V(force_complete).
      - A record that is closed is C(invalid_state), or C(conflict) if the domain is being moved again. One that the ledger does not have is C(not_found).
    type: str
  source:
    description: Inventory name of the host, if it is known. It is then used, and no host is asked.
    type: str
  destination:
    description: Inventory name of the destination, for V(migrate). If the domain is active there already, RV(arrived) is V(true).
    type: str
  fleet:
    description: Inventory names of the hosts of the play.
    type: list
    elements: str
    required: true
  options:
    description:
      - Options for the module of the playbook, a dictionary. They are returned in RV(options), each with its type.
      - An option that is empty counts as not given, as a question of a survey that was not answered.
    type: raw
  survey:
    description: Further options of the same kind, which override those in O(options).
    type: dict
    default: {}
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._internal
  - kvmfleet.migration._ledger
attributes:
  diff_mode:
    support: none
notes:
  - The playbooks give the answers of the hosts to this module internally. People start the playbooks.
  - A ledger that cannot be used does not prevent this task, unless O(id) is given. The hosts are asked then.
seealso:
  - module: kvmfleet.migration.migration_info
  - module: kvmfleet.migration.fleet_status
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Does the ledger know a migration of web1?
  kvmfleet.migration.domain_location:
    step: check
    purpose: abort
    domain: web1
    fleet: "{{ ansible_play_hosts_all }}"
  run_once: true
  register: web1
"""

RETURN = r"""
host:
  description: Inventory name of the host; null if the hosts must be asked.
  returned: success
  type: str
  sample: kvm1
domain:
  description: The domain as options of a module, either C(uuid) or C(name).
  returned: success
  type: dict
  sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11}
ask:
  description: Inventory names of the hosts to ask; empty if the host is known.
  returned: with O(step=check)
  type: list
  elements: str
  sample: []
options:
  description: The given options, each with its type.
  returned: with O(step=check)
  type: dict
  sample: {timeout_seconds: 600}
arrived:
  description: Whether the domain is active at its destination and is not being moved, so that nothing is left to do.
  returned: with O(step=find)
  type: bool
  sample: false
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: not_found
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import domain_location_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=domain_location_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
