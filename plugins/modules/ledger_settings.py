#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ledger_settings
short_description: Read or change what the ledger allows all tasks to do
version_added: 0.1.0
description:
  - Reads or changes the settings of a ledger. They apply to every task that uses the ledger, on all control nodes, whatever its variables are.
  - No host is asked.
  - Without O(override_policy_allowed), nothing is changed, and the settings are returned.
options:
  override_policy_allowed:
    description:
      - Whether tasks may set O(kvmfleet.migration.live_migrate#module:override_policy), and so use what the policy of a domain forbids.
      - With V(false), such a task fails with C(forbidden) and moves nothing. The inventory variable C(kvmfleet_override_policy_allowed) has the same effect;
        the first move of a run in which it is V(false) also writes V(false) here.
      - With V(true), the variable alone decides. While it is V(false), the next move writes V(false) here again.
      - Requires O(reason). The default is to change nothing; a new ledger allows it.
    type: bool
  reason:
    description: The reason of the change, for people who read it later. It is stored with the person and the time. Needed with O(override_policy_allowed).
    type: str
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._ledger
notes:
  - Whoever may write the ledger may change its settings. Give operators access to it only by job templates, or by an account of its own.
seealso:
  - module: kvmfleet.migration.live_migrate
  - module: kvmfleet.migration.domain_policy
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Let no task overrule the policies of domains
  kvmfleet.migration.ledger_settings:
    override_policy_allowed: false
    reason: Owners of databases decide alone
  delegate_to: localhost
  run_once: true

- name: Allow it again
  kvmfleet.migration.ledger_settings:
    override_policy_allowed: true
    reason: Agreed for the move to the new racks
  delegate_to: localhost
  run_once: true

- name: Read the settings
  kvmfleet.migration.ledger_settings:
  delegate_to: localhost
  run_once: true
  register: fleet
"""

RETURN = r"""
settings:
  description: The settings that are in force; in check mode those that would be.
  returned: success
  type: dict
  contains:
    override_policy_allowed:
      description: Whether tasks may use C(override_policy). Also V(false) if the settings were damaged and set aside.
      type: bool
      sample: false
    by:
      description: Who decided this; null if nobody has.
      type: str
      sample: ann@control pid 4711
    at:
      description: When this was decided; null if it was not.
      type: str
      sample: '2026-11-23T10:00:00.000Z'
    reason:
      description: The reason; null if there is none.
      type: str
      sample: Owners of databases decide alone
    decisions:
      description: All decisions so far, the oldest first, each with C(override_policy_allowed), C(by), C(at) and C(reason).
      type: list
      elements: dict
      sample: []
ledger:
  description: Location of the ledger.
  returned: success
  type: str
  sample: /srv/ledger
ledger_id:
  description: ID of the ledger.
  returned: success
  type: str
  sample: 7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: not_found
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ledger_settings_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=ledger_settings_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
