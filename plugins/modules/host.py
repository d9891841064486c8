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
  - Without O(state) nothing is changed, and the entry is returned.
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

- name: Read the entry
  kvmfleet.migration.host:
  register: entry
"""

RETURN = r"""
host:
  description: The host's entry in the ledger; null where it has none.
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
error_code:
  description: A stable word for what went wrong.
  returned: failure
  type: str
  sample: conflict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.host_phases import PHASES
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_spec import host_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._module import in_phase, run


def main() -> None:
    """Run one phase on the host; the action plugin of the same name calls them in their order."""
    module = AnsibleModule(argument_spec=host_spec(), supports_check_mode=True)
    run(module, lambda module: in_phase(PHASES, module.params))


if __name__ == "__main__":
    main()
