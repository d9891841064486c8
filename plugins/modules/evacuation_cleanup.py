#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evacuation_cleanup
short_description: Remove evacuated domains from a returned libvirt host
version_added: 0.1.0
description:
  - For a host that was evacuated and has returned. The module removes the copies of the evacuated domains that are still on it, based only on the records of
    the ledger. A domain is left unchanged unless a record states that it was evacuated from this very host.
  - The host is identified by the file C(/var/lib/kvmfleet/host-id) that it has now. Its name proves nothing, and neither does a record without a host ID.
  - The module asks all other hosts where the domain is now. Its copy on this host is removed only if it is not active, and exactly one other host has the
    domain active (or, for an evacuation that was to define the domain only, exactly one other host has it defined). If the ledger does not expect the domain
    on that host, all hosts must answer.
  - If every host that the domain may be on according to the ledger is fenced there and does not answer, a copy that is not active is removed, too, because the
    newest record took the domain away from here and the ledger has its definition. All disks are kept then. This host can then start the domain again
    (M(kvmfleet.migration.evacuate)).
  - An evacuation from this host that was only reserved (C(accepted)) is closed as C(failed), because no start was ordered yet.
  - An unsettled record of the domain refuses the cleanup, unless it is newer than the evacuation and between other hosts.
  - If a domain is active on this host although it was evacuated, it may run twice. The task then fails with C(unsafe), and changes nothing at all.
  - The domain is undefined; its NVRAM and the state of its TPM stay where they are. A managed-save image is moved into quarantine.
  - A disk is touched only under four conditions. It is a file of this host alone, which is tested with a token from the host that has the domain now; no
    other domain and no backing chain on this host uses it; it is on the file system that M(kvmfleet.migration.protect) recorded; and the domain has a disk of
    that target on its current host. Every other disk is kept, and returned in RV(kept) with the reason. A disk with C(only_copy) may be the only copy of its
    data.
  - If a domain was evacuated from this host several times, the newest evacuation counts; the older ones are completed with the reason C(superseded). An
    evacuation whose domain has returned to this host by a newer record is completed in the same way. Then nothing is removed.
  - Nothing is removed for a record that is older than what hosts remember, for example after an old backup of the ledger was restored. An evacuation from
    this host that the ledger has lost is returned in RV(missing_records), and a person must settle it. What other hosts remember is part of their facts
    (M(kvmfleet.migration.host_facts)); the role P(kvmfleet.migration.recover_host#role) gathers those of the whole fleet.
  - A record is C(completed) only after the work on the host was verified. If a run dies, the next one continues its work.
  - Requires root on the host, which must reach libvirt on the other hosts as it does in a migration.
options:
  storage:
    description:
      - V(quarantine) moves such disks into C(.kvmfleet-quarantine) on their own file system, and keeps them there.
      - V(keep) touches no disk.
      - V(delete) works like V(quarantine), and deletes disks that any run has quarantined on this host O(retention_days) or more ago. Disks that this run
        moves there are deleted by a later one.
    type: str
    choices: [quarantine, keep, delete]
    default: quarantine
  retention_days:
    description:
      - Number of days for which V(delete) keeps disks in quarantine.
      - The days count from the time at which the control node closed the record of the evacuation, by the clock of the control node. The clock of this host
        is not used. Disks without a record are kept. All disks are kept while the clock of the control node is behind the record. RV(kept) names them.
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
  - The file C(/var/lib/kvmfleet/quarantine) on the host, named after the record, lists what was moved and the command that moves it back.
  - A domain in RV(refused) keeps its record, which continues to hold the automatic starts of the host.
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
  description: Domains that are no longer defined on this host, and whose records were completed; or would be, in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the domain.
      type: str
      sample: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
    name:
      description: Name of the domain.
      type: str
      sample: web1
    record:
      description: ID of the evacuation that was completed.
      type: str
      sample: 0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11
    superseded:
      description: Older evacuations of the domain from this host, which were completed together with this one.
      type: list
      elements: str
      sample: []
    where:
      description: The host that has the domain now; null if it may be on hosts that are fenced and do not answer.
      type: str
      sample: kvm2
    undefined:
      description: Whether the domain was defined on this host; false if nothing was there.
      type: bool
      sample: true
    quarantined:
      description: Files that were moved into quarantine. C(quarantine) is the new path, null in check mode; C(target) is null for a managed-save image.
      type: list
      elements: dict
      sample:
        - target: vda
          path: /var/lib/libvirt/images/web1.qcow2
          quarantine: /var/.kvmfleet-quarantine/0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11/vda-web1.qcow2
    restore:
      description: The shell command that moves all of them back, for root on the host. It overwrites and starts nothing. Null in check mode.
      type: str
      sample: virsh -c qemu:///system define /var/lib/kvmfleet/quarantine/0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11/definition.xml
    nvram:
      description: The file with the firmware variables of the domain, which was kept; null if there is none.
      type: str
      sample: null
    tpm:
      description: The folder with the state of the emulated TPM of the domain, which was kept; null if there is none.
      type: str
      sample: null
kept:
  description: Disks that were not touched; with O(storage=delete) also those that could not be deleted, for which some keys are null.
  returned: always
  type: list
  elements: dict
  contains:
    uuid:
      description: UUID of the domain.
      type: str
      sample: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
    name:
      description: Name of the domain.
      type: str
      sample: web1
    record:
      description: ID of the evacuation.
      type: str
      sample: 0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11
    target:
      description: Target of the disk.
      type: str
      sample: vdb
    path:
      description: Path of the disk.
      type: str
      sample: /var/lib/libvirt/images/scratch.qcow2
    reason:
      description: The reason why it was kept.
      type: str
      sample: where the domain is now, it has no disk with that target
    only_copy:
      description: Whether it may be the only copy of its data.
      type: bool
      sample: true
refused:
  description:
    - Domains that could not be cleaned, with C(uuid), C(name), C(record), C(reason). Their records stay C(done).
    - This includes domains whose evacuation from this host is still in progress, and those for which the ledger is older than a host's memory; their records
      are not changed.
  returned: always
  type: list
  elements: dict
  sample: []
superseded:
  description: Domains that have returned to this host by a newer record, so that there was nothing to clean.
  returned: always
  type: list
  elements: dict
  sample: []
missing_records:
  description:
    - Records that the ledger lacks, but that this host remembers, or another host whose facts are known. The form is that of
      RV(kvmfleet.migration.protect#module:missing_records).
    - Evacuations from this host among them are in RV(refused), too. Nothing of their domains is removed. The same is true if a record newer than that of the
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
  description: Stable code of the error.
  returned: failure
  type: str
  sample: unsafe
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import evacuation_cleanup_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=evacuation_cleanup_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
