#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: migration_force_complete
short_description: Make a running migration finish now
version_added: 0.1.0
description:
  - Makes a running migration finish, with the guest paused as late and as briefly as possible, and waits for its end.
  - If the migration may use post-copy, the guest is switched over. Otherwise the bandwidth cap is lifted, then a downtime as long as the rest needs is
    allowed. Only if neither is sufficient, the guest is suspended until it runs on the destination.
  - From then on, the timeout of the migration no longer applies. The limits of a stall and of a forced pause do.
  - It can also only change the bandwidth of a running migration.
options:
  bandwidth_mib:
    description: New bandwidth cap of the memory transfer in MiB/s. V(0) means no cap. By default, forcing lifts the cap.
    type: int
  complete:
    description: Whether the migration is made to finish. With V(false), only O(bandwidth_mib) is changed.
    type: bool
    default: true
  wait_seconds:
    description: How long to wait for the end.
    type: int
    default: 60
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
    details: After the first run, there is nothing left to force.
notes:
  - Requires root on the source host.
seealso:
  - module: kvmfleet.migration.migration_abort
  - module: kvmfleet.migration.migration_info
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Bring a busy guest over now
  kvmfleet.migration.migration_force_complete:
    name: db1

- name: Leave more of the link to others
  kvmfleet.migration.migration_force_complete:
    name: db1
    bandwidth_mib: 100
    complete: false
"""

RETURN = r"""
migrations:
  description: The record of the migration.
  returned: always but when the domain is unknown
  type: list
  elements: dict
  sample: [{status: completed, result: {mode: paused, rung: downtime, predicted_downtime_ms: 120, downtime_ms: 96}}]
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: not_found
"""


from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ONE_DOMAIN_RULE, domain_spec, libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import Result, new_module, run_module
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import BANDWIDTH, FORCE_COMPLETE
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.intervene import intervention_of


def migration_force_complete(module: AnsibleModule) -> Result:
    """Force the migration, or change its bandwidth."""
    complete, bandwidth = module.params["complete"], module.params["bandwidth_mib"]
    if not complete and bandwidth is None:
        raise InvalidArgument("complete is false and no bandwidth_mib is given: there is nothing to do.")
    intervention = intervention_of(module.params, FORCE_COMPLETE if complete else BANDWIDTH)
    found = intervention.find_migration() if module.check_mode else intervention.carry_out()
    return intervention.build_result(found)


def main() -> None:
    """Force one migration."""
    module = new_module(
        AnsibleModule,
        argument_spec={
            **libvirt_spec(),
            **domain_spec(),
            "bandwidth_mib": {"type": "int"},
            "complete": {"type": "bool", "default": True},
            "wait_seconds": {"type": "int", "default": 60},
        },
        mutually_exclusive=ONE_DOMAIN_RULE,
        required_one_of=ONE_DOMAIN_RULE,
        supports_check_mode=True,
    )
    run_module(module, migration_force_complete)


if __name__ == "__main__":
    main()
