#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: recover_verify
short_description: State the result of a recovery
version_added: 0.1.0
description:
  - Puts together what a recovery did on each host, from the results of its tasks, and shows it. It asks no host. The task does not fail because of its
    findings.
  - It stores in the ledger which domains are still displaced from hosts to which domains were moved back.
  - P(kvmfleet.migration.recover_host#role) uses this module, with one task for all hosts of the play.
options:
  hosts:
    description: Inventory names of the hosts that were to be recovered. A host whose results are not given has stopped answering.
    type: list
    elements: str
    required: true
  publish_as:
    description: Name of a custom statistic of the run that gets RV(result).
    type: str
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
  - The role gives the results of its tasks to this module internally. Playbooks use the role.
seealso:
  - module: kvmfleet.migration.recover_plan
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Say of which hosts no result is known
  kvmfleet.migration.recover_verify:
    hosts: [kvm1]
  register: verified
"""

RETURN = r"""
result:
  description: The result of the recovery, by host. P(kvmfleet.migration.recover_host#role) returns it as C(recover_host_result).
  returned: success
  type: dict
  sample: {kvm1: {cleaned: [], started: [], stayed_off: [], released: true, enabled: true, brought_home: [], skipped: [], failed: [], notes: [], error: ''}}
problems:
  description: The reasons why the recovery has failed, by host. Hosts on which nothing is left to do are not included.
  returned: success
  type: dict
  sample: {}
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: invalid_argument
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import recover_verify_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=recover_verify_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
