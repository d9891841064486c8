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
  - Copies everything that a ledger holds to another place, reads it back and compares it, and makes that the ledger. It keeps its ID, so that hosts which
    remember it go on working. No host is asked.
  - From then on the old place is not written any more. Whoever tries, processes included that had it open before, is told the new address, to be set as
    O(ledger) or C(kvmfleet_ledger) wherever the old one is named. M(kvmfleet.migration.ledger_info) can still read the old place.
  - Nothing may be under way meanwhile. Records that are not settled are named, and nothing is moved. Evacuations that are C(done) go along.
  - The audit's chains so far are kept line by line and sealed; the new chains go on from that seal, and everything verifies at the new place.
  - Where this is broken off before the old ledger was closed, nothing has changed. Later the old one stays closed, and the same task again goes on. An error
    on the way opens the old one again.
options:
  to:
    description:
      - Where the ledger is to go, in the form of O(ledger). It has to be empty, or to hold what this task has begun.
      - Etcd is spoken to as the inventory variable C(kvmfleet_etcd) says, on both sides.
    type: str
    required: true
  force:
    description:
      - Copy an audit that does not verify, as it is. Its problems go along.
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
  description: What was done, in a few words.
  returned: always
  type: str
  sample: >-
    The ledger /srv/ledger (7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01) was moved to etcd://etcd1.example:2379/kvmfleet: 0 unsettled, 2 done and 41 closed records,
    3 hosts, 12 domains, all read back and compared. Set 'ledger' or 'kvmfleet_ledger' to etcd://etcd1.example:2379/kvmfleet wherever it is named.
ledger_id:
  description: The ledger's ID.
  returned: success
  type: str
  sample: 7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
from:
  description: Where it was.
  returned: success
  type: str
  sample: /srv/ledger
to:
  description: Where it is now.
  returned: success
  type: str
  sample: etcd://etcd1.example:2379/kvmfleet
counts:
  description: How much was copied, in the form of RV(kvmfleet.migration.ledger_info#module:counts).
  returned: success
  type: dict
  sample: {unsettled: 0, done: 2, closed: 41, hosts: 3, domains: 12, set_aside: 0, open_by_status: {done: 2}}
problems:
  description: What is wrong with the audit, which was copied as it is; or why nothing was copied.
  returned: success, or when the ledger is damaged
  type: list
  elements: str
  sample: []
records:
  description: The records that are not settled, for which nothing was copied.
  returned: when there are any
  type: list
  elements: dict
  sample: []
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._ledger_spec import ledger_copy_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=ledger_copy_spec(), supports_check_mode=True)
    run(module, lambda dummy: in_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
