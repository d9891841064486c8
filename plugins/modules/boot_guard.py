#!/usr/bin/python

# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: boot_guard
short_description: Release a host that was held when it booted
version_added: 0.1.0
description:
  - Reads or ends the hold on the automatic starts of this boot. The boot guard of a host, installed by M(kvmfleet.migration.protect), holds these starts.
  - A host is released only if the ledger knows its identity, and every evacuation from it is closed. Otherwise the task fails with C(unsafe), names these
    records, and the host stays held.
  - A release starts no guest. The domains that the boot would have started are first noted on the host. The notes survive reboots, and are returned in
    RV(to_start) until M(kvmfleet.migration.domain_start) has started the domains, or M(kvmfleet.migration.protect) has found them active. A run that dies in
    between therefore loses none of them.
  - Before the release, what M(kvmfleet.migration.protect) saw of the watchdog of the host in an earlier boot is removed from the ledger, because a reset of
    that boot says nothing about the guests of this one. Protect the host after its release.
  - Without O(state) and O(forget), nothing is changed.
options:
  state:
    description: V(released) ends the hold of this boot.
    type: str
    choices: [released]
  forget:
    description: UUIDs of domains that are not to be started again. Only the notes are removed.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - kvmfleet.migration._attributes
  - kvmfleet.migration._attributes.action
  - kvmfleet.migration._attributes.actiongroup
  - kvmfleet.migration._libvirt
  - kvmfleet.migration._ledger
  - kvmfleet.migration._internal
attributes:
  diff_mode:
    support: none
notes:
  - Requires root on the host.
seealso:
  - module: kvmfleet.migration.protect
  - module: kvmfleet.migration.domain_start
  - module: kvmfleet.migration.evacuation_cleanup
author:
  - The kvmfleet.migration developers (@kvmfleet)
"""

EXAMPLES = r"""
- name: See whether the host is held, and what waits for its release
  kvmfleet.migration.boot_guard:
  register: boot

- name: Release it
  kvmfleet.migration.boot_guard:
    state: released
  register: boot

- name: Start one of the guests that the boot would have started
  kvmfleet.migration.domain_start:
    uuid: "{{ boot.to_start[0].uuid }}"
"""

RETURN = r"""
guard:
  description: The boot guard.
  returned: success
  type: dict
  contains:
    installed:
      description: Whether all files of the boot guard are installed. A guard without some of them may hold a boot, and is released as well.
      type: bool
      sample: true
    systemd:
      description: Whether systemd runs on this host, and with it the boot guard.
      type: bool
      sample: true
    boot_id:
      description: The ID of this boot.
      type: str
      version_added: 0.2.0
      sample: 9d6c2f0e-7c1e-4b0e-8d53-0c6a1f2b3d44
    ran:
      description: Whether the boot guard has made a decision in this boot.
      type: bool
      sample: true
    held:
      description: Since when (C(at)) and why (C(why)) this boot is held; null if it is not.
      type: dict
      sample: null
    released:
      description: When (C(at)) and by whom (C(by), one of V(control), V(token), V(install)) this boot was released; null if it was not.
      type: dict
      sample: {at: '2026-11-21T03:00:00.000Z', by: control}
    would_start:
      description: The domains that a boot without the guard would start; C(uuid), C(name), C(why).
      type: list
      elements: dict
      sample: []
to_start:
  description:
    - Domains that are to be started on this host again, and were not yet. They may have moved since; this is not checked.
    - C(why) has V(drain) for a domain that a drain has shut down, and V(autostart), V(once) or V(libvirt-guests) for one that a held boot would have started.
    - C(boot_id) is the boot in which a drain has shut the domain down last. It is missing if none has.
  returned: success
  type: list
  elements: dict
  sample:
    - uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11
      name: web1
      why: [autostart]
      at: '2026-11-21T03:00:00.000Z'
withheld_by:
  description:
    - Evacuations of this host that are not closed and therefore prevent its release. They are also returned if the task fails because of them.
    - Also records from or to this host that a newer evacuation has superseded, because they may have left a copy of their domain here.
    - Also moves and evacuations with this host as source or destination that the ledger has lost, for example because an old backup was restored. This host
      remembers them, or another host whose facts are known.
  returned: success, or failure with C(unsafe)
  type: list
  elements: dict
  sample:
    - id: 0a7d4a5c-1f4e-4f9e-8d3c-6f0a5a2c9b11
      type: evacuation
      status: done
      reason: null
      domain: {uuid: 5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11, name: web1}
      source: kvm1
      destination: kvm2
open_records:
  description:
    - Records for which the host should stay in maintenance, in the form of RV(withheld_by). These are the records of RV(withheld_by), and every unsettled
      move or evacuation with this host as source or destination.
  returned: success
  type: list
  elements: dict
  sample: []
forgotten:
  description: UUIDs of O(forget) for which there was a note.
  returned: O(forget) is not empty
  type: list
  elements: str
  sample: []
error_code:
  description: Stable code of the error.
  returned: failure
  type: str
  sample: unsafe
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import boot_guard_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._boot_guard.phases import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import run_module, run_phase


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=boot_guard_spec(), supports_check_mode=True)
    run_module(module, lambda module: run_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
