#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evacuation_cleanup
short_description: Remove from a returned libvirt host what was evacuated from it
version_added: 0.1.0
description:
  - For a host that was evacuated and is back. Removes the copies of the evacuated domains that are still on it, from the records of the ledger alone. A
    domain of which no record says that it was evacuated from this very host is left alone, wherever else it may be.
  - The host is known by the file C(/var/lib/kvmfleet/host-id) that it has now. Its name proves nothing, and neither does a record without a host ID.
  - Asks all other hosts where the domain is now. Its copy here is removed only if it is not active, and exactly one other host has the domain active (of an
    evacuation that was to define the domain only, exactly one other host has it defined). Where the ledger does not expect it there, all hosts have to answer.
  - A domain that is active on this host although it was evacuated is a double-run alarm. The task fails with C(unsafe), and nothing at all is touched.
  - The domain is undefined; its NVRAM and the state of its TPM stay where they are. A managed-save image is put into quarantine.
  - A disk is touched only if it is a file of this host alone, which is tested with a token from the host that has the domain now; if no other domain and no
    backing chain here uses it; if it is on the file system that M(kvmfleet.migration.protect) recorded; and if the domain has a disk of that target
    where it is now. Every other disk is kept, and returned in RV(kept) with the reason. One with C(only_copy) may be the only copy of its data.
  - Of several evacuations of one domain from this host the newest one counts; the older ones are completed with the reason C(superseded). So is one whose
    domain has come back to this host by a newer record. Then nothing is removed.
  - Nothing is removed by a record that is older than what hosts remember, as after the restore of an old backup of the ledger. An evacuation from here that
    the ledger has lost is returned in RV(missing_records), and a person settles it. Other hosts are heard of that by their facts
    (M(kvmfleet.migration.host_facts)); the role P(kvmfleet.migration.recover_host#role) gathers those of the whole fleet.
  - A record is C(completed) only after the work on the host was verified. A run that died on its way is continued by the next one.
  - Needs root on the host, which has to reach the libvirt of the others as it does in a migration.
options:
  storage:
    description:
      - V(quarantine) moves such disks into C(.kvmfleet-quarantine) on their own file system. They stay there.
      - V(keep) touches no disk.
      - V(delete) does as V(quarantine), and deletes what was quarantined on this host O(retention_days) or more ago, by whatever run. What this run puts
        there is deleted by a later one.
    type: str
    choices: [quarantine, keep, delete]
    default: quarantine
  retention_days:
    description:
      - For how many days V(delete) leaves in quarantine what was put there.
      - The days count from the time at which the control node closed the record of the evacuation, by the clock of the control node. The clock of this host is
        not asked. What no record tells of is kept, and so is everything while the clock of the control node is behind the record; RV(kept) names it.
    type: int
    default: 14
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
notes:
  - What was put aside, and the command that puts it back, is also in C(/var/lib/kvmfleet/quarantine) on the host, in a file named after the record.
  - A domain in RV(refused) keeps its record, and with it the hold on the host's automatic starts.
seealso:
  - module: kvmfleet.migration.protect
  - module: kvmfleet.migration.host
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: See what would be removed from the returned host
  kvmfleet.migration.evacuation_cleanup:
  check_mode: true

- name: Remove what was evacuated from it, and keep its disks in quarantine
  kvmfleet.migration.evacuation_cleanup:
  register: cleanup

- name: Name the disks that may be the only copy of their data
  ansible.builtin.debug:
    msg: "{{ cleanup.kept | selectattr('only_copy') }}"

- name: Make room of what was put aside a month ago or earlier
  kvmfleet.migration.evacuation_cleanup:
    storage: delete
    retention_days: 30
"""

RETURN = r"""
cleaned:
  description: Domains of which nothing is defined on this host any more, and whose records were completed; or would be, in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: The domain.
      type: str
      sample: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
    name:
      description: Its name.
      type: str
      sample: web1
    record:
      description: The evacuation that was completed.
      type: str
      sample: 0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11
    superseded:
      description: Older evacuations of the domain from this host, which were completed with it.
      type: list
      elements: str
      sample: []
    where:
      description: The host that has the domain now.
      type: str
      sample: kvm2
    undefined:
      description: Whether it was defined here; false where nothing was there.
      type: bool
      sample: true
    quarantined:
      description: Files that were put aside; C(quarantine) is where, null in check mode; C(target) null for a managed-save image.
      type: list
      elements: dict
      sample:
        - target: vda
          path: /var/lib/libvirt/images/web1.qcow2
          quarantine: /var/.kvmfleet-quarantine/0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11/vda-web1.qcow2
    restore:
      description: The shell command that puts all of it back, for root on the host. It overwrites and starts nothing. Null in check mode.
      type: str
      sample: virsh -c qemu:///system define /var/lib/kvmfleet/quarantine/0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11/definition.xml
    nvram:
      description: The file with its firmware variables, which was kept; null where it has none.
      type: str
      sample: null
    tpm:
      description: The folder with the state of its emulated TPM, which was kept; null where it has none.
      type: str
      sample: null
kept:
  description: Disks that were not touched; and with O(storage=delete) what could not be deleted, of which some keys are null.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: The domain.
      type: str
      sample: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
    name:
      description: Its name.
      type: str
      sample: web1
    record:
      description: The evacuation.
      type: str
      sample: 0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11
    target:
      description: The disk's target.
      type: str
      sample: vdb
    path:
      description: Where it is.
      type: str
      sample: /var/lib/libvirt/images/scratch.qcow2
    reason:
      description: Why it was kept.
      type: str
      sample: the domain has no disk of that target where it is now
    only_copy:
      description: Whether it may be the only copy of its data.
      type: bool
      sample: true
refused:
  description:
    - Domains that could not be cleaned, with C(uuid), C(name), C(record), C(reason). Their records stay C(done).
    - Those whose evacuation from here is still on its way, too, and those of which the ledger was set back; their records stay as they are.
  returned: always
  type: list
  elements: dict
  sample: []
superseded:
  description: Domains that have come back to this host by a newer record, so that there was nothing to clean.
  returned: always
  type: list
  elements: dict
  sample: []
missing_records:
  description:
    - What this host, and others that told their facts, remember and the ledger does not, in the form of
      RV(kvmfleet.migration.protect#module:missing_records).
    - Evacuations from here among it are in RV(refused), too. Of their domains nothing is removed, and nothing where a newer record than that of the
      evacuation was lost.
  returned: always
  type: list
  elements: dict
  sample: []
deleted:
  description: What was deleted from the quarantine; C(record), C(uuid), C(name), C(paths).
  returned: always
  type: list
  elements: dict
  sample: []
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: unsafe
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup_phases import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation_cleanup_spec import evacuation_cleanup_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=evacuation_cleanup_spec(), supports_check_mode=True)
    run(module, lambda module: in_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
