#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ledger_copy
short_description: Move the ledger to another folder, into etcd, or back
version_added: 0.1.0
description:
  - Copies the whole contents of a ledger to another location, reads them back, compares them, and makes the copy the ledger. The copy keeps its ID, so that
    hosts which remember it continue to work. No host is asked.
  - From then on, the old location is not written any more. A process that tries to write to it, including one that already had it open, is told the new
    address. Set this address as O(ledger) or C(kvmfleet_ledger) wherever the old one is used. M(kvmfleet.migration.ledger_info) can still read the old
    location.
  - No move may be in progress. If there are unsettled records, they are listed, and nothing is copied. Evacuations that are C(done) are copied.
  - The existing audit chains are kept line by line and sealed; the new chains continue from that seal, and everything can be verified at the new location.
  - If the task is interrupted before the old ledger was closed, nothing has changed. Later, the old ledger stays closed, and the same task continues the copy
    when it is run again. An error during the copy opens the old ledger again.
options:
  to:
    description:
      - The new location of the ledger, in the form of O(ledger). It must be empty, or contain a copy that this task has started.
      - The inventory variable C(kvmfleet_etcd) configures the connection to etcd, on both sides.
    type: str
    required: true
  force:
    description:
      - Copy an audit that fails verification, unchanged. Its problems are copied as well.
    type: bool
    default: false
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._ledger
attributes:
  diff_mode:
    support: none
seealso:
  - module: kvmfleet.migration.ledger_info
  - module: kvmfleet.migration.host
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Move the ledger of this control node into etcd
  kvmfleet.migration.ledger_copy:
    ledger: /srv/ledger
    to: etcd://etcd1.example:2379,etcd2.example:2379,etcd3.example:2379/kvmfleet
  delegate_to: localhost
  run_once: true

- name: Move it back into a new folder
  kvmfleet.migration.ledger_copy:
    ledger: etcd://etcd1.example:2379,etcd2.example:2379,etcd3.example:2379/kvmfleet
    to: /srv/ledger-2027
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
msg:
  description: Short summary of the copy.
  returned: always
  type: str
  sample: >-
    The ledger /srv/ledger (7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01) was moved to etcd://etcd1.example:2379/kvmfleet: 0 unsettled, 2 done and 41 closed records,
    3 hosts, 12 domains, all read back and compared. Set 'ledger' or 'kvmfleet_ledger' to etcd://etcd1.example:2379/kvmfleet wherever it is named.
ledger_id:
  description: ID of the ledger.
  returned: success
  type: str
  sample: 7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
from:
  description: The old location.
  returned: success
  type: str
  sample: /srv/ledger
to:
  description: The new location.
  returned: success
  type: str
  sample: etcd://etcd1.example:2379/kvmfleet
counts:
  description: Number of copied documents, in the form of RV(kvmfleet.migration.ledger_info#module:counts).
  returned: success
  type: dict
  sample: {unsettled: 0, done: 2, closed: 41, hosts: 3, domains: 12, set_aside: 0, open_by_status: {done: 2}}
problems:
  description: Problems of the audit, which was copied unchanged; or the reasons why nothing was copied.
  returned: success, or when the ledger is damaged
  type: list
  elements: str
  sample: []
records:
  description: The unsettled records because of which nothing was copied.
  returned: when there are any
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ledger_copy_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=ledger_copy_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
