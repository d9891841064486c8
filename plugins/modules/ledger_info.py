#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ledger_info
short_description: Count, list, show and verify what the ledger holds
version_added: 0.1.0
description:
  - Says what the ledger holds, lists or shows it, and verifies it. It asks the ledger alone, and no host. It makes no ledger where there is none.
  - A ledger that was moved by M(kvmfleet.migration.ledger_copy) can still be read with this module, which then says where it has gone.
  - Verifying changes nothing. Listing reads as all tasks do, so that a document which cannot be read is set aside, with a warning.
  - What a person has found to be true of a record is written with O(kvmfleet.migration.host#module:settle).
options:
  list:
    description:
      - What to list, each under its own key of the result.
    type: list
    elements: str
    choices: [migrations, evacuations, hosts, domains]
  id:
    description:
      - The ID of one record to return in RV(record), open or closed.
    type: str
  verify:
    description:
      - Read every document and every line of the audit, and follow the audit's chains. What is wrong is named in RV(problems), and the task fails.
    type: bool
    default: false
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._ledger
  - kvmfleet.migration._ledger_query
attributes:
  diff_mode:
    support: none
seealso:
  - module: kvmfleet.migration.ledger_copy
  - module: kvmfleet.migration.host
  - plugin: kvmfleet.migration.ledger
    plugin_type: lookup
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Verify the ledger
  kvmfleet.migration.ledger_info:
    verify: true
  delegate_to: localhost

- name: List what a person may have to settle
  kvmfleet.migration.ledger_info:
    list: [migrations, evacuations]
    status: [error]
  delegate_to: localhost
  register: found

- name: Show one record
  kvmfleet.migration.ledger_info:
    id: 0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11
  delegate_to: localhost
"""

RETURN = r"""
msg:
  description: The ledger in a few words, and what is wrong with it where it was verified.
  returned: always
  type: str
  sample: >-
    The ledger /root/.local/state/kvmfleet/ledger (7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01): 0 unsettled, 2 done and 41 closed records, 3 hosts, 12 domains.
    Every document can be read, and the audit holds.
ledger:
  description: Its folder or address.
  returned: success, or when it is not intact
  type: str
  sample: /root/.local/state/kvmfleet/ledger
ledger_id:
  description: Its ID, which it keeps wherever it is copied to.
  returned: success, or when it is not intact
  type: str
  sample: 7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
copied_from:
  description: Where it was before; null where it was made here.
  returned: success, or when it is not intact
  type: str
  sample: /srv/ledger
moved_to:
  description: Where it has gone, or is going; null while it is in use here.
  returned: success, or when it is not intact
  type: str
  sample: etcd://etcd1.example:2379/kvmfleet
counts:
  description: How much it holds.
  returned: success, or when it is not intact
  type: dict
  contains:
    unsettled:
      description: Records of moves that are under way, or of which nobody knows yet how they ended.
      type: int
      sample: 0
    done:
      description: Evacuations that have succeeded and whose source is still to be cleaned.
      type: int
      sample: 2
    closed:
      description: Records that have ended.
      type: int
      sample: 41
    hosts:
      description: Hosts.
      type: int
      sample: 3
    domains:
      description: Domains.
      type: int
      sample: 12
    set_aside:
      description: Documents that were damaged and set aside.
      type: int
      sample: 0
    open_by_status:
      description: How many records that are not closed have which status.
      type: dict
      sample: {done: 2}
migrations:
  description: The records of moves, oldest first.
  returned: when listed
  type: list
  elements: raw
  sample: []
evacuations:
  description: The records of evacuations, oldest first.
  returned: when listed
  type: list
  elements: raw
  sample: []
hosts:
  description: The hosts, by name.
  returned: when listed
  type: list
  elements: raw
  sample: []
domains:
  description: The domains, by name.
  returned: when listed
  type: list
  elements: raw
  sample: []
record:
  description: The record of that ID.
  returned: with O(id)
  type: dict
  sample: {}
intact:
  description: Whether everything can be read and the audit holds.
  returned: with O(verify)
  type: bool
  sample: true
problems:
  description: What is wrong, each naming the file or the key, and what to do.
  returned: with O(verify)
  type: list
  elements: str
  sample: []
error_code:
  description: A stable word for what went wrong; V(invalid_state) where the ledger is not intact.
  returned: failure
  type: str
  sample: not_found
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._ledger_spec import ledger_info_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=ledger_info_spec(), supports_check_mode=True)
    run(module, lambda dummy: in_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
