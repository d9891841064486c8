#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: protect
short_description: Save the domains of a libvirt host for an evacuation
version_added: 0.1.0
description:
  - Saves the definition of every domain of the host in the ledger. It also saves the state of the domain, its policy, its requirements, and the locations of
    its disks with their backing and data files, and all other resources of the host that the domain needs (firmware variables, emulated TPM, shared folders,
    persistent memory, boot files outside C(/usr)). Run it regularly while the host is healthy; only what has changed is written.
  - Leaves a token in each folder that holds images or other such files, and reads the tokens of the other hosts, which proves which hosts see which storage.
    Two hosts that see the same token of a third one see the same storage, too. A token that another host leaves later is read by the next run; the role
    C(protect_host) first lets all hosts leave their tokens.
  - For a persistent domain the inactive definition is saved, and for a transient domain the live one, both with passwords. The module returns and shows no
    definitions.
  - A domain that is active on a host in service need not be started again by a recovery. If a drain or the release of a held boot has left such a note on the
    host (RV(kvmfleet.migration.boot_guard#module:to_start)), it is removed. This does not count as a change.
  - A domain that has left the host keeps its document, and is returned in RV(missing) until the ledger knows where it went. If no other host may have it
    according to the ledger, this is noted in its document, and M(kvmfleet.migration.evacuate) starts it only if it is named. Otherwise this host is removed
    from its possible hosts. Nothing is written while the host reports no domain at all, but the ledger has several there.
  - The host is authoritative about a domain that is active on it, unless an unsettled record or an evacuation that is C(done) gives that domain to another
    host. Such a domain is returned in RV(conflicts), with a warning, and is not saved; all others are saved.
  - A host belongs to the ledger under which it was protected first, by the file C(/var/lib/kvmfleet/ledger-id), and refuses another one with C(conflict).
  - A host that the inventory has under two names is refused with C(conflict) under the second one.
  - Requires root on the host.
options:
  guard:
    description:
      - Install the boot guard on the host, which prevents all automatic starts of guests after a boot until the control node has released the host.
      - V(false) installs no boot guard, and leaves an existing one unchanged.
    type: bool
    default: false
  clean_shutdown_token:
    description:
      - Let the host release its own next boot after a clean shutdown, for fleets whose control node is a guest of the fleet. Requires O(guard).
      - The host accepts a token only if every folder of images that other hosts see confirms at boot that nobody has revoked it
        (O(kvmfleet.migration.host#module:revoke_token)). A host without a folder that another host sees is granted no token, and C(guard.note) says so.
      - A host on which a domain that is off and marked for autostart is, or may be, on another host is granted no token either. A grant that it has is
        withdrawn, also without O(guard).
      - A host that may hold such a token is not evacuated until a person has revoked it, and a reset by its watchdog is no evidence.
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
  - Every run writes the time at which the host was last protected into its entry. This does not count as a change.
  - If libvirt's UUID has changed, although the host is the same by its host ID and machine ID, the new one is written, with a warning that states the remedy.
  - If another host of the ledger has the same libvirt UUID, there is a similar warning.
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
  description: The collection's own ID of the host; null in check mode if the host has none yet.
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
  description: Domains whose documents were already up to date; C(age_seconds) is the time since they were written.
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
  description: Domains that may be on this host according to the ledger, and are not; C(missing_since) if that is noted in their documents.
  returned: success
  type: list
  elements: dict
  sample: []
conflicts:
  description: Domains that are active on this host although a record gives them to another host; C(uuid), C(name), C(msg). They may run twice.
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
    - C(target) is null for a file that is not a disk. It is also null if some host sees each of the disks, but no host sees all of them.
  returned: success
  type: list
  elements: dict
  sample:
    - uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
      name: web1
      target: vda
      path: /var/lib/libvirt/images/web1.qcow2
      reason: no other host has seen this host's token in /var/lib/libvirt/images
foreign_acts:
  description:
    - What others have done to domains of the host since they were seen last. C(act) is C(moved) (the domain runs on this host, and the ledger had it on another
      one), C(stopped) or C(started). Each is also in the document of its domain and in the audit of the ledger, and is sent as a notice.
    - Acts of this collection, failures of guests or hosts, and automatic starts after a boot are none of these.
  returned: success
  type: list
  elements: dict
  sample:
    - {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1, act: moved, msg: Domain web1 was moved from kvm2 to kvm1 without this collection.}
missing_records:
  description:
    - Moves and evacuations that this host remembers, and the ledger does not.
    - The ledger has none of them, or less than any crash can leave behind. It is therefore older than the host's memory, for example restored from an old
      backup.
    - A task that sees such a record neither moves nor starts its domain until a person has settled it with O(kvmfleet.migration.host#module:settle).
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: ID of the record.
      type: str
      sample: 2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10
    generation:
      description: The generation of its domain in this record.
      type: int
      sample: 7
    type:
      description: V(live-migration) or V(evacuation).
      type: str
      sample: live-migration
    status:
      description: The last status that the host remembers. For an evacuation this is always V(pre-migrating).
      type: str
      sample: completed
    updated_at:
      description: When that status was written.
      type: str
      sample: '2026-11-21T03:00:00.000Z'
    domain:
      description: UUID and name of the domain.
      type: dict
      sample: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1}
    source:
      description: Inventory name, host ID and libvirt's UUID of the source.
      type: dict
      sample: {host: kvm1, host_id: null, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c01}
    destination:
      description: Inventory name, host ID and libvirt's UUID of the destination.
      type: dict
      sample: {host: kvm2, host_id: null, host_uuid: 8c1c1e0a-6f4e-4d53-b1a7-0a7d2b1f0c02}
    ledger_id:
      description: ID of the ledger in which it was written.
      type: str
      sample: 7d0a1a0e-6d0b-4a55-8f3a-1f0e9d6c2b31
    ledger_status:
      description: Status of the record in the ledger; null if the ledger does not have it.
      type: str
      sample: null
    remembered_by:
      description: The host that remembers it.
      type: str
      sample: kvm1
notes:
  description: Notes for the operator, one sentence each; empty if every domain was saved and could be started elsewhere.
  returned: success
  type: list
  elements: str
  sample: ["No token could be left in /srv/iso: Read-only file system."]
tokens:
  description: Folders with a token of this host (C(left)), and the reasons why one could not be written or read (C(unwritable)).
  returned: success
  type: dict
  sample: {left: [/var/lib/libvirt/images], unwritable: {}}
sees:
  description: For each other host, by name, its folders and devices that this host sees too.
  returned: success
  type: dict
  sample: {kvm2: [/srv/images]}
guard:
  description: The boot guard.
  returned: success
  type: dict
  contains:
    installed:
      description: Whether the boot guard is installed.
      type: bool
      sample: true
    systemd:
      description: Whether systemd runs the boot guard.
      type: bool
      sample: true
    held_at_boot:
      description: Whether the next boot is held, which requires both of the above.
      type: bool
      sample: true
    held:
      description: Whether this boot is held now.
      type: bool
      sample: false
    note:
      description: What does not work, in words; empty if everything does.
      type: str
      sample: ''
watchdog:
  description:
    - The hardware watchdog to which the lease of the host is bound; null for a host without one.
    - It is also in the host's entry in the ledger. A reset of the host by its watchdog is evidence only in the boot in which all of this was seen.
  returned: success
  type: dict
  contains:
    boot_id:
      description: The boot of the host in which this was seen.
      type: str
      sample: 3b0c7a52-4a5f-4e0f-9a3f-8c7d1d0e5a03
    held_at_boot:
      description: Whether the boot guard holds the next boot in any case. It may not, if the host may have a clean-shutdown token.
      type: bool
      sample: true
    armed:
      description: Whether the device counts.
      type: bool
      sample: true
    device:
      description: The device.
      type: str
      sample: /dev/watchdog0
    identity:
      description: What the device calls itself.
      type: str
      sample: i6300ESB timer
    timeout_seconds:
      description: How long after the last ping the device resets the host.
      type: int
      sample: 10
    nowayout:
      description: Whether the armed device cannot be disarmed.
      type: bool
      sample: true
    bound:
      description: Whether the daemon that pings the device asks for the lease, and nothing else would ping it in its place.
      type: bool
      sample: true
    reset_seconds:
      description: How long after the end of its lease the host has been reset, at the latest.
      type: int
      sample: 44
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import protect_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.protect import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=protect_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
