#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: migration_abort
short_description: Cancel a migration
version_added: 0.1.0
description:
  - Cancels a queued, preparing or running migration of a domain, from any session, and waits until the guest is back to normal on its source host.
  - A migration that has switched to post-copy cannot be cancelled. The guest then runs on its destination.
options:
  wait_seconds:
    description: How long to wait until the guest is back to normal.
    type: int
    default: 30
  missing_ok:
    description: Whether the task succeeds if there is nothing to cancel.
    type: bool
    default: false
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._domain
  - kvmfleet.migration._libvirt
attributes:
  diff_mode:
    support: none
  idempotent:
    support: none
    details: With O(missing_ok=true) a second run reports no change.
notes:
  - Requires root on the source host.
seealso:
  - module: kvmfleet.migration.migration_force_complete
  - module: kvmfleet.migration.migration_info
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Leave a guest where it is after all
  kvmfleet.migration.migration_abort:
    name: db1

- name: Make sure that nothing is on its way
  kvmfleet.migration.migration_abort:
    name: db1
    missing_ok: true
"""

RETURN = r"""
migrations:
  description: The record of the migration that was cancelled; empty if there was none and O(missing_ok=true).
  returned: always but when the domain is unknown
  type: list
  elements: dict
  sample: [{status: cancelled, reason: operator}]
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: not_supported
"""


from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ONE_DOMAIN_RULE, domain_spec, libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import Result, new_module, run_module
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import ABORT
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.intervene import intervention_of


def migration_abort(module: AnsibleModule) -> Result:
    """Cancel the migration, or report that there is none."""
    intervention = intervention_of(module.params, ABORT)
    if module.params["missing_ok"] and not intervention.is_migrating():
        return {"changed": False, "migrations": []}
    found = intervention.find_migration() if module.check_mode else intervention.carry_out()
    return intervention.build_result(found)


def main() -> None:
    """Cancel one migration."""
    module = new_module(
        AnsibleModule,
        argument_spec={
            **libvirt_spec(),
            **domain_spec(),
            "wait_seconds": {"type": "int", "default": 30},
            "missing_ok": {"type": "bool", "default": False},
        },
        mutually_exclusive=ONE_DOMAIN_RULE,
        required_one_of=ONE_DOMAIN_RULE,
        supports_check_mode=True,
    )
    run_module(module, migration_abort)


if __name__ == "__main__":
    main()
