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
  - A migration that was not started by this collection is not switched to post-copy if the policy in the domain's XML forbids it, requests auto-converge,
    names a profile, or cannot be read. Profiles are defined in the inventory, which the host cannot read. A warning states the reason.
  - It can also only change the bandwidth of a running migration.
  - The history of the record names the person at the control node, and AWX's user and job where the variables C(awx_user_name) and C(awx_job_id) say so; so
    do the audit of the ledger and the notice of the end.
  - The record is closed by the task that follows the migration, and by this task if no other does so within five seconds.
  - A migration of another tool is forced too. A record of it is opened before that, and closed with the outcome. A change of its bandwidth alone leaves none.
  - A process on the source host forces it until it has ended, also when the task or its SSH session has ended before. A guest that it has suspended is not left
    suspended. If the pause lasts longer than three times the predicted one, and than the C(force_pause_max_seconds) of the domain's policy, the process aborts
    the migration, and the guest runs on the source.
  - A ledger that cannot be used does not prevent the task, unless only O(id) is given. A warning states that nothing is recorded.
options:
  name:
    description:
      - Name of the domain.
      - O(name) or O(uuid), O(id), or one of the first two together with O(id) is needed.
    type: str
    aliases: [domain, guest]
  uuid:
    description: UUID of the domain. Mutually exclusive with O(name).
    type: str
  id:
    description:
      - ID of the record of the migration, as M(kvmfleet.migration.migration_info) and the lookup P(kvmfleet.migration.ledger#lookup) list it.
      - The task forces exactly that migration.
      - If the domain is being moved for another record by now, or by another tool, the task fails with C(conflict) and names that record. A record that is
        closed is C(invalid_state), one that the ledger does not have is C(not_found), and one of another source host is C(invalid_argument). Nothing is
        changed then.
      - Without O(name) and O(uuid), the ledger tells the domain.
    type: str
  bandwidth_mib:
    description: New bandwidth cap of the memory transfer in MiB/s. V(0) means no cap. By default, forcing lifts the cap.
    type: int
    aliases: [bandwidth]
  complete:
    description: Whether the migration is made to finish. With V(false), only O(bandwidth_mib) is changed.
    type: bool
    default: true
  wait_seconds:
    description:
      - How long to wait for the end. The migration is forced also after that.
      - If the migration has not ended by then, the task fails with C(timeout). The message says whether the guest is paused.
    type: int
    aliases: [wait_timeout]
    default: 60
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import migration_force_complete_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.intervene import PHASES


def main() -> None:
    """Run one phase of forcing; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=migration_force_complete_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
