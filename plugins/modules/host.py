#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host
short_description: Say whether a libvirt host may take domains
version_added: 0.1.0
description:
  - Reads or writes a host's entry in the ledger. A host that is V(maintenance) or V(fenced) is nobody's destination.
  - The first task that writes makes the host's identity, the file C(/var/lib/kvmfleet/host-id), which needs root.
  - Without O(state) and without a decision nothing is changed, and the entry is returned.
  - O(adopt_identity), O(source_discarded), O(revoke_token) and O(settle) are for what only a person can decide. Each needs a O(reason), which is kept with
    who said it and when; a record's is in its history and in the ledger's audit chain. Only one of them, or O(state), can be given.
options:
  state:
    description:
      - V(enabled) lets the host take domains again.
      - V(maintenance) is a host that is being drained or worked on.
      - V(fenced) is a host that was cut off or switched off.
    type: str
    choices: [enabled, maintenance, fenced]
  reason:
    description:
      - Why, for whoever reads it later. Who wrote it and when is recorded beside it.
      - When not given, the reason stays while the state stays, and is empty otherwise.
    type: str
  name:
    description:
      - The host's inventory name. By default that of the host the task runs on.
      - With another name the entry of that host is found in the ledger and that host is not asked, so that this works for one that does not answer.
        It must have an entry already.
    type: str
  adopt_identity:
    description:
      - This host is the one that the ledger has, although name, machine ID and libvirt's UUID have changed, another entry has its name, its identity file
        is lost, or it was given up with O(source_discarded). The entry takes over what the host says now, and lists that in C(adopted). A lost file is
        written again.
      - A host that has an identity of its own keeps it; where the ledger has another one for it, the task still ends with C(conflict).
      - To be run on the host itself.
    type: bool
    default: false
  source_discarded:
    description:
      - The host O(name) will not return. Evacuations from it that are C(done) become C(completed) with the reason C(source_discarded); those to it that
        were given up for a newer one become C(failed). Its entry becomes V(fenced), with C(discarded).
      - From then on a clean-shutdown token that the host may hold does not stop its evacuation; it would still release the host, so make sure that
        nothing boots from its disk again.
      - Should the host be back after all, it is neither enabled nor released before O(adopt_identity) says that it belongs to the fleet again.
      - To be run elsewhere, e.g. on localhost; a host that answers is refused.
    type: bool
    default: false
  revoke_token:
    description:
      - The clean-shutdown token that the host O(name) may hold does not count any more, so that the host can be evacuated.
      - Run on the host itself, it takes the token and the right to leave one from it.
      - For a host that is off or does not answer, run it on another host that sees its shared storage. The task leaves a file there, which the boot guard
        of O(name) reads before it honours a token. When no folder can be reached, the task fails with C(unsafe) and the token still counts.
    type: bool
    default: false
  settle:
    description:
      - The record gets the status that a person has found to be true, which says where its domain is from now on.
      - Only a record that is C(error); or C(done), as V(completed), for a source that will not return; or given up for a newer one, as V(failed);
        or one that the ledger has lost, and the host that the task runs on remembers. That one is put into the ledger again.
    type: dict
    suboptions:
      id:
        description: The record's ID.
        type: str
        required: true
      status:
        description:
          - V(completed) means that the domain is at the destination, V(failed) and V(cancelled) that it is at the source, or of an evacuation
            that it is not at the destination. V(done) is of an evacuation that has succeeded, and whose source is still to be cleaned.
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
  description: The host's entry in the ledger; null where it has none, and with O(settle).
  returned: success
  type: dict
  contains:
    host_id:
      description: The collection's own ID of the host; null in check mode where the host has none yet.
      type: str
      sample: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
    name:
      description: Its inventory name.
      type: str
      sample: kvm1
    host_uuid:
      description: Libvirt's UUID of the host; null where libvirt did not answer.
      type: str
      sample: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01
    machine_id:
      description: The operating system's ID.
      type: str
      sample: 4c0f2f0a9d6e4b0c8a3d1e5f7a9b0c2d
    state:
      description: V(enabled), V(maintenance) or V(fenced).
      type: str
      sample: maintenance
    reason:
      description: Why; null where nobody said.
      type: str
      sample: Memory to be replaced
    since:
      description: When the state was written.
      type: str
      sample: '2026-11-21T03:00:00.000Z'
    by:
      description: Who wrote it.
      type: str
      sample: root@control
records:
  description: The records that a decision changed, or would change; with O(settle) the record in any case.
  returned: with a decision
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

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import host_decisions, host_phases
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_spec import host_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=host_spec(), supports_check_mode=True)
    run(module, lambda module: in_phase({**host_phases.PHASES, **host_decisions.PHASES}, module.params))


if __name__ == "__main__":
    main()
