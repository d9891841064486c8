#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: migration_force_complete
short_description: Make a running migration end now
version_added: 0.1.0
description:
  - Makes a running migration end, with the guest stopped as late and as briefly as can be, and waits for its end.
  - Where the migration may use post-copy, the guest is switched over. Else the bandwidth cap is lifted, then a pause as long as the rest needs is allowed,
    and only when neither has helped the guest is suspended until it runs on the destination.
  - It may also just change the bandwidth of a migration that runs.
options:
  bandwidth_mib:
    description: Cap the memory stream at so many MiB/s from now on. V(0) is no cap. By default forcing lifts the cap.
    type: int
  complete:
    description: Whether the migration is made to end. With V(false) only O(bandwidth_mib) is changed.
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
    details: There is nothing to force any more after the first run.
notes:
  - Needs root on the source host.
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
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: not_found
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ONE_DOMAIN, domain_spec, libvirt_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import new_module, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.intents import BANDWIDTH, FORCE_COMPLETE
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.intervene import intervention_of


def migration_force_complete(module: AnsibleModule) -> t.Dict[str, t.Any]:
    """Force the migration, or change its bandwidth."""
    complete, bandwidth = module.params["complete"], module.params["bandwidth_mib"]
    if not complete and bandwidth is None:
        raise InvalidArgument("complete is false and no bandwidth_mib is given: there is nothing to do.")
    intervention = intervention_of(module.params, FORCE_COMPLETE if complete else BANDWIDTH)
    record = intervention.current() if module.check_mode else intervention.carry_out()
    return intervention.result(record)


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
        mutually_exclusive=ONE_DOMAIN,
        required_one_of=ONE_DOMAIN,
        supports_check_mode=True,
    )
    run(module, migration_force_complete)


if __name__ == "__main__":
    main()
