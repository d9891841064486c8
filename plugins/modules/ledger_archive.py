#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ledger_archive
short_description: Move old records and audit lines out of the ledger
version_added: 0.1.0
description:
  - Moves records of live migrations that were closed a while ago to an archive, so that the ledger does not grow without end. From a ledger in etcd, also
    audit lines from before that time are moved; in a folder, the audit is one file and stays there. No host is asked.
  - The archive is a folder on the control node. M(kvmfleet.migration.ledger_info), M(kvmfleet.migration.report) and the lookup
    P(kvmfleet.migration.ledger#lookup) read it if O(ledger) names it, and verify it. It is not a ledger; a task that would write to it is refused.
  - Some records stay, whatever their age. These are the newest one of each domain, and the newest one by which it arrived at a host; those of evacuations, of
    live migrations that an evacuation has superseded, and of cold migrations; those of a domain that has a record which is not closed; and those from after
    the time at which a host was fenced or set to maintenance, as long as it is in that state.
  - What is moved is written to the archive, read back and compared before it is removed from the ledger. If the task is interrupted, run it again. Moves,
    drains and evacuations can run meanwhile. If there is nothing to move, nothing is changed.
  - To free space in etcd, its database must also be compacted, and defragmented if it was nearly full.
options:
  to:
    description:
      - The folder of the archive, on the control node. It must be missing, empty, or an archive of the same ledger, which is then continued.
      - A folder to which records of the ledger were archived before is refused if it is missing or empty, as when its disk is not mounted, and if it is older
        than at the end of the last run, as after it was restored from a backup.
      - Use a disk that is kept and backed up. The file system of an execution environment is gone after its job.
    type: str
    required: true
  older_than_days:
    description:
      - Move what was closed more days ago than this, 30 to 36500.
    type: int
    default: 90
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
  - module: kvmfleet.migration.ledger_copy
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Keep the records of half a year in the ledger
  kvmfleet.migration.ledger_archive:
    to: /srv/kvmfleet-archive
    older_than_days: 180
  delegate_to: localhost
  run_once: true

- name: Find a move of last year
  kvmfleet.migration.ledger_info:
    ledger: /srv/kvmfleet-archive
    list: [migrations]
    domain: web1
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
msg:
  description: Short summary.
  returned: always
  type: str
  sample: >-
    41200 records and 246800 audit lines from before 2026-05-23T02:00:00.000Z (276.4 MiB) were moved from the ledger etcd://etcd1.example:2379/kvmfleet to the
    archive /srv/kvmfleet-archive. 6000 older records stay.
ledger:
  description: Location of the ledger.
  returned: success
  type: str
  sample: etcd://etcd1.example:2379/kvmfleet
ledger_id:
  description: ID of the ledger.
  returned: success
  type: str
  sample: 7b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
to:
  description: The folder of the archive.
  returned: success
  type: str
  sample: /srv/kvmfleet-archive
until:
  description: What is moved was closed or written before this time.
  returned: success
  type: str
  sample: "2026-05-23T02:00:00.000Z"
records:
  description: Number of records that were moved.
  returned: success
  type: int
  sample: 41200
lines:
  description: Number of audit lines that were moved.
  returned: success
  type: int
  sample: 246800
bytes:
  description: Size of these records and lines.
  returned: success
  type: int
  sample: 289826304
kept:
  description: Number of records that are old enough and stay, by the reason why they do.
  returned: success
  type: dict
  sample: {newest_of_domain: 5980, leftovers: 20, domain_in_progress: 0, host_out_of_service: 0}
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: invalid_argument
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import ledger_archive_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Refuse to work alone: the action plugin of the same name does everything on the control node."""
    module = AnsibleModule(argument_spec=ledger_archive_spec(), supports_check_mode=True)
    run_module(module, lambda dummy: run_phase({}, {"_work": None, "uri": ""}))


if __name__ == "__main__":
    main()
