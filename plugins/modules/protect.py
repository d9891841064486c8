#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: protect
short_description: Save a libvirt host's domains, so that they can be started elsewhere when the host is dead
version_added: 0.1.0
description:
  - Saves the definition of every domain of the host in the ledger, with the state it is in, its policy, what it needs of a host, and where its disks
    are, with their backing and data files, and all else of the host that it needs (firmware variables, emulated TPM, shared folders, persistent memory,
    boot files outside C(/usr)). To be run again and again while the host is healthy; only what has changed is written.
  - Leaves a token in each folder that holds images or other such files, and reads the tokens of the other hosts, which proves who sees which store. A token
    that another host leaves later is read by the next run; the role C(protect_host) has all hosts leave theirs first.
  - The inactive definition of a persistent domain is saved, and the live one of a transient one, with passwords. The module returns and shows none of them.
  - A domain that has left the host keeps its document, and is returned in RV(missing) while the ledger does not know where it went.
  - The host is right about a domain that is active on it, unless an unsettled record or an evacuation that is C(done) gives that domain to another host.
    That one is returned in RV(conflicts), with a warning, and is not saved; all others are.
  - A host belongs to the ledger under which it was protected first, by the file C(/var/lib/kvmfleet/ledger-id), and refuses another one with C(conflict).
  - Needs root on the host.
options:
  guard:
    description:
      - Install the boot guard on the host, which lets no guest start by itself after a boot before the control node has released the host.
      - V(false) installs none and leaves one that is there as it is.
    type: bool
    default: false
  clean_shutdown_token:
    description:
      - Let the host release its own next boot after a clean shutdown, for fleets whose control node is a guest of the fleet. Needs O(guard).
      - The host honours a token only when every folder of images that other hosts see confirms at boot that nobody has revoked it
        (O(kvmfleet.migration.host#module:revoke_token)). A host without a folder that another host sees is granted none, and C(guard.note) says so.
      - A host that may hold such a token is not evacuated before a person has revoked it.
    type: bool
    default: false
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
notes:
  - When the host was protected last is written into its entry by every run, which does not count as a change.
  - A libvirt UUID that has changed since, although the host is the same by its host ID and machine ID, is written, and warned of with the remedy.
  - A libvirt UUID that another host of the ledger has too is warned of likewise.
seealso:
  - module: kvmfleet.migration.host
  - plugin: kvmfleet.migration.ledger
    plugin_type: lookup
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: Save all domains of the host
  kvmfleet.migration.protect:

- name: Save them, and let no guest start by itself when the host comes back
  kvmfleet.migration.protect:
    guard: true
  register: protected

- name: Name the disks that no other host could use
  ansible.builtin.debug:
    msg: "{{ protected.unproved }}"
"""

RETURN = r"""
host_id:
  description: The collection's own ID of the host; null in check mode where the host has none yet.
  returned: success
  type: str
  sample: 1b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a01
saved:
  description: Domains whose documents were written, or would be in check mode.
  returned: success
  type: list
  elements: dict
  sample:
    - uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
      name: web1
      state: running
      state_at: '2026-11-21T03:00:00.000Z'
      saved_at: '2026-11-21T03:00:00.000Z'
      age_seconds: 0
      possible_hosts: [kvm1]
      changes: [definition, autostart]
unchanged:
  description: Domains of which the ledger knew all; C(age_seconds) is how long ago they were written.
  returned: success
  type: list
  elements: dict
  sample:
    - uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a12
      name: web2
      state: shut off
      state_at: '2026-11-20T03:00:00.000Z'
      saved_at: '2026-11-20T03:00:00.000Z'
      age_seconds: 86400
      possible_hosts: [kvm1]
missing:
  description: Domains that may be on this host by the ledger, and are not. Their documents stay as they are.
  returned: success
  type: list
  elements: dict
  sample: []
conflicts:
  description: Domains that are active here although a record gives them to another host; C(uuid), C(name), C(msg). They may run twice.
  returned: success
  type: list
  elements: dict
  sample: []
skipped:
  description: Domains that were not saved for another reason; C(uuid), C(name), C(reason).
  returned: success
  type: list
  elements: dict
  sample: []
unproved:
  description:
    - Disks and other files that no other host was proved to see, so that their domains would not be started elsewhere; C(uuid), C(name), C(target), C(path),
      C(reason).
    - C(target) is null for a file that is no disk, and where each disk is seen by some host, but all of them by none.
  returned: success
  type: list
  elements: dict
  sample:
    - uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
      name: web1
      target: vda
      path: /var/lib/libvirt/images/web1.qcow2
      reason: no other host has seen this host's token in /var/lib/libvirt/images
missing_records:
  description:
    - Moves and evacuations that this host remembers, and the ledger does not.
    - It knows nothing of them, or less than any crash can leave behind, so it was set back, as by an old backup.
    - Their domains are neither moved nor started before a person has settled them with O(kvmfleet.migration.host#module:settle).
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: The record's ID.
      type: str
      sample: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10
    generation:
      description: The generation that it has of its domain.
      type: int
      sample: 7
    type:
      description: V(live-migration) or V(evacuation).
      type: str
      sample: live-migration
    status:
      description: What the host remembers of its end. Of an evacuation that is always V(pre-migrating).
      type: str
      sample: completed
    updated_at:
      description: When that was written.
      type: str
      sample: '2026-11-21T03:00:00.000Z'
    domain:
      description: UUID and name.
      type: dict
      sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1}
    source:
      description: Inventory name, host ID and libvirt's UUID of the source.
      type: dict
      sample: {host: kvm1, host_id: null, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01}
    destination:
      description: The same of the destination.
      type: dict
      sample: {host: kvm2, host_id: null, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c02}
    ledger_id:
      description: The ledger that it was written in.
      type: str
      sample: 7d0a1a0e-6d0b-4a55-8f3a-1f0e9d6c2b31
    ledger_status:
      description: What the ledger has of it; null where it has nothing.
      type: str
      sample: null
    remembered_by:
      description: The host that remembers it.
      type: str
      sample: kvm1
notes:
  description: What a person should know, a sentence each; empty where every domain was saved and could be started elsewhere.
  returned: success
  type: list
  elements: str
  sample: ["No token could be left in /srv/iso: Read-only file system."]
tokens:
  description: Folders with a token of this host (C(left)), and why there is none in others (C(unwritable)).
  returned: success
  type: dict
  sample: {left: [/var/lib/libvirt/images], unwritable: {}}
sees:
  description: By name of each other host, the folders and devices of it that this host sees too.
  returned: success
  type: dict
  sample: {kvm2: [/srv/images]}
guard:
  description: The boot guard.
  returned: success
  type: dict
  contains:
    installed:
      description: Whether it is there.
      type: bool
      sample: true
    systemd:
      description: Whether systemd runs it.
      type: bool
      sample: true
    held_at_boot:
      description: Whether the next boot is held; both of the above.
      type: bool
      sample: true
    held:
      description: Whether this boot is held now.
      type: bool
      sample: false
    note:
      description: What does not hold, in words; empty where all does.
      type: str
      sample: ''
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.protect import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._protect_spec import protect_spec


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=protect_spec(), supports_check_mode=True)
    run(module, lambda module: in_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
