#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host
short_description: Set whether a libvirt host may accept domains
version_added: 0.1.0
description:
  - Reads or writes the entry of a host in the ledger. A host in V(maintenance) or V(fenced) is never a destination.
  - The first task that writes creates the identity of the host, the file C(/var/lib/kvmfleet/host-id), which requires root.
  - Without O(state) and without a decision, nothing is changed, and the entry is returned.
  - O(adopt_identity), O(source_discarded), O(domains_lost), O(revoke_token) and O(settle) record decisions that only a person can make. Each requires a
    O(reason), which is stored with the person and the time; for a record, this is in its history and in the audit chain of the ledger. Only one of them, or
    O(state), can be set.
options:
  state:
    description:
      - V(enabled) lets the host accept domains again. If evacuations from it are open, a warning names their domains, of which it may still have old copies.
        The role P(kvmfleet.migration.recover_host#role) cleans them up.
      - V(maintenance) is the state of a host that is being drained or worked on.
      - V(fenced) is the state of a host that was cut off or switched off.
      - If the entry of the host was damaged, the task fails with C(conflict) unless O(reason) is given too, and the task runs on the host itself; then it
        writes a new entry, which counts as one of a host that may hold a clean-shutdown token.
    type: str
    choices: [enabled, maintenance, fenced]
  reason:
    description:
      - The reason, for people who read the entry later. It is stored with the person who wrote it and the time.
      - When not given, the reason is kept if the state does not change, and is empty otherwise.
    type: str
  name:
    description:
      - Inventory name of the host. The default is the host on which the task runs.
      - With another name, the entry of that host is looked up in the ledger and the host is not asked, so this works for a host that does not answer. The
        host must already have an entry.
    type: str
  adopt_identity:
    description:
      - Confirms that this host is the one that the ledger knows, although its name and libvirt's UUID have both changed, another entry has its name, its
        entry has the name of another host of the inventory, its identity file is lost, or it was given up with O(source_discarded). The entry takes over the
        current values of the host, and lists them in C(adopted). A lost file is written again.
      - A host that has an identity of its own keeps it; if the ledger has another identity for it, the task still fails with C(conflict).
      - Run this on the host itself.
    type: bool
    default: false
  source_discarded:
    description:
      - Confirms that the host O(name) will not return. Evacuations from it that are C(done) become C(completed) with the reason C(source_discarded);
        evacuations to it that are not settled, or were given up for a newer one, become C(failed), because their domains are not on it. Its entry becomes
        V(fenced), with C(discarded).
      - From then on, a clean-shutdown token that the host may hold does not prevent its evacuation. The token would still release the host, so make sure that
        nothing boots from its disk again.
      - Evacuations of other hosts do not wait for its answer either, except for domains that may be on it according to the ledger.
      - If the host returns anyway, it is neither enabled nor released until O(adopt_identity) confirms that it belongs to the fleet again.
      - Run this on another host, for example on localhost. If the inventory has the host, the task tries to connect to it as Ansible does; a host that answers
        with its host ID is refused.
    type: bool
    default: false
  domains_lost:
    description:
      - Names or UUIDs of domains that were lost with the host O(name), which must have been discarded (O(source_discarded)). No other host may have them
        according to the ledger.
      - They are no findings of a status any more, and are evacuated only if they are named. What was saved of them is kept. A domain that was restored from a
        backup with its UUID need not be given. It belongs to its new host as soon as that is protected while the domain is active there.
    type: list
    elements: str
  revoke_token:
    description:
      - Invalidates the clean-shutdown token that the host O(name) may hold, so that the host can be evacuated.
      - On the host itself, this removes the token and the permission to leave one.
      - For a host that is off or does not answer, run this on another host that sees its shared storage. The task leaves a file there, which the boot guard
        of O(name) reads before it accepts a token. If no folder can be reached, the task fails with C(unsafe) and the token is still valid.
    type: bool
    default: false
  settle:
    description:
      - Gives a record the status that a person has found to be true. The status determines where its domain is from now on.
      - Only some records can be settled. These are a record in C(error); a migration whose source was declared with O(source_discarded); a record in C(done),
        as V(completed), if its source will not return, or if its domain was moved back to its source by hand; a record that was given up for a newer one, as
        V(failed); and a record that the ledger has lost and that the host on which the task runs remembers. Such a record is written to the ledger again.
      - A migration that has ended, and whose record is still open, is settled on its source host, by asking both hosts. Nothing is moved. Their answers decide,
        and RV(records) shows them. The status given here is used only if they prove nothing. If they contradict it, the record is closed by the answers, and
        the task fails with C(conflict). A migration that is still in progress is C(invalid_state).
    type: dict
    suboptions:
      id:
        description: ID of the record.
        type: str
        required: true
      status:
        description:
          - V(completed) means that the domain is at the destination. V(failed) and V(cancelled) mean that it is on the source, or, for an evacuation, that it
            is not at the destination. V(done) is for an evacuation that has succeeded, and whose source must still be cleaned.
        type: str
        choices: [completed, done, failed, cancelled]
        required: true
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
seealso:
  - plugin: kvmfleet.migration.ledger
    plugin_type: lookup
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Keep new domains away from a host
  kvmfleet.migration.host:
    state: maintenance
    reason: Memory to be replaced

- name: Let it take domains again
  kvmfleet.migration.host:
    state: enabled

- name: Record that a host which does not answer was switched off
  kvmfleet.migration.host:
    name: kvm2
    state: fenced
    reason: Power supply burnt out, switched off by hand
  delegate_to: localhost

- name: Let the evacuations from a scrapped host be over
  kvmfleet.migration.host:
    name: kvm2
    source_discarded: true
    reason: Burnt out, taken to the scrapyard
  delegate_to: localhost

- name: Give up the guests whose disks were in the scrapped host
  kvmfleet.migration.host:
    name: kvm2
    domains_lost: [scratch1, scratch2]
    reason: Their disks were in it, and nobody needs them
  delegate_to: localhost

- name: Revoke the clean-shutdown token of a host that is off, on a host that sees its shared storage
  kvmfleet.migration.host:
    name: kvm1
    revoke_token: true
    reason: Shut down for repair, its guests are needed meanwhile
  delegate_to: kvm3

- name: Say that this host is the one that the ledger knows
  kvmfleet.migration.host:
    adopt_identity: true
    reason: The mainboard was replaced, and the host renamed

- name: Say how a move ended of which no host could tell it
  kvmfleet.migration.host:
    settle:
      id: 0f6f2f7a-9d0f-4d43-8f2b-2d1f0f7a3c11
      status: failed
    reason: The guest runs on kvm1, seen on its console
  delegate_to: localhost

- name: Put a record back that an old backup of the ledger has lost, from what this host remembers
  kvmfleet.migration.host:
    settle:
      id: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10
      status: completed
    reason: The guest runs on kvm2, seen by virsh list

- name: Read the entry
  kvmfleet.migration.host:
  register: entry
"""

RETURN = r"""
host:
  description: Entry of the host in the ledger; null if it has none, and with O(settle).
  returned: success
  type: dict
  contains:
    host_id:
      description: The collection's own ID of the host; null in check mode if the host has none yet.
      type: str
      sample: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
    name:
      description: Inventory name of the host.
      type: str
      sample: kvm1
    host_uuid:
      description: libvirt's UUID of the host; null if libvirt did not answer.
      type: str
      sample: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01
    machine_id:
      description: ID of the operating system.
      type: str
      sample: 4c0f2f0a9d6e4b0c8a3d1e5f7a9b0c2d
    state:
      description: V(enabled), V(maintenance) or V(fenced).
      type: str
      sample: maintenance
    reason:
      description: The reason of the state; null if there is none.
      type: str
      sample: Memory to be replaced
    since:
      description: When the state was written.
      type: str
      sample: '2026-11-21T03:00:00.000Z'
    by:
      description: Who wrote the state, or cordoned the host for its latest drain.
      type: str
      sample: root@control
records:
  description: The records that a decision changed, or would change; with O(settle) the record in any case.
  returned: with a decision
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import host_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard import phases
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.identity import IDENTITY_PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=host_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase({**IDENTITY_PHASES, **phases.DECISION_PHASES}, module.params))


if __name__ == "__main__":
    main()
