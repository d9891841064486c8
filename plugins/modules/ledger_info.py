#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ledger_info
short_description: Count, list, show and verify the contents of the ledger
version_added: 0.1.0
description:
  - Returns the contents of the ledger, lists or shows them, and verifies them. It reads only the ledger, and asks no host. It does not create a ledger if
    there is none.
  - A ledger that was moved by M(kvmfleet.migration.ledger_copy) can still be read with this module, which then returns its new location.
  - Verification changes nothing. Listing works as in all other tasks, so that a document which cannot be read is set aside, with a warning.
  - To write what a person has found to be true of a record, use O(kvmfleet.migration.host#module:settle).
options:
  list:
    description:
      - What to list. Each kind has its own key in the result.
    type: list
    elements: str
    choices: [migrations, evacuations, hosts, domains, maintenance_runs, balance_runs]
  id:
    description:
      - ID of one record, open or closed, to return in RV(record).
    type: str
  verify:
    description:
      - Read every document and every line of the audit, and follow the audit chains. Problems are listed in RV(problems), and the task fails.
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
  description: Short summary of the ledger, with its problems if it was verified.
  returned: always
  type: str
  sample: >-
    The ledger /root/.local/state/kvmfleet/ledger (7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01): 0 unsettled, 2 done and 41 closed records, 3 hosts, 12 domains.
    Every document can be read, and the audit holds.
ledger:
  description: Folder or address of the ledger.
  returned: success, or when it is not intact
  type: str
  sample: /root/.local/state/kvmfleet/ledger
ledger_id:
  description: ID of the ledger, which it keeps wherever it is copied.
  returned: success, or when it is not intact
  type: str
  sample: 7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
copied_from:
  description: The former location; null if the ledger was created here.
  returned: success, or when it is not intact
  type: str
  sample: /srv/ledger
moved_to:
  description: The new location, or that of a copy in progress; null while the ledger is in use here.
  returned: success, or when it is not intact
  type: str
  sample: etcd://etcd1.example:2379/kvmfleet
archive_of:
  description: The ledger that this is an archive of; null for a ledger.
  returned: success, or when it is not intact
  type: str
  sample: null
archives:
  description:
    - Where M(kvmfleet.migration.ledger_archive) has moved records of this ledger (C(to)), when it did so last (C(at)), who ran it (C(by)), and until which time
      they had been closed (C(until)). The C(id) is that of the archive, and its C(version) rises with each run.
  returned: success, or when it is not intact
  type: list
  elements: dict
  sample:
    - id: 5f0b6a8e-3f0c-4a52-9d0e-6a1b8f4e2c77
      to: /srv/kvmfleet-archive
      until: "2026-05-23T02:00:00.000Z"
      at: "2026-08-21T02:00:00.000Z"
      by: root@control pid 4711
      version: 14
counts:
  description: Number of documents.
  returned: success, or when it is not intact
  type: dict
  contains:
    unsettled:
      description: Records of moves that are in progress, or whose result is not known yet.
      type: int
      sample: 0
    done:
      description: Evacuations that have succeeded and whose source must still be cleaned.
      type: int
      sample: 2
    closed:
      description: Closed records.
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
      description: Number of records that are not closed, by status.
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
  description: The record with that ID.
  returned: with O(id)
  type: dict
  sample: {}
intact:
  description: Whether everything can be read and the audit is valid.
  returned: with O(verify)
  type: bool
  sample: true
problems:
  description: Problems, each with the name of the file or the key and a remedy.
  returned: with O(verify)
  type: list
  elements: str
  sample: []
error_code:
  description: Stable code of the error; V(invalid_state) if the ledger is not intact.
  returned: failure
  type: str
  sample: not_found
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ledger_info_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=ledger_info_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
