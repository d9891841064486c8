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
  - The record of the migration, its history, the audit of the ledger and the notices name the person at the control node, and AWX's user and job where the
    variables C(awx_user_name) and C(awx_job_id) say so.
  - The record is closed by the task that follows the migration, and by this task if no other does so within five seconds.
  - A migration of another tool is cancelled too. A record of it is opened before that, and closed with the outcome.
  - If nothing is in progress any more, but the ledger has an unsettled record of a migration of the domain from this host, as after the loss of the control
    node, this task ends the record by what both hosts answer. It never starts a migration.
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
      - The task aborts exactly that migration.
      - If the domain is being moved for another record by now, or by another tool, the task fails with C(conflict) and names that record. A record that is
        closed is C(invalid_state), one that the ledger does not have is C(not_found), and one of another source host is C(invalid_argument). Nothing is
        changed then.
      - Without O(name) and O(uuid), the ledger tells the domain.
    type: str
  wait_seconds:
    description:
      - How long to wait until the guest is back to normal, or until a record that is left over is settled.
      - After this time the task fails with C(timeout), and the request stands. With V(0), it only waits up to 3 seconds until the watcher has the request.
    type: int
    aliases: [wait_timeout]
    default: 30
  missing_ok:
    description: Whether the task succeeds if there is nothing to cancel.
    type: bool
    default: false
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

- name: Abort the move that was listed, and no newer one
  kvmfleet.migration.migration_abort:
    id: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10

- name: Make sure that nothing is on its way
  kvmfleet.migration.migration_abort:
    name: db1
    missing_ok: true
"""

RETURN = r"""
migrations:
  description: The record of the migration that was cancelled or settled; empty if there was none and O(missing_ok=true).
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import migration_abort_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.intervene import PHASES


def main() -> None:
    """Run one phase of the abort; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=migration_abort_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
